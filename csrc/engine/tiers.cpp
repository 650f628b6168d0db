#include "tiers.h"

#include <ATen/ops/alias.h>

#include "../internals/kernels.h"
#include "../kernels/own/products.h"
#include "../kernels/own/table.h"
#include "../kernels/table.h"

namespace airgraph {
namespace {

using torch::jit::Stack;

// Refills `scratch` from `args` and calls; the scratch keeps its capacity, so nothing is allocated.
struct BoxedCall {
  c10::OperatorHandle op;
  std::optional<c10::SafeKernelFunction> kernel;  // none: through the dispatcher
  Stack args;
  Stack scratch;

  BoxedCall(const c10::OperatorHandle& handle, Stack stack, bool redispatch) : op(handle), args(std::move(stack)) {
    if (!redispatch) {
      kernel.emplace(op.getComputedKernelForDispatchKey(c10::DispatchKey::CPU));
    }
    scratch.reserve(args.size() + op.schema().returns().size());
  }

  // The results are left in `scratch`.
  void call() {
    scratch.assign(args.begin(), args.end());
    if (kernel) {
      kernel->callBoxed(op, c10::DispatchKeySet(c10::DispatchKey::CPU), &scratch);
    } else {
      op.callBoxed(scratch);
    }
  }
};

struct BoxedCtx final : Step {
  BoxedCall boxed;
  explicit BoxedCtx(BoxedCall call) : boxed(std::move(call)) {}
};

void run_boxed(Step* step) {
  auto& ctx = *static_cast<BoxedCtx*>(step);
  ctx.boxed.call();
  ctx.boxed.scratch.clear();
}

// The last arguments are aliases of `slots`, which stay as recorded whatever a kernel does to its `out`.
struct OutCtx final : Step {
  BoxedCall boxed;
  std::vector<at::Tensor> slots;
  OutCtx(BoxedCall call, std::vector<at::Tensor> outs) : boxed(std::move(call)), slots(std::move(outs)) {}
};

void run_out(Step* step) {
  auto& ctx = *static_cast<OutCtx*>(step);
  ctx.boxed.call();
  ctx.boxed.scratch.clear();
  auto& args = ctx.boxed.args;
  size_t position = args.size() - ctx.slots.size();
  for (auto& slot : ctx.slots) {
    const at::Tensor& out = args[position].toTensor();
    // Some kernels choose other strides for `out`, or leave a lazy conjugation on it.
    if (out.strides() != slot.strides() || out.is_conj() != slot.is_conj() || out.is_neg() != slot.is_neg()) {
      slot.copy_(out.clone());
      args[position] = at::alias(slot);
    }
    ++position;
  }
}

struct FunctionalCtx final : Step {
  BoxedCall boxed;
  std::vector<at::Tensor> outs;
  std::vector<bool> fresh;
  std::vector<bool> needed;
  FunctionalCtx(BoxedCall call, std::vector<at::Tensor> slots, std::vector<bool> fresh_results,
                std::vector<bool> needed_slots)
      : boxed(std::move(call)),
        outs(std::move(slots)),
        fresh(std::move(fresh_results)),
        needed(std::move(needed_slots)) {}
};

void copy_into(at::Tensor& slot, const at::Tensor& result) {
  TORCH_CHECK(slot.sizes() == result.sizes(), "the result has shape ", result.sizes(),
              ", its slot was captured with shape ", slot.sizes());
  if (result.is_conj() || result.is_neg() || slot.is_conj() || slot.is_neg()) {
    slot.copy_(result);
  } else {
    native::copy_(slot, result, /*non_blocking=*/false);
  }
}

void run_functional(Step* step) {
  auto& ctx = *static_cast<FunctionalCtx*>(step);
  ctx.boxed.call();
  size_t slot = 0;
  for (size_t i = 0; i < ctx.fresh.size(); ++i) {
    if (!ctx.fresh[i]) {
      continue;
    }
    const auto& result = ctx.boxed.scratch[i];
    if (result.isTensor()) {
      if (ctx.needed.at(slot) && result.toTensor().defined()) {
        copy_into(ctx.outs.at(slot), result.toTensor());
      }
      ++slot;
    } else if (result.isTensorList()) {
      for (const at::Tensor& item : result.toTensorVector()) {
        if (ctx.needed.at(slot)) {
          copy_into(ctx.outs.at(slot), item);
        }
        ++slot;
      }
    }
  }
  ctx.boxed.scratch.clear();
}

// Calls an operator whose last arguments are `slots`.
PreparedStep prepare_out(const c10::OperatorHandle& op, Stack args, std::vector<at::Tensor> slots, bool redispatch) {
  args.resize(args.size() - slots.size());
  for (auto& slot : slots) {
    args.emplace_back(at::alias(slot));
  }
  auto ctx = std::make_unique<OutCtx>(BoxedCall(op, std::move(args), redispatch), std::move(slots));
  return {&run_out, std::move(ctx), Tier::boxed};
}

// The tensors that the caller passed as `out=`.
std::vector<at::Tensor> given_outs(const RecordedCall& call) {
  std::vector<at::Tensor> found;
  const auto& arguments = call.op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].is_out() && call.args[i].isTensor()) {
      found.push_back(call.args[i].toTensor());
    }
  }
  return found;
}

}  // namespace

PreparedStep prepare(RecordedCall call) {
  const auto& name = call.op.operator_name();
  if (!call.redispatch) {
    if (call.packed != nullptr) {
      if (auto made = make_packed_product(name.name, call.args, call.outs, call.packed)) {
        return std::move(*made);
      }
    }
    if (const Maker make = call.exact ? nullptr : find_own_kernel(name.name, name.overload_name)) {
      if (auto made = make(call.args, call.outs)) {
        return std::move(*made);
      }
    }
    if (const Maker make = find_kernel(name.name, name.overload_name)) {
      if (auto made = make(call.args, call.outs)) {
        return std::move(*made);
      }
    }
    if (call.out_variant && !call.outs.empty()) {
      Stack args = std::move(call.args);
      args.resize(args.size() + call.outs.size());
      return prepare_out(*call.out_variant, std::move(args), std::move(call.outs), false);
    }
  }
  if (auto outs = given_outs(call); call.outs.empty() && !outs.empty()) {
    return prepare_out(call.op, std::move(call.args), std::move(outs), call.redispatch);
  }
  BoxedCall boxed(call.op, std::move(call.args), call.redispatch);
  if (call.outs.empty()) {
    return {&run_boxed, std::make_unique<BoxedCtx>(std::move(boxed)), Tier::boxed};
  }
  return {&run_functional,
          std::make_unique<FunctionalCtx>(std::move(boxed), std::move(call.outs), std::move(call.fresh),
                                          std::move(call.needed)),
          Tier::functional};
}

}  // namespace airgraph
