// Turns a kernel, a lambda over at::Tensor without captures, into the two C functions of an aclnn operator.
//
//   SIMCANN_OPERATOR(4, aclnnAdd, [](const Tensor& self, const Tensor& other, const Scalar& alpha, Tensor& out) {
//     store(out, at::add(self, other, alpha));
//   })
//
// defines aclnnAddGetWorkspaceSize and aclnnAdd. The C signature follows from the kernel's parameter types:
//
//   kernel                       C                         absent (nullptr) becomes
//   const Tensor&                const aclTensor*          an undefined tensor
//   Tensor&                      aclTensor*                an undefined tensor
//   Resizable&                   aclTensor*                -
//   const TensorList&            const aclTensorList*      an empty list
//   const Scalar&                const aclScalar*          0
//   const OptionalScalar&        const aclScalar*          nullopt
//   const Scalars&               const aclScalarList*      an empty list
//   const Ints&, const Bools&    const aclIntArray* ...    an empty list
//   ScalarType                   aclDataType               -
//   const Text&                  const char*               an empty text
//   bool, int, int8_t, int64_t, uint64_t, float, double    themselves
//
// The number is that of the parameters. Everything is copied at the first call, since torch_npu destroys its
// descriptors before the kernel runs.
#pragma once

#include <ATen/ATen.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "../src/device.h"
#include "arity.h"
#include "descriptor.h"
#include "executor.h"
#include "status.h"

namespace simcann::opapi {

using at::Scalar;
using at::ScalarType;
using at::Tensor;
using OptionalScalar = std::optional<Scalar>;
using Scalars = std::vector<Scalar>;
using TensorList = std::vector<Tensor>;
using Ints = std::vector<int64_t>;
using Bools = std::vector<uint8_t>;
using Text = std::string;

// An output whose size only the kernel knows. Its operator waits for the kernel, so that the size can be read.
struct Resizable {
  Tensor data;
  std::shared_ptr<TensorRecord> record;

