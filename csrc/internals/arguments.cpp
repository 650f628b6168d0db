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

c10::IValue value_of(const c10::FunctionSchema& schema, const c10::Argument& argument, pybind11::handle given) {
  try {
    return torch::jit::toIValue(given, argument.real_type(), argument.N());
  } catch (const pybind11::cast_error&) {
    TORCH_CHECK(false, schema.name(), "() wants ", argument.type()->repr_str(), " as '", argument.name(), "', not ",
                std::string(pybind11::repr(given)), ". Declaration: ", schema);
  }
}

}  // namespace

torch::jit::Stack arguments_of(const c10::FunctionSchema& schema, const pybind11::tuple& args,
                               const pybind11::dict& kwargs) {
  const torch::jit::ToIValueAllowNumbersAsTensors wrap_numbers(true);
  const auto& asked = schema.arguments();
  TORCH_CHECK(args.size() <= asked.size(), schema.name(), "() takes at most ", asked.size(), " arguments, not ",
              args.size(), ". Declaration: ", schema);
  torch::jit::Stack stack;
  stack.reserve(asked.size());
  size_t from_kwargs = 0;
  for (size_t i = 0; i < asked.size(); ++i) {
    const auto& argument = asked[i];
    if (i < args.size()) {
      stack.push_back(value_of(schema, argument, args[i]));
    } else if (kwargs.contains(argument.name().c_str())) {
      stack.push_back(value_of(schema, argument, kwargs[argument.name().c_str()]));
      ++from_kwargs;
    } else {
      TORCH_CHECK(argument.default_value().has_value(), schema.name(), "() misses a value for '", argument.name(),
                  "'. Declaration: ", schema);
      stack.push_back(*argument.default_value());
    }
  }
  TORCH_CHECK(from_kwargs == kwargs.size(), schema.name(), "() does not take all of ",
              std::string(pybind11::repr(kwargs)), ". Declaration: ", schema);
  return stack;
}

}  // namespace airgraph
