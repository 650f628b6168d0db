#include "settled.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/autocast_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <array>
#include <utility>

#include "../engine/settings.h"

namespace airgraph {
namespace {

namespace py = pybind11;

constexpr std::array kDevices = {at::kCPU, at::kCUDA, at::kPrivateUse1};

// Of transforms of torch.func, and of torch.jit.trace.
constexpr c10::DispatchKeySet kObserving({c10::DispatchKey::FuncTorchDynamicLayerFrontMode, c10::DispatchKey::Tracer});

uint64_t autocast() {
  auto packed = static_cast<uint64_t>(at::autocast::is_autocast_cache_enabled());
  for (const auto device : kDevices) {
    packed = packed << 9 | static_cast<uint64_t>(at::autocast::is_autocast_enabled(device)) << 8 |
             static_cast<uint64_t>(at::autocast::get_autocast_dtype(device));
  }
  return packed;
}

PyObject* name_of_device() {
  static PyObject* const name = PyUnicode_InternFromString("CURRENT_DEVICE");
  return name;
}

}  // namespace

Settled::Settled(py::dict devices) : devices_(std::move(devices)) {}

Settled::State Settled::now() const {
  PyObject* const device = PyDict_GetItemWithError(devices_.ptr(), name_of_device());
  if (device == nullptr) {
    PyErr_Clear();
  }
  const auto disabled = static_cast<int64_t>(at::impl::PythonTorchFunctionTLS::get_disabled_state());
  return {settings(), autocast(), at::impl::PythonTorchFunctionTLS::stack_len() << 2 | disabled, device};
}

void Settled::settle() {
  settled_ = now();
  device_ = py::reinterpret_borrow<py::object>(settled_.device);
}

bool Settled::unchanged() const {
  return c10::impl::TorchDispatchModeTLS::stack_len() == 0 &&
         !c10::impl::tls_local_dispatch_key_set().included_.has_any(kObserving) && now() == settled_;
}

}  // namespace airgraph
