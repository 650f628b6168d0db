#include "formats.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <array>

namespace airgraph {
namespace {

// NC1HWC0, FRACTAL_Z, FRACTAL_NZ, NDC1HWC0 and FRACTAL_Z_3D, by their numbers in acl/acl_base.h.
constexpr std::array<int64_t, 5> kInternal{3, 4, 29, 32, 33};

using FormatOf = int64_t(const at::Tensor&);

}  // namespace

bool lies_in_rows(const at::Tensor& tensor) {
  if (!tensor.device().is_privateuseone()) {
    return true;
  }
  // torch_npu's, where that serves the device.
  static const auto format_of = [] {
    const auto found = c10::Dispatcher::singleton().findSchema({"npu::get_npu_format", ""});
    return found ? std::make_optional(found->typed<FormatOf>()) : std::nullopt;
  }();
  if (!format_of) {
    return true;
  }
  const at::AutoDispatchBelowADInplaceOrView below;
  return std::find(kInternal.begin(), kInternal.end(), format_of->call(tensor)) == kInternal.end();
}

}  // namespace airgraph
