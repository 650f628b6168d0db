// Pointwise operators, copies and means of few numbers.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "../../internals/tensors.h"
#include "elements_of.h"
#include "overlaps.h"
#include "row_ops.h"
#include "table.h"

namespace airgraph {
namespace {

using own::Element;
using own::element_of;
using own::RowCall;
using own::RowOp;
using own::Second;

// From so many numbers on, ATen shares a kernel among threads.
constexpr int64_t kMostNumbers = int64_t{1} << 15;

// More is worth threads here too, which this has not.
constexpr int64_t kMostSearched = int64_t{1} << 20;

// A tensor seen as rows of elements: out, a, b in this order, with a stride of 0 where an operand is broadcast.
struct Grid {
  int64_t rows = 1, count = 1;
  std::array<int64_t, 3> row_strides{}, steps{};  // in elements
};

// Nullopt where more than two loops would be needed.
std::optional<Grid> grid_of(at::IntArrayRef sizes, const std::array<at::IntArrayRef, 3>& strides) {
  Grid grid;
  int found = 0;  // loops
  for (int64_t dim = static_cast<int64_t>(sizes.size()) - 1; dim >= 0; --dim) {
    const int64_t size = sizes[dim];
    if (size == 1) {
      continue;
    }
    auto& held = found <= 1 ? grid.steps : grid.row_strides;
    auto& count = found <= 1 ? grid.count : grid.rows;
    bool goes_on = found > 0;
    for (size_t i = 0; i < strides.size(); ++i) {
      goes_on = goes_on && strides[i][dim] == held[i] * count;
    }
    if (goes_on) {
      count *= size;
      continue;
    }
    if (found == 2) {
      return std::nullopt;
    }
    auto& next = found == 0 ? grid.steps : grid.row_strides;
    (found == 0 ? grid.count : grid.rows) = size;
    for (size_t i = 0; i < strides.size(); ++i) {
      next[i] = strides[i][dim];
    }
    ++found;
  }
  if (found == 0) {
    grid.steps = {1, 1, 1};
  }
  return grid;
}

struct RowCtx final : Step {
  own::RowOpFn fn;
  RowCall call;
  at::Tensor out, a, b;  // b: may be undefined
};

void run_rows(Step* step) {
  auto& ctx = *static_cast<RowCtx*>(step);
  ctx.call.out = static_cast<char*>(ctx.out.mutable_data_ptr());
  ctx.call.a = static_cast<const char*>(ctx.a.const_data_ptr());
  ctx.call.b = ctx.b.defined() ? static_cast<const char*>(ctx.b.const_data_ptr()) : nullptr;
  ctx.fn(ctx.call);
}

PreparedStep step_of(own::RowOpFn fn, const Grid& grid, const at::Tensor& out, at::Tensor a, at::Tensor b,
                     float number) {
  auto ctx = std::make_unique<RowCtx>();
  const auto in_nbytes = static_cast<int64_t>(a.element_size());
  ctx->fn = fn;
  ctx->call = {nullptr,
               nullptr,
               nullptr,
               grid.rows,
               grid.count,
               grid.row_strides[0] * static_cast<int64_t>(out.element_size()),
               grid.row_strides[1] * in_nbytes,
               grid.row_strides[2] * in_nbytes,
               number};
  ctx->out = out;
  ctx->a = std::move(a);
  ctx->b = std::move(b);
  return PreparedStep{&run_rows, std::move(ctx), Tier::own};
}

// b: undefined for none, or where `number` is its value.
std::optional<PreparedStep> make(RowOp op, const at::Tensor& out, at::Tensor a, at::Tensor b,
                                 std::optional<float> number = std::nullopt) {
  if (!own::holds_floats(out) || !own::holds_floats(a) || (b.defined() && !own::holds_floats(b)) || out.numel() == 0 ||
      out.numel() > kMostNumbers || (b.defined() && b.scalar_type() != a.scalar_type()) ||
      own::overlaps_otherwise(out, a) || own::overlaps_otherwise(out, b)) {
    return std::nullopt;
  }
  const auto sizes = out.sizes();
  const std::vector<int64_t> none(sizes.size(), 0);
  const auto wide_a = a.expand(sizes);
  const auto wide_b = b.defined() ? b.expand(sizes) : at::Tensor();
  auto grid = grid_of(sizes, {out.strides(), wide_a.strides(), b.defined() ? wide_b.strides() : none});
  if (!grid) {
    return std::nullopt;
  }
  if ((op == RowOp::add || op == RowOp::mul) && b.defined() && grid->steps[1] == 0 && grid->steps[2] == 1) {
    std::swap(a, b);
    std::swap(grid->steps[1], grid->steps[2]);
    std::swap(grid->row_strides[1], grid->row_strides[2]);
  }
  if (grid->steps[0] != 1 || grid->steps[1] != 1 || (b.defined() && grid->steps[2] != 0 && grid->steps[2] != 1)) {
    return std::nullopt;
  }
  auto second = number ? Second::number : Second::none;
  if (b.defined()) {
    second = grid->steps[2] == 1 ? Second::row : Second::one;
  }
  const auto fn = own::row_op(op, second, own::element_in(a), own::element_in(out));
  return fn == nullptr ? std::nullopt
                       : std::optional(step_of(fn, *grid, out, std::move(a), std::move(b), number.value_or(0)));
}

// Of the last dimension, which `out` has not or of size 1.
std::optional<PreparedStep> make_reduction(own::RowOpFn fn, const at::Tensor& out, const at::Tensor& self, int64_t dim,
                                           bool keepdim) {
  if (fn == nullptr || self.dim() == 0 || self.numel() == 0 || (dim != -1 && dim != self.dim() - 1)) {
    return std::nullopt;
  }
  const auto wide_out = (keepdim ? out : out.unsqueeze(-1)).expand(self.sizes());
  const auto grid = grid_of(self.sizes(), {wide_out.strides(), self.strides(), self.strides()});
  const bool is_served = grid && self.size(-1) == grid->count && grid->steps[0] == 0 && grid->steps[1] == 1;
  return is_served ? std::optional(step_of(fn, *grid, out, self, {}, 0)) : std::nullopt;
}

// A Python number as float32; nullopt where it is none, or beyond all of them.
std::optional<float> number_in(const at::Tensor& tensor) {
  if (!is_number(tensor) || tensor.is_complex() || tensor.scalar_type() == at::kBool) {
    return std::nullopt;
  }
  const auto value = tensor.item();
  if (value.isIntegral(/*includeBool=*/false)) {
    return static_cast<float>(value.toLong());
  }
  const double number = value.toDouble();
  const bool fits = !std::isfinite(number) || std::abs(number) <= std::numeric_limits<float>::max();
  return fits ? std::optional(static_cast<float>(number)) : std::nullopt;
}

// As eager does, which rounds a number that it adds.
float rounded_to(float number, at::ScalarType dtype) {
  switch (dtype) {
    case at::kBFloat16:
      return static_cast<float>(at::BFloat16(number));
    case at::kHalf:
      return static_cast<float>(at::Half(number));
    default:
      return number;
  }
}

template <RowOp kOp>
std::optional<PreparedStep> make_binary(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  const bool has_factor =
      args.size() > 2 && !(args[2].toScalar().isIntegral(false) && args[2].toScalar().toLong() == 1);
  if (outs.size() != 1 || has_factor) {
    return std::nullopt;
  }
  const auto& a = args[0].toTensor();
  const auto& b = args[1].toTensor();
  const auto in_type = [&](float number) {
    return kOp == RowOp::add || kOp == RowOp::sub ? rounded_to(number, outs[0].scalar_type()) : number;
  };
  if (const auto number = number_in(b)) {
    return make(kOp, outs[0], a, {}, in_type(*number));
  }
  if (const auto number = number_in(a); number && (kOp == RowOp::add || kOp == RowOp::mul)) {
    return make(kOp, outs[0], b, {}, in_type(*number));
  }
  return make(kOp, outs[0], a, b);
}

template <RowOp kOp>
std::optional<PreparedStep> make_unary(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  return outs.size() == 1 ? make(kOp, outs[0], args[0].toTensor(), {}) : std::nullopt;
}

// pow(self, exponent)
std::optional<PreparedStep> make_square(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  const auto exponent = args[1].toScalar();
  const bool is_two = !exponent.isComplex() && !exponent.isBoolean() && exponent.equal(2);
  return is_two ? make_unary<RowOp::square>(args, outs) : std::nullopt;
}

// mean(self, dims, keepdim, dtype)
std::optional<PreparedStep> make_mean(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  const auto& self = args[0].toTensor();
  if (outs.size() != 1 || !own::holds_floats(self) || self.numel() > kMostNumbers || args[1].isNone() ||
      outs[0].scalar_type() != self.scalar_type()) {
    return std::nullopt;
  }
  const auto dims = args[1].toIntVector();
  const auto element = own::element_in(self);
  return dims.size() != 1 ? std::nullopt
                          : make_reduction(own::row_op(RowOp::mean, Second::none, element, element), outs[0], self,
                                           dims[0], args[2].toBool());
}

// argmax(self, dim, keepdim)
std::optional<PreparedStep> make_argmax(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  const auto& self = args[0].toTensor();
  if (outs.size() != 1 || !own::holds_floats(self) || self.numel() > kMostSearched || args[1].isNone()) {
    return std::nullopt;
  }
  return make_reduction(own::row_argmax(own::element_in(self)), outs[0], self, args[1].toInt(), args[2].toBool());
}

// _to_copy(self, dtype, ...): the slot already has dtype and strides.
std::optional<PreparedStep> make_cast(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  const auto& self = args[0].toTensor();
  const bool is_cast =
      outs.size() == 1 && self.sizes() == outs[0].sizes() && self.scalar_type() != outs[0].scalar_type();
  return is_cast ? make(RowOp::copy, outs[0], self, {}) : std::nullopt;
}

const KernelRow row_rows[] = {
    {"aten::add", "Tensor", &make_binary<RowOp::add>},
    {"aten::sub", "Tensor", &make_binary<RowOp::sub>},
    {"aten::mul", "Tensor", &make_binary<RowOp::mul>},
    {"aten::div", "Tensor", &make_binary<RowOp::div>},
    {"aten::neg", "", &make_unary<RowOp::neg>},
    {"aten::silu", "", &make_unary<RowOp::silu>},
    {"aten::rsqrt", "", &make_unary<RowOp::rsqrt>},
    {"aten::relu", "", &make_unary<RowOp::relu>},
    {"aten::pow", "Tensor_Scalar", &make_square},
    {"aten::mean", "dim", &make_mean},
    {"aten::_to_copy", "", &make_cast},
    {"aten::argmax", "", &make_argmax},
};

}  // namespace

c10::ArrayRef<KernelRow> own_rows() { return row_rows; }

}  // namespace airgraph
