// Pointwise kernels whose TensorIterator is built at capture and kept (tier 2): building it costs more than a small
// kernel. Only where all dtypes match: with promotion the iterator's casted temporaries are made once and go stale.
#pragma once

#include <ATen/TensorIterator.h>

#include <array>
#include <utility>

#include "../engine/step.h"

namespace airgraph::prepared {

template <size_t N>
using Inputs = std::array<at::Tensor, N>;

inline at::TensorIterator unary(at::Tensor& out, const Inputs<1>& in) {
  return at::TensorIterator::unary_op(out, in[0]);
}

inline at::TensorIterator binary(at::Tensor& out, const Inputs<2>& in) {
  return at::TensorIterator::binary_op(out, in[0], in[1]);
}

// `out` has the input's dimensions, of size 1 where they are reduced.
inline at::TensorIterator reduction(at::Tensor& out, const Inputs<1>& in) {
  return at::TensorIterator::reduce_op(out, in[0]);
}

// An iterator over `out` and N inputs that is built anew when one of them has moved (an output's memory is renewed
// while the caller holds the old).
template <size_t N>
class Operands {
 public:
  using Build = at::TensorIterator (*)(at::Tensor& out, const Inputs<N>& inputs);

  Operands(Build build, at::Tensor out, Inputs<N> inputs)
      : build_(build), out_(std::move(out)), inputs_(std::move(inputs)) {
    rebuild();
  }

  at::TensorIterator& iterator() {
    bool moved = out_.const_data_ptr() != out_address_;
    for (size_t i = 0; i < N; ++i) {
      moved = moved || inputs_[i].const_data_ptr() != addresses_[i];
    }
    if (moved) {
      rebuild();
    }
    return iterator_;
  }

 private:
  void rebuild() {
    iterator_ = build_(out_, inputs_);
    out_address_ = out_.const_data_ptr();
    for (size_t i = 0; i < N; ++i) {
      addresses_[i] = inputs_[i].const_data_ptr();
    }
  }

  Build build_;
  at::Tensor out_;
  Inputs<N> inputs_;
  const void* out_address_ = nullptr;
  std::array<const void*, N> addresses_{};
  at::TensorIterator iterator_;
};

// Runs a kernel; `number` is what the operator takes besides tensors, such as add's alpha.
using Kernel = void (*)(at::TensorIterator& operands, const at::Scalar& number);

template <size_t N>
struct Ctx final : Step {
  Operands<N> operands;
  at::Scalar number;
  Ctx(Operands<N> over, at::Scalar extra) : operands(std::move(over)), number(std::move(extra)) {}
};

template <Kernel Fn, size_t N>
void run(Step* step) {
  auto& ctx = *static_cast<Ctx<N>*>(step);
  Fn(ctx.operands.iterator(), ctx.number);
}

template <Kernel Fn, size_t N>
PreparedStep make(Operands<N> operands, at::Scalar number = {}) {
  return {&run<Fn, N>, std::make_unique<Ctx<N>>(std::move(operands), std::move(number)), Tier::prepared};
}

}  // namespace airgraph::prepared
