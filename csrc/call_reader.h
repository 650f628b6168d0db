// Collects a cached graph's arguments from those of a call, and checks on the way what tracing took for granted.
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <array>
#include <optional>
#include <vector>

#include "attribute_memo.h"

namespace airgraph {

// One pass over a flat array of instructions. A value that was read once is kept in a slot; the first slots are the
// call's parameters. What only the class and the attributes of an object decide is remembered until they change, as of a
// KV cache that comes with every call.
class CallReader {
 public:
  // instructions: tuples of a name and its operands, see `Kind`. arguments: those that do not come with the call, None in
  // the places of others.
  CallReader(size_t parameters, const pybind11::list& instructions, pybind11::list arguments);
  CallReader(const CallReader&) = delete;
  CallReader& operator=(const CallReader&) = delete;

  // The graph's arguments for these values of the parameters; None where a condition does not hold, or something is
  // missing. Needs the GIL.
  pybind11::object read(const pybind11::tuple& values);

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
  // That the instruction holds for an object as long as it is as it is, and the attribute that it gives.
  struct Answer {
    bool is_known = false;
    PyObject* value = nullptr;
  };
  struct Instruction {
    Kind kind = Kind::is;
    size_t slot = 0;
    size_t number = 0;  // another slot, a place, a dimension or a length
    size_t place = 0;
    pybind11::object held;
    Traits traits{};
    // Of an attribute: whether it is wanted once what is asked of it is known.
    bool is_needed = true;
    // By the way of the memo of its slot; of a condition on an attribute, of the memo of its owner's slot.
    std::array<Answer, AttributeMemo::kWays> answers{};
  };
  // A tensor that does not come with the call. impl: where its traits were, only ever asked for ahead.
  struct Kept {
    PyObject* tensor;
    PyTypeObject* type;
    const void *impl, *autograd;
    Traits traits;
  };
  class Slots;
  class Turn;

  static Kind kind_of(const std::string& name);
  static constexpr size_t kNoMemo = static_cast<size_t>(-1);
  static bool has_traits(const at::Tensor& tensor, const Traits& traits);
  bool are_kept_as_they_were() const;
  // A condition on the value itself, which is of a kind that stays what it is.
  static bool is_of_value(Kind kind) { return kind == Kind::is || kind == Kind::equals; }
  void plan_memory();
  // Looks whether what is asked of the value in a slot is known.
  void recall(size_t index, Slots& slots);
  // Whether all instructions hold; nothing if an error is set.
  std::optional<bool> run_all(Slots& slots, PyObject* made, bool remembers);
  // The same of one, whatever is remembered.
  static std::optional<bool> run(const Instruction& each, Slots& slots, PyObject* made);
  // Whether it may have run code of anybody's, which a collection of garbage does too.
  static bool may_run_code(const Instruction& each, const Slots& slots);
  // Whether what an instruction has just found is for its object's class and attributes to say.
  static bool can_be_remembered(const Instruction& each, const Slots& slots);

  size_t parameters_, slots_;
  std::vector<Instruction> instructions_;
  // Of each slot that is asked for something to remember, by its number.
  std::vector<AttributeMemo> memos_;
  std::vector<size_t> memo_of_slot_;
  // A call that comes while another one is read, from code that this runs or from another thread, remembers nothing.
  bool is_reading_ = false;
  pybind11::list arguments_;
  // Of those among the arguments; looked at one after the other.
  std::vector<Kept> kept_;
  // Nothing is served any more.
  bool cleared_ = false;
};

}  // namespace airgraph
