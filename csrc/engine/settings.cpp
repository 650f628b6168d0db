#include "settings.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <torch/version.h>

#include <array>

namespace airgraph {
namespace {

constexpr std::array<std::pair<at::Float32Backend, at::Float32Op>, 9> kPrecisions = {{
    {at::Float32Backend::GENERIC, at::Float32Op::ALL},
    {at::Float32Backend::CUDA, at::Float32Op::ALL},
    {at::Float32Backend::CUDA, at::Float32Op::CONV},
    {at::Float32Backend::CUDA, at::Float32Op::RNN},
    {at::Float32Backend::CUDA, at::Float32Op::MATMUL},
    {at::Float32Backend::MKLDNN, at::Float32Op::ALL},
    {at::Float32Backend::MKLDNN, at::Float32Op::CONV},
    {at::Float32Backend::MKLDNN, at::Float32Op::RNN},
    {at::Float32Backend::MKLDNN, at::Float32Op::MATMUL},
}};

#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 13

// Asked one by one, the precisions cost a microsecond: a look-up in a hash map each. Its entries never move, so they
// are looked up once. The map is private; an explicit instantiation may name it (C++20, [temp.spec.general]/6). To be
// removed when torch has a faster question.
template <auto Member>
struct Precisions {
  friend auto precisions_of(const at::Context& context) -> const auto& { return context.*Member; }
};
auto precisions_of(const at::Context& context) -> const auto&;
template struct Precisions<&at::Context::fp32_precision>;

std::array<const at::Float32Precision*, kPrecisions.size()> find_precisions() {
  std::array<const at::Float32Precision*, kPrecisions.size()> found{};
  for (size_t i = 0; i < kPrecisions.size(); ++i) {
    found.at(i) = &precisions_of(at::globalContext()).at(kPrecisions.at(i));
  }
  return found;
}

at::Float32Precision precision(size_t index) {
  static const auto entries = find_precisions();
  return *entries[index];
}

#else

at::Float32Precision precision(size_t index) {
  return at::globalContext().float32Precision(kPrecisions[index].first, kPrecisions[index].second);
}

#endif

// What kernels of accelerators are chosen by besides: numbers that do not fit into a few bits.
uint64_t of_accelerators(at::Context& context) {
  uint64_t packed = static_cast<uint64_t>(context.benchmarkLimitCuDNN()) & 0xFFFF;
  packed = (packed << 16) | (static_cast<uint64_t>(context._SMCarveout_EXPERIMENTAL().value_or(-1)) & 0xFFFF);
  for (const auto backend : context.sDPPriorityOrder()) {
    packed = (packed << 4) | (static_cast<uint64_t>(backend) & 0xF);
  }
  return packed;
}

}  // namespace

uint64_t settings() {
  auto& context = at::globalContext();
  uint64_t packed = 0;
  const auto add = [&packed](uint64_t value, int bits) { packed = (packed << bits) | value; };
  // What integers are computed in.
  add(static_cast<uint64_t>(c10::get_default_dtype_as_scalartype()), 8);
  add(context.deterministicAlgorithms(), 1);
  add(context.deterministicAlgorithmsWarnOnly(), 1);
  add(context.deterministicFillUninitializedMemory(), 1);
  add(context.userEnabledMkldnn(), 1);
  add(context.deterministicMkldnn(), 1);
  add(context.userEnabledNNPACK(), 1);
  add(context.allowFP16ReductionCPU(), 1);
  add(context.userEnabledCuDNN(), 1);
  add(context.deterministicCuDNN(), 1);
  add(context.benchmarkCuDNN(), 1);
  add(context.userEnabledFlashSDP(), 1);
  add(context.userEnabledMemEfficientSDP(), 1);
  add(context.userEnabledMathSDP(), 1);
  add(context.userEnabledCuDNNSDP(), 1);
  add(context.userEnabledOverrideableSDP(), 1);
  add(context.allowFP16BF16ReductionMathSDP(), 1);
  add(context.allowFP16AccumulationCuBLAS(), 1);
  add(static_cast<uint64_t>(context.allowFP16ReductionCuBLAS()), 2);
  add(static_cast<uint64_t>(context.allowBF16ReductionCuBLAS()), 2);
  add(static_cast<uint64_t>(context.linalgPreferredBackend()), 2);
  add(static_cast<uint64_t>(context.blasPreferredBackend()), 3);
  for (size_t i = 0; i < kPrecisions.size(); ++i) {
    add(static_cast<uint64_t>(precision(i)), 3);
  }
  // An odd factor keeps small differences apart, here by Weyl's sequence.
  return packed + of_accelerators(context) * 0x9E3779B97F4A7C15U;
}

uint64_t autocast_settings() {
  auto packed = static_cast<uint64_t>(at::autocast::is_autocast_cache_enabled());
  for (const auto device : {at::kCPU, at::kCUDA, at::kPrivateUse1}) {
    packed = packed << 9 | static_cast<uint64_t>(at::autocast::is_autocast_enabled(device)) << 8 |
             static_cast<uint64_t>(at::autocast::get_autocast_dtype(device));
  }
  return packed;
}

}  // namespace airgraph
