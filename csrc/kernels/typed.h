// Turns a typed ATen out-variant, `Tensor& f(Tensor& out, args...)`, into a table row.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Scalar.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "../engine/step.h"

namespace airgraph::typed {

// Held<A>: how an argument of C++ type A is kept between replays, made once from its IValue.
template <class A>
struct Held;

template <>
struct Held<const at::Tensor&> {
  at::Tensor value;
  explicit Held(const c10::IValue& v) : value(v.toTensor()) {}
  const at::Tensor& get() const { return value; }
};

template <>
struct Held<const std::optional<at::Tensor>&> {
  std::optional<at::Tensor> value;
  explicit Held(const c10::IValue& v) : value(v.toOptional<at::Tensor>()) {}
  const std::optional<at::Tensor>& get() const { return value; }
};

template <>
struct Held<const at::Scalar&> {
  at::Scalar value;
  explicit Held(const c10::IValue& v) : value(v.toScalar()) {}
  const at::Scalar& get() const { return value; }
};

template <>
struct Held<const std::optional<at::Scalar>&> {
  std::optional<at::Scalar> value;
  explicit Held(const c10::IValue& v) : value(v.toOptional<at::Scalar>()) {}
  const std::optional<at::Scalar>& get() const { return value; }
};

template <>
struct Held<at::IntArrayRef> {
  std::vector<int64_t> value;
  explicit Held(const c10::IValue& v) : value(v.toIntVector()) {}
  at::IntArrayRef get() const { return value; }
};

template <>
struct Held<at::OptionalIntArrayRef> {
  std::optional<std::vector<int64_t>> value;
  explicit Held(const c10::IValue& v) {
    if (!v.isNone()) {
      value = v.toIntVector();
    }
  }
  at::OptionalIntArrayRef get() const {
    return value ? at::OptionalIntArrayRef(at::IntArrayRef(*value)) : at::OptionalIntArrayRef();
  }
};

template <>
struct Held<std::optional<at::ScalarType>> {
  std::optional<at::ScalarType> value;
  explicit Held(const c10::IValue& v) : value(v.toOptional<at::ScalarType>()) {}
  std::optional<at::ScalarType> get() const { return value; }
};

template <>
struct Held<const at::ITensorListRef&> {
  std::vector<at::Tensor> value;
  at::ITensorListRef ref;
  explicit Held(const c10::IValue& v) : value(v.toTensorVector()), ref(value) {}
  Held(Held&& other) noexcept : value(std::move(other.value)), ref(value) {}
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  Held& operator=(Held&&) = delete;
  ~Held() = default;
  const at::ITensorListRef& get() const { return ref; }
};

template <>
struct Held<const c10::List<std::optional<at::Tensor>>&> {
  c10::List<std::optional<at::Tensor>> value;
  explicit Held(const c10::IValue& v) : value(v.toOptionalTensorList()) {}
  const c10::List<std::optional<at::Tensor>>& get() const { return value; }
};

template <>
struct Held<std::string_view> {
  std::string value;
  explicit Held(const c10::IValue& v) : value(v.toStringRef()) {}
  std::string_view get() const { return value; }
};

// int64_t, bool, double and optionals of them.
template <class A>
struct Held {
  A value;
  explicit Held(const c10::IValue& v) : value(v.to<A>()) {}
  A get() const { return value; }
};

template <class... A>
struct Arguments {
  std::tuple<Held<A>...> held;

  explicit Arguments(const torch::jit::Stack& stack) : Arguments(stack, std::index_sequence_for<A...>{}) {}

  template <size_t... I>
  Arguments(const torch::jit::Stack& stack, std::index_sequence<I...>) : held(Held<A>(stack[I])...) {}
};

template <auto Fn>
struct Call;

// Tensor& f(Tensor& out, args...)
template <class... A, at::Tensor& (*Fn)(at::Tensor&, A...)>
struct Call<Fn> {
  struct Ctx final : Step {
    at::Tensor out;
    Arguments<A...> args;
    Ctx(const torch::jit::Stack& stack, c10::ArrayRef<at::Tensor> outs) : out(outs[0]), args(stack) {}
  };

  static void run(Step* step) {
    auto& ctx = *static_cast<Ctx*>(step);
    std::apply([&ctx](auto&... held) { Fn(ctx.out, held.get()...); }, ctx.args.held);
  }

  static std::optional<PreparedStep> make(const torch::jit::Stack& stack, c10::ArrayRef<at::Tensor> outs) {
    if (outs.size() != 1 || stack.size() != sizeof...(A)) {
      return std::nullopt;
    }
    return PreparedStep{&run, std::make_unique<Ctx>(stack, outs)};
  }
};

// tuple<Tensor&, Tensor&> f(Tensor& out0, Tensor& out1, args...)
template <class... A, std::tuple<at::Tensor&, at::Tensor&> (*Fn)(at::Tensor&, at::Tensor&, A...)>
struct Call<Fn> {
  struct Ctx final : Step {
    at::Tensor out0;
    at::Tensor out1;
    Arguments<A...> args;
    Ctx(const torch::jit::Stack& stack, c10::ArrayRef<at::Tensor> outs) : out0(outs[0]), out1(outs[1]), args(stack) {}
  };

  static void run(Step* step) {
    auto& ctx = *static_cast<Ctx*>(step);
    std::apply([&ctx](auto&... held) { Fn(ctx.out0, ctx.out1, held.get()...); }, ctx.args.held);
  }

  static std::optional<PreparedStep> make(const torch::jit::Stack& stack, c10::ArrayRef<at::Tensor> outs) {
    if (outs.size() != 2 || stack.size() != sizeof...(A)) {
      return std::nullopt;
    }
    return PreparedStep{&run, std::make_unique<Ctx>(stack, outs)};
  }
};

// The schema's argument types, short enough for a table.
using T = const at::Tensor&;
using OT = const std::optional<at::Tensor>&;
using S = const at::Scalar&;
using OS = const std::optional<at::Scalar>&;
using I = int64_t;
using B = bool;
using D = double;
using Ints = at::IntArrayRef;
using OInts = at::OptionalIntArrayRef;
using Dtype = std::optional<at::ScalarType>;
using Str = std::string_view;
using Tensors = const at::ITensorListRef&;
using Indices = const c10::List<std::optional<at::Tensor>>&;

}  // namespace airgraph::typed

// AIRGRAPH_OUT(add, "Tensor", T, T, S): serve aten::add.Tensor by at::cpu::add_out(out, T, T, S).
#define AIRGRAPH_OUT(op, overload, ...)                                                                \
  KernelRow {                                                                                          \
    "aten::" #op, overload,                                                                            \
        &typed::Call<static_cast<at::Tensor& (*)(at::Tensor&, __VA_ARGS__)>(&at::cpu::op##_out)>::make \
  }

#define AIRGRAPH_OUT2(op, overload, ...)                                                                           \
  KernelRow {                                                                                                      \
    "aten::" #op, overload,                                                                                        \
        &typed::Call<static_cast<std::tuple<at::Tensor&, at::Tensor&> (*)(at::Tensor&, at::Tensor&, __VA_ARGS__)>( \
            &at::cpu::op##_out)>::make                                                                             \
  }

// The same with a function of ours instead of at::cpu's.
#define AIRGRAPH_FN(op, overload, fn) \
  KernelRow { "aten::" #op, overload, &typed::Call<&fn>::make }
