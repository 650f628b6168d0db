// One prepared kernel call, and the flat entry a tape replays.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/util/ArrayRef.h>

#include <memory>
#include <optional>

namespace airgraph {

// Owns whatever a kernel needs at replay: tensors over fixed addresses, scalars, lists.
struct Step {
  Step() = default;
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
  virtual ~Step() = default;
  // What a replay reads beside the step itself, in one piece.
  virtual c10::ArrayRef<char> list() const { return {}; }
};

// A step whose function also runs those of some steps after it, as one loop that threads share: the fewer loops, the
// less often they wait for one another.
struct SharedStep : Step {
  // Whether it runs `next` from now on: the step that follows it and those that it runs already.
  virtual bool take(Step& next) = 0;
  // Whether threads share the loop of it and of what it took.
  virtual bool has_parts_together() const = 0;
  // From now on it runs itself alone.
  virtual void let_go() = 0;
};

using StepFn = void (*)(Step*);

// What the replay loop walks over. `ctx` is owned by the tape.
struct Entry {
  StepFn fn;
  Step* ctx;
};

// How a call is served; see docs/internals.md.
enum class Tier {
  own,        // a kernel of ours, the same value by other roundings
  prepared,   // the kernel's inner loop, its iterator or blocks worked out at capture
  typed,      // the kernel's typed out-variant, called directly
  boxed,      // a boxed out-variant or in-place operator with a prebuilt stack
  functional  // the functional operator, its result copied into the slot
};

const char* name_of(Tier tier);

struct PreparedStep {
  StepFn fn;
  std::unique_ptr<Step> ctx;
  Tier tier = Tier::typed;
  bool has_parts = false;   // that several threads may share
  bool runs_atens = false;  // one of ours that runs a loop of ATen's
};

// Builds a call of one operator from its schema-ordered arguments and its output slots;
// nullopt where this kernel does not serve these arguments.
using Maker = std::optional<PreparedStep> (*)(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs);

struct KernelRow {
  const char* name;
  const char* overload;
  Maker make;
};

}  // namespace airgraph
