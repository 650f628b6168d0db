// What a reader of calls does, step by step: one instruction for each value that is fetched or compared.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <pybind11/pybind11.h>

#include <array>
#include <optional>

#include "../internals/tensor_state.h"
#include "attribute_memo.h"

namespace airgraph::reading {

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
  exactly,    // (slot, tuple of names): its own attributes, in their order
  keyed,      // (slot, tuple of keys): of a dict, in their order
  holds,      // (slot, function): the function says True of it
  tensor,     // (slot, place, class, requires_grad, is_leaf, keys): a tensor of these traits, for this place
  kept,       // (place, class, requires_grad, is_leaf, keys): the same of one that does not come with the call
  number,     // (slot, place): an int, for this place
  size,       // (slot, dim, place): of a tensor, for this place
  stride,     // (slot, dim, place)
  offset,     // (slot, place): in its storage
  real,       // "float" (slot, place): a float, for this place as a tensor
  object,     // (object): a new slot
  formed,     // (slot, (dtype, sizes, strides), requires_grad, is_leaf, keys): a tensor of this form and traits
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
  size_t place;
  PyObject* tensor;
  PyTypeObject* type;
  const void *impl, *autograd;
  Traits traits;
};

// References to the values of one call, and what is remembered of them.
class Slots {
 public:
  struct Slot {
    // Nothing where all that is asked of it is known.
    PyObject* value = nullptr;
    // By which what is asked of its class and attributes is known, and by which it is learned.
    int way = AttributeMemo::kNone, learning = AttributeMemo::kNone;
    // When that was so, see `ran_code`.
    size_t looked_at = 0;
    // The same of the object that it is an attribute of.
    int owners_way = AttributeMemo::kNone, owners_learning = AttributeMemo::kNone;
  };

  explicit Slots(size_t count) : slots_(count) {}
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;
  ~Slots() {
    for (size_t i = 0; i < filled_; ++i) {
      Py_XDECREF(slots_[i].value);
    }
  }

  PyObject* operator[](size_t index) const { return slots_[index].value; }
  Slot& at(size_t index) { return slots_[index]; }
  size_t count() const { return filled_; }
  Slot& last() { return slots_[filled_ - 1]; }
  const Slot& last() const { return slots_[filled_ - 1]; }
  void borrow(PyObject* value) { push(Py_NewRef(value)); }
  // An instruction may have run code of anybody's, here or in another thread, which changes any object.
  void ran_code() { ++code_ran_; }
  size_t code_ran() const { return code_ran_; }
  void push(PyObject* value) { slots_[filled_++].value = value; }

 private:
  c10::SmallVector<Slot, 64> slots_;
  size_t filled_ = 0, code_ran_ = 0;
};

// The instruction that these parts name, not of kind `kept`. slots: how many there are; one more where it fills one.
// arguments: how many there are. Raises ValueError, IndexError and TypeError for parts that make none.
Instruction instruction_of(const pybind11::tuple& parts, size_t& slots, size_t arguments);
// The same of kind `kept`.
Kept kept_of(const pybind11::tuple& parts, const pybind11::list& arguments);
Kind kind_of(const pybind11::tuple& parts);

// A condition on the value itself, which is of a kind that stays what it is.
inline bool is_of_value(Kind kind) { return kind == Kind::is || kind == Kind::equals; }

inline bool has_traits(const at::Tensor& tensor, const Traits& traits) {
  if (tensor.key_set().raw_repr() != traits.keys) {
    return false;
  }
  const Gradient gradient = gradient_of(tensor);
  return gradient.requires_grad == traits.requires_grad &&
         (!gradient.requires_grad || gradient.is_leaf == traits.is_leaf);
}

// Whether it holds, whatever is remembered; nothing if an error is set. made: the graph's arguments.
std::optional<bool> run(const Instruction& each, Slots& slots, PyObject* made);
// Whether it may have run code of anybody's, which a collection of garbage does too.
bool may_run_code(const Instruction& each, const Slots& slots);
// Whether what it has just found is for its object's class and attributes to say.
bool can_be_remembered(const Instruction& each, const Slots& slots);

}  // namespace airgraph::reading
