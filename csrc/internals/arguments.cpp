#include "arguments.h"

#include <torch/csrc/Export.h>

// As torch/csrc/jit/python/pybind_utils.h declares them, from which nothing else is needed: it takes a compiler as long
// as all of our own files that see Python. With a torch that has others the engine does not load, and says which.
// NOLINTBEGIN
namespace torch::jit {

TORCH_PYTHON_API c10::IValue toIValue(pybind11::handle obj, const c10::TypePtr& type, std::optional<int32_t> N);

class TORCH_PYTHON_API ToIValueAllowNumbersAsTensors {
  bool old_;

 public:
  ToIValueAllowNumbersAsTensors(bool enable);
  ~ToIValueAllowNumbersAsTensors();
};

}  // namespace torch::jit
// NOLINTEND

namespace airgraph {
namespace {

template <class... Text>
[[noreturn]] void refuse(const c10::FunctionSchema& schema, const Text&... text) {
  TORCH_CHECK(false, "a call does not fit its schema: ", c10::str(text...), ": ", schema);
}

c10::IValue value_of(const c10::FunctionSchema& schema, const c10::Argument& argument, pybind11::handle given) {
  try {
    return torch::jit::toIValue(given, argument.real_type(), argument.N());
  } catch (const pybind11::cast_error&) {
    refuse(schema, argument.name(), " is of type ", Py_TYPE(given.ptr())->tp_name, ", not ", *argument.type());
  }
}

}  // namespace

torch::jit::Stack arguments_of(const c10::FunctionSchema& schema, const pybind11::tuple& args,
                               const pybind11::dict& kwargs) {
  const torch::jit::ToIValueAllowNumbersAsTensors wrap_numbers(true);
  const auto& asked = schema.arguments();
  torch::jit::Stack stack;
  stack.reserve(asked.size());
  size_t taken = 0;
  for (size_t i = 0; i < asked.size(); ++i) {
    const auto& argument = asked[i];
    if (i < args.size() && !argument.kwarg_only()) {
      stack.push_back(value_of(schema, argument, args[i]));
      ++taken;
    } else if (kwargs.contains(argument.name().c_str())) {
      stack.push_back(value_of(schema, argument, kwargs[argument.name().c_str()]));
      ++taken;
    } else if (argument.default_value()) {
      stack.push_back(*argument.default_value());
    } else {
      refuse(schema, argument.name(), " is missing");
    }
  }
  if (taken != args.size() + kwargs.size()) {
    refuse(schema, "it takes ", taken, " of ", args.size(), " arguments by position and ",
           std::string(pybind11::repr(pybind11::list(kwargs))), " by name");
  }
  return stack;
}

}  // namespace airgraph
