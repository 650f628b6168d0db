#include "aten_threads.h"

#include <algorithm>
#include <string_view>

#include "tape.h"

namespace airgraph {
namespace {

// So many numbers or products are worth a second thread to them.
constexpr int64_t kWorthDividing = int64_t{1} << 15;
// They divide rows, however short, where there are several.
constexpr int64_t kWorthDividingRows = 4096;
// They divide functions of MKL's, such as exp, from here on.
constexpr int64_t kUndivided = 2048;

int64_t numbers_in(const std::vector<at::Tensor>& tensors) {
  int64_t most = 0;
  for (const auto& each : tensors) {
    most = std::max(most, each.numel());
  }
  return most;
}

int64_t numbers_given(const torch::jit::Stack& args) {
  int64_t most = 0;
  for (const auto& arg : args) {
    if (arg.isTensor()) {
      most = std::max(most, arg.toTensor().numel());
    } else if (arg.isTensorList()) {
      most = std::max(most, numbers_in(arg.toTensorVector()));
    }
  }
  return most;
}

// Columns of the first matrix that is multiplied, of which each number of the result has a sum. 0: it is no product.
int64_t terms_of(std::string_view name, const torch::jit::Stack& args) {
  const bool has_bias = name == "aten::addmm" || name == "aten::baddbmm";
  if (!has_bias && name != "aten::mm" && name != "aten::bmm") {
    return 0;
  }
  return args[has_bias ? 1 : 0].toTensor().size(-1);
}

}  // namespace

bool aten_divides(const RecordedCall& call) {
  const std::string_view name = call.op.operator_name().name;
  const int64_t numbers = numbers_in(call.outs);
  if (const int64_t terms = terms_of(name, call.args); terms != 0) {
    return numbers * terms > kWorthDividing;
  }
  if (name == "aten::_scaled_dot_product_flash_attention_for_cpu" || name == "aten::native_layer_norm" ||
      name == "aten::_softmax" || name == "aten::_log_softmax") {
    return numbers > kWorthDividingRows;
  }
  return numbers > kWorthDividing;
}

bool is_undivided_loop(const RecordedCall& call) {
  const bool is_product = terms_of(call.op.operator_name().name, call.args) != 0;
  return !is_product && std::max(numbers_in(call.outs), numbers_given(call.args)) <= kUndivided;
}

}  // namespace airgraph
