// The kernels of PyTorch's that are called without the dispatcher. They are exported by libtorch_cpu, but promised to
// nobody: all that is used of at::native stands here. Seen in torch 2.13; a build against one that has renamed a kernel
// stops at its line.
#pragma once

#include <ATen/native/Activation.h>
#include <ATen/native/BinaryOps.h>
#include <ATen/native/Pow.h>
#include <ATen/native/ReduceOps.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/native/TensorCompare.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/native/layer_norm.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/fill_native.h>

namespace airgraph::native {

// Operators as plain functions.
using at::native::copy_;
using at::native::fill_;

// Two tensors.
using at::native::add_stub;
using at::native::div_true_stub;
using at::native::maximum_stub;
using at::native::minimum_stub;
using at::native::mul_stub;

// A tensor and a number.
using at::native::clamp_min_scalar_stub;
using at::native::pow_tensor_scalar_stub;

// One tensor.
using at::native::atan_stub;
using at::native::ceil_stub;
using at::native::cos_stub;
using at::native::erf_stub;
using at::native::erfc_stub;
using at::native::exp2_stub;
using at::native::exp_stub;
using at::native::expm1_stub;
using at::native::floor_stub;
using at::native::GeluKernel;
using at::native::GeluType;
using at::native::log1p_stub;
using at::native::log2_stub;
using at::native::log_stub;
using at::native::mish_stub;
using at::native::neg_stub;
using at::native::reciprocal_stub;
using at::native::round_stub;
using at::native::rsqrt_stub;
using at::native::sigmoid_stub;
using at::native::silu_stub;
using at::native::sin_stub;
using at::native::sqrt_stub;
using at::native::tan_stub;
using at::native::tanh_stub;
using at::native::trunc_stub;

// Reductions.
using at::native::make_dim_mask;
using at::native::sum_stub;

// Of neural networks.
using at::native::flash_attention_kernel;
using at::native::LayerNormKernel;

}  // namespace airgraph::native
