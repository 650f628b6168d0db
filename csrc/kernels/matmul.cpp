#include <ATen/CPUFunctions.h>
#include <ATen/Context.h>

#include <algorithm>
#include <limits>

#include "table.h"
#include "typed.h"

// Exported by the BLAS that torch is built with; absent where that is another one than MKL.
extern "C" __attribute__((weak)) void sgemm_(const char* transa, const char* transb, const int* m, const int* n,
                                             const int* k, const float* alpha, const float* a, const int* lda,
                                             const float* b, const int* ldb, const float* beta, float* c,
                                             const int* ldc);

namespace airgraph {
namespace {

using namespace typed;

// A factor as BLAS takes it, in columns: its leading dimension, and whether it is transposed.
struct Factor {
  char trans;
  int ld;
};

std::optional<Factor> factor(int64_t row_stride, int64_t column_stride, int64_t rows, int64_t columns) {
  if (row_stride == 1 && column_stride >= std::max<int64_t>(1, rows)) {
    return Factor{'n', static_cast<int>(columns == 1 ? std::max<int64_t>(1, rows) : column_stride)};
  }
  if (column_stride == 1 && row_stride >= std::max<int64_t>(1, columns)) {
    return Factor{'t', static_cast<int>(rows == 1 ? std::max<int64_t>(1, columns) : row_stride)};
  }
  return std::nullopt;
}

// out = left @ right by one call of sgemm, which computes out^T = right^T @ left^T in columns: what ATen's mm calls.
struct GemmCtx final : Step {
  at::Tensor out, left, right;
  Factor a, b;
  int m, n, k, ldc;
};

void run_gemm(Step* step) {
  auto& ctx = *static_cast<GemmCtx*>(step);
  const float one = 1;
  const float zero = 0;
  sgemm_(&ctx.a.trans, &ctx.b.trans, &ctx.m, &ctx.n, &ctx.k, &one, ctx.right.const_data_ptr<float>(), &ctx.a.ld,
         ctx.left.const_data_ptr<float>(), &ctx.b.ld, &zero, ctx.out.mutable_data_ptr<float>(), &ctx.ldc);
}

std::optional<PreparedStep> make_gemm(const at::Tensor& left, const at::Tensor& right, const at::Tensor& out) {
  const auto is_float = [](const at::Tensor& t) { return t.scalar_type() == at::kFloat && t.numel() != 0; };
  if (sgemm_ == nullptr || !is_float(left) || !is_float(right) || !is_float(out) || out.size(1) == 1 ||
      out.stride(1) != 1 || (out.size(0) != 1 && out.stride(0) < out.size(1))) {
    return std::nullopt;
  }
  const int64_t m = out.size(1);
  const int64_t n = out.size(0);
  const int64_t k = left.size(1);
  const auto a = factor(right.stride(1), right.stride(0), m, k);
  const auto b = factor(left.stride(1), left.stride(0), k, n);
  const auto largest = std::max({m, n, k, right.stride(0), right.stride(1), left.stride(0), left.stride(1)});
  if (!a || !b || largest > std::numeric_limits<int>::max()) {
    return std::nullopt;
  }
  auto ctx = std::make_unique<GemmCtx>();
  ctx->out = out;
  ctx->left = left;
  ctx->right = right;
  ctx->a = *a;
  ctx->b = *b;
  ctx->m = static_cast<int>(m);
  ctx->n = static_cast<int>(n);
  ctx->k = static_cast<int>(k);
  ctx->ldc = static_cast<int>(n == 1 ? m : out.stride(0));
  return PreparedStep{&run_gemm, std::move(ctx), Tier::prepared};
}

// Whether float32 products are computed in float32; a user may allow oneDNN to compute them in less.
bool full_precision() {
  try {
    return at::globalContext().float32MatmulPrecision() == at::Float32MatmulPrecision::HIGHEST;
  } catch (const c10::Error&) {
    // It refuses to answer once a precision has been set for a single backend.
    return false;
  }
}

std::optional<PreparedStep> make_mm(const torch::jit::Stack& args, c10::ArrayRef<at::Tensor> outs) {
  if (outs.size() == 1 && full_precision()) {
    if (auto made = make_gemm(args[0].toTensor(), args[1].toTensor(), outs[0])) {
      return made;
    }
  }
  return Call<static_cast<at::Tensor& (*)(at::Tensor&, T, T)>(&at::cpu::mm_out)>::make(args, outs);
}

const KernelRow matmul_rows[] = {
    {"aten::mm", "", &make_mm},
    AIRGRAPH_OUT(addmm, "", T, T, T, S, S),
    AIRGRAPH_OUT(bmm, "", T, T),
    AIRGRAPH_OUT(baddbmm, "", T, T, T, S, S),
    AIRGRAPH_OUT(addmv, "", T, T, T, S, S),
};

}  // namespace

c10::ArrayRef<KernelRow> matmul_kernels() { return matmul_rows; }

}  // namespace airgraph