  // Keep the first rows of `data` and tell the caller their shape.
  void store(const Tensor& result);
};

// Copy a result into an output, converting its type; the shapes must agree.
void store(const Tensor& out, const Tensor& result);

// Absent arguments arrive undefined; torch wants nullopt.
inline std::optional<Tensor> optional(const Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

// An operator's name and how often it was called.
class Operator {
 public:
  explicit Operator(const char* name);

  const char* name() const { return name_; }
  uint64_t calls() const { return calls_.load(std::memory_order_relaxed); }
  void count_call() { calls_.fetch_add(1, std::memory_order_relaxed); }

 private:
  const char* name_;
  std::atomic<uint64_t> calls_ = 0;
};

// How a parameter of a kernel crosses the C boundary, is kept until the kernel runs, and is given to the kernel.
template <typename T>
struct Parameter {
  using C = T;
  using Saved = T;
  static Saved save(C value) { return value; }
  static T load(Saved value) { return value; }
};

Tensor view_of(const TensorRecord& record);

template <>
struct Parameter<const Tensor&> {
  using C = const aclTensor*;
  using Saved = std::shared_ptr<TensorRecord>;
  static Saved save(C tensor) { return tensor == nullptr ? nullptr : tensor->record; }
  static Tensor load(const Saved& record) { return record == nullptr ? Tensor() : view_of(*record); }
};

template <>
struct Parameter<Tensor&> : Parameter<const Tensor&> {
  using C = aclTensor*;
};

template <>
struct Parameter<Resizable&> : Parameter<const Tensor&> {
  using C = aclTensor*;
  static Resizable load(const Saved& record) { return {view_of(*record), record}; }
};

template <>
struct Parameter<const TensorList&> {
  using C = const aclTensorList*;
  using Saved = std::vector<std::shared_ptr<TensorRecord>>;
  static Saved save(C list);
  static TensorList load(const Saved& records);
};

template <>
struct Parameter<const OptionalScalar&> {
  using C = const aclScalar*;
  using Saved = OptionalScalar;
  static Saved save(C scalar) { return scalar == nullptr ? OptionalScalar() : OptionalScalar(scalar->value); }
  static OptionalScalar load(const Saved& value) { return value; }
};

template <>
struct Parameter<const Scalar&> : Parameter<const OptionalScalar&> {
  static Scalar load(const Saved& value) { return value.value_or(0); }
};

template <>
struct Parameter<const Scalars&> {
  using C = const aclScalarList*;
  using Saved = Scalars;
  static Saved save(C list);
  static Scalars load(const Saved& values) { return values; }
};

template <typename Array, typename Values>
struct ArrayParameter {
  using C = const Array*;
  using Saved = Values;
  static Saved save(C array) { return array == nullptr ? Values() : array->values; }
  static Values load(const Saved& values) { return values; }
};

template <>
struct Parameter<const Ints&> : ArrayParameter<aclIntArray, Ints> {};

template <>
struct Parameter<const Bools&> : ArrayParameter<aclBoolArray, Bools> {};

template <>
struct Parameter<ScalarType> {
  using C = int;
  using Saved = ScalarType;
  static Saved save(C code) { return scalar_type(code).value_or(ScalarType::Undefined); }
  static ScalarType load(Saved type) { return type; }
};

template <>
struct Parameter<const Text&> {
  using C = const char*;
  using Saved = Text;
  static Saved save(C text) { return text == nullptr ? Text() : Text(text); }
  static Text load(const Saved& text) { return text; }
};

// Of a kernel's type alone: operators of the same parameters share all that is made of it.
template <typename Kernel>
struct Signature;

template <typename... P>
struct Signature<void (*)(P...)> {
  static constexpr size_t ARITY = sizeof...(P);
  static constexpr bool WAITS = (std::is_same_v<P, Resizable&> || ...);
  template <size_t I>
  using C = typename Parameter<std::tuple_element_t<I, std::tuple<P...>>>::C;

  static std::function<void()> bind(void (*kernel)(P...), typename Parameter<P>::C... values) {
    return [kernel, saved = std::tuple<typename Parameter<P>::Saved...>(Parameter<P>::save(values)...)] {
      std::apply(
          [&](const auto&... value) {
            auto arguments = std::make_tuple(Parameter<P>::load(value)...);
            std::apply([&](auto&... argument) { kernel(argument...); }, arguments);
          },
          saved);
    };
  }
};

template <auto KERNEL>
using SignatureOf = Signature<std::remove_const_t<decltype(KERNEL)>>;

struct PreparedCall : aclOpExecutor {
  PreparedCall(Operator& op, std::function<void()> kernel, bool waits)
      : op(op), kernel(std::move(kernel)), waits(waits) {}

  Operator& op;
  std::function<void()> kernel;
  bool waits;
};

// The second call of an operator: queue the prepared kernel and free the executor.
Status execute(aclOpExecutor* executor, void* stream);

// The first call of an operator. Kernels need no memory but their own.
template <typename... P>
Status prepare(Operator& op, void (*kernel)(P...), uint64_t* workspace_size, aclOpExecutor** executor,
               typename Parameter<P>::C... values) {
  using Signed = Signature<void (*)(P...)>;
  *workspace_size = 0;
  const bool enabled = kernels_enabled();
  *executor = new PreparedCall(op, enabled ? Signed::bind(kernel, values...) : std::function<void()>(),
                               enabled && Signed::WAITS);
  return SUCCESS;
}

}  // namespace simcann::opapi

#define SIMCANN_OPERATOR(arity, name, ...)                                                                       \
  namespace {                                                                                                    \
  constexpr auto name##_kernel = +__VA_ARGS__;                                                                   \
  static_assert(simcann::opapi::SignatureOf<name##_kernel>::ARITY == arity);                                     \
  simcann::opapi::Operator name##_operator{#name};                                                               \
  }                                                                                                              \
  extern "C" SIMCANN_EXPORT simcann::Status name##GetWorkspaceSize(                                              \
      SIMCANN_PARAMETERS_##arity(name), uint64_t* workspace_size, aclOpExecutor** executor) {                    \
    return simcann::opapi::prepare(name##_operator, name##_kernel, workspace_size, executor,                     \
                                   SIMCANN_ARGUMENTS_##arity);                                                   \
  }                                                                                                              \
  extern "C" SIMCANN_EXPORT simcann::Status name(void*, uint64_t, aclOpExecutor* executor, void* stream) {       \
    return simcann::opapi::execute(executor, stream);                                                            \
  }

// Defines <name>GetMaxWorkspaceSize too, for operators whose launch in a captured graph is updated later: torch_npu
// then allocates the workspace before the capture. It must not be empty.
#define SIMCANN_MAX_WORKSPACE(arity, name)                                                                       \
  extern "C" SIMCANN_EXPORT simcann::Status name##GetMaxWorkspaceSize(                                           \
      SIMCANN_PARAMETERS_##arity(name), uint64_t* workspace_size, aclOpExecutor** executor) {                    \
    const auto status = name##GetWorkspaceSize(SIMCANN_ARGUMENTS_##arity, workspace_size, executor);             \
    *workspace_size = 1;                                                                                         \
    return status;                                                                                               \
  }
