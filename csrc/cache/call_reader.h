// Collects a cached graph's arguments from those of a call, and checks on the way what tracing took for granted.
#pragma once

#include <pybind11/pybind11.h>

#include <optional>
#include <vector>

#include "attribute_memo.h"
#include "reader_instruction.h"

namespace airgraph {

// One pass over a flat array of instructions. A value that was read once is kept in a slot; the first slots are the
// call's parameters. What only the class and the attributes of an object decide is remembered until they change, as of
// a KV cache that comes with every call.
class CallReader {
 public:
  // instructions: tuples of a name and its operands, see `reading::Kind`. arguments: those that do not come with the
  // call, None in the places of others.
  CallReader(size_t parameters, const pybind11::list& instructions, pybind11::list arguments);
  CallReader(const CallReader&) = delete;
  CallReader& operator=(const CallReader&) = delete;

  // The graph's arguments for these values of the parameters; None where a condition does not hold, or something is
  // missing. Needs the GIL.
  pybind11::object read(const pybind11::tuple& values);

  // The same in two halves. First, whether tensors that do not come with the call have the traits that they had.
  bool are_kept_as_they_were() const;
  // Then, whether the rest holds: fills in the arguments that come with the call. made: of `new_arguments`, or such a
  // list after another call.
  bool read_into(const pybind11::tuple& values, const pybind11::list& made);
  pybind11::list new_arguments() const;

  // Tensors that do not come with the call, which it keeps alive.
  const std::vector<reading::Kept>& kept() const { return kept_; }
  // Puts None for the arguments that come with the call.
  void forget_call(const pybind11::list& made) const;

  // For Python's garbage collector.
  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  class Turn;

  static constexpr size_t kNoMemo = static_cast<size_t>(-1);

  void plan_memory();
  // Looks whether what is asked of the value in a slot is known.
  void recall(size_t index, reading::Slots& slots);
  // Whether all instructions hold; nothing if an error is set.
  std::optional<bool> run_all(reading::Slots& slots, PyObject* made, bool remembers);

  size_t parameters_, slots_;
  std::vector<reading::Instruction> instructions_;
  // Of each slot that is asked for something to remember, by its number.
  std::vector<AttributeMemo> memos_;
  std::vector<size_t> memo_of_slot_;
  // A call that comes while another one is read, from code that this runs or from another thread, remembers nothing.
  bool is_reading_ = false;
  pybind11::list arguments_;
  // In which places of these the arguments lie that come with the call.
  std::vector<Py_ssize_t> of_call_;
  // Of those among the arguments; looked at one after the other.
  std::vector<reading::Kept> kept_;
  // Nothing is served any more.
  bool cleared_ = false;
};

}  // namespace airgraph
