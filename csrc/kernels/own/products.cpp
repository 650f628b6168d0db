// Which calls of mm, addmm, bmm, baddbmm and mixed_mm are served, and by which products.
#include "products.h"

#include "block_step.h"
#include "row_step.h"
#include "table.h"

namespace airgraph {
namespace {

// What a product is of. bias: may be undefined.
struct Operands {
  at::Tensor left, right, bias;

  bool has_many_rows() const { return left.dim() >= 2 && left.size(-2) > kMostProductRows; }
};

std::optional<PreparedStep> make(const Operands& of, const at::Tensor& out) {
  return of.has_many_rows() ? make_block_products(of.left, of.right, of.bias, out, nullptr)
                            : make_row_products(of.left, of.right, {}, of.bias, out);
}

bool is_one(const c10::IValue& number) {
  const auto value = number.toScalar();
  return !value.isComplex() && value.toDouble() == 1;
}

// Of mm and bmm.
Operands of_product(const torch::jit::Stack& args) { return {args[0].toTensor(), args[1].toTensor(), {}}; }

// Of addmm and baddbmm; nullopt where they scale something.
std::optional<Operands> of_sum(const torch::jit::Stack& args) {
  if (!is_one(args[3]) || !is_one(args[4])) {
    return std::nullopt;
  }
  return Operands{args[1].toTensor(), args[2].toTensor(), args[0].toTensor()};
}

std::optional<PreparedStep> make_product(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  return outs.size() == 1 ? make(of_product(args), outs[0]) : std::nullopt;
}

std::optional<PreparedStep> make_sum(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  const auto operands = of_sum(args);
  return operands && outs.size() == 1 ? make(*operands, outs[0]) : std::nullopt;
}

std::optional<PreparedStep> make_mixed(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  const auto scale = args[2].toOptional<at::Tensor>().value_or(at::Tensor());
  return make_row_products(args[0].toTensor(), args[1].toTensor(), scale, {}, outs[0]);
}

const KernelRow product_rows[] = {
    {"aten::mm", "", &make_product},  {"aten::bmm", "", &make_product},        {"aten::addmm", "", &make_sum},
    {"aten::baddbmm", "", &make_sum}, {"airgraph::mixed_mm", "", &make_mixed},
};

}  // namespace

std::optional<PreparedStep> make_packed_product(const std::string& name, const torch::jit::Stack& args,
                                                c10::ArrayRef<at::Tensor> outs, std::shared_ptr<PackedWeight> packed) {
  const bool is_sum = name == "aten::addmm";
  if ((name != "aten::mm" && !is_sum) || outs.size() != 1) {
    return std::nullopt;
  }
  const auto operands = is_sum ? of_sum(args) : of_product(args);
  if (!operands || !operands->has_many_rows()) {
    return std::nullopt;
  }
  return make_block_products(operands->left, operands->right, operands->bias, outs[0], std::move(packed));
}

c10::ArrayRef<KernelRow> own_products() { return product_rows; }

}  // namespace airgraph
