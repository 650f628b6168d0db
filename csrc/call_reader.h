// Collects a cached graph's arguments from those of a call, and checks on the way what tracing took for granted.
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <optional>
#include <vector>

namespace airgraph {

// One pass over a flat array of instructions. A value that was read once is kept in a slot; the first slots are the
// call's parameters.
class CallReader {
 public:
  // instructions: tuples of a name and its operands, see `Kind`. arguments: those that do not come with the call, None in
  // the places of others.
  CallReader(size_t parameters, const pybind11::list& instructions, pybind11::list arguments);
  CallReader(const CallReader&) = delete;
  CallReader& operator=(const CallReader&) = delete;

  // The graph's arguments for these values of the parameters; None where a condition does not hold, or something is
  // missing. Needs the GIL.
  pybind11::object read(const pybind11::tuple& values) const;

  // For Python's garbage collector.
  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  enum class Kind : uint8_t {
    attribute,  // (slot, name): a new slot
    item,       // (slot, key): a new slot
    type,       // (slot): a new slot, its class
    is,         // (slot, object): this very object
    same,       // (slot, slot): one object
    apart,      // (slot, slot): two objects
    among,      // (slot, tuple): none of these objects
    of_class,   // (slot, class): of this very class
    equals,     // (slot, constant): of its class, and equal
    length,     // (slot, number)
    has,        // (slot, name): an attribute
    lacks,      // (slot, name): no such attribute
    inherits,   // (slot, name): none of its own, whatever its class has
    holds,      // (slot, function): the function says True of it
    tensor,     // (slot, place, class, requires_grad, is_leaf, keys): a tensor of these traits, for this place
    kept,       // (place, class, requires_grad, is_leaf, keys): the same of one that does not come with the call
    number,     // (slot, place): an int, for this place
    size,       // (slot, dim, place): of a tensor, for this place
    stride,     // (slot, dim, place)
    offset,     // (slot, place): in its storage
    real,       // "float" (slot, place): a float, for this place as a tensor
    object,     // (object): a new slot
  };
  struct Traits {
    bool requires_grad, is_leaf;
    uint64_t keys;
  };
  struct Instruction {
    Kind kind = Kind::is;
    size_t slot = 0;
    size_t number = 0;  // another slot, a place, a dimension or a length
    size_t place = 0;
    pybind11::object held;
    Traits traits{};
  };
  // A tensor that does not come with the call. impl: where its traits were, only ever asked for ahead.
  struct Kept {
    PyObject* tensor;
    PyTypeObject* type;
    const void *impl, *autograd;
    Traits traits;
  };
  class Slots;

  static Kind kind_of(const std::string& name);
  static bool has_traits(const at::Tensor& tensor, const Traits& traits);
  bool are_kept_as_they_were() const;
  // Whether the instruction holds; nothing if an error is set.
  std::optional<bool> run(const Instruction& each, Slots& slots, PyObject* made) const;

  size_t parameters_, slots_;
  std::vector<Instruction> instructions_;
  pybind11::list arguments_;
  // Of those among the arguments; looked at one after the other.
  std::vector<Kept> kept_;
  // Nothing is served any more.
  bool cleared_ = false;
};

}  // namespace airgraph
