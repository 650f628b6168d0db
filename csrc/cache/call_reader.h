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

  // For Python's garbage collector.
  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  class Turn;

  static constexpr size_t kNoMemo = static_cast<size_t>(-1);

  bool are_kept_as_they_were() const;
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
  // Of those among the arguments; looked at one after the other.
  std::vector<reading::Kept> kept_;
  // Nothing is served any more.
  bool cleared_ = false;
};

}  // namespace airgraph
