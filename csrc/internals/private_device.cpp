#include "private_device.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace airgraph {

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;

constexpr auto PRIVATE = DeviceType::PrivateUse1;

// There is one device, which is always current.
class Hooks : public at::PrivateUse1HooksInterface {
 public:
  explicit Hooks(Device target) : target_(target) {}

  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  void setCurrentDevice(DeviceIndex) const override {}
  DeviceIndex getCurrentDevice() const override { return 0; }
  DeviceIndex exchangeDevice(DeviceIndex) const override { return 0; }
  DeviceIndex maybeExchangeDevice(DeviceIndex) const override { return 0; }
  Device getDeviceFromPtr(void*) const override { return target_; }

  const at::Generator& getDefaultGenerator(DeviceIndex) const override {
    return at::globalContext().defaultGenerator(target_);
  }
  at::Generator getNewGenerator(DeviceIndex) const override {
    return target_.is_cpu() ? at::make_generator<at::CPUGeneratorImpl>() : at::detail::getCUDAHooks().getNewGenerator();
  }
  // On CPU all memory is the device's own.
  c10::Allocator* getPinnedMemoryAllocator() const override {
    return target_.is_cpu() ? c10::GetCPUAllocator() : at::detail::getCUDAHooks().getPinnedMemoryAllocator();
  }
  bool isPinnedPtr(const void* data) const override {
    return !target_.is_cpu() && at::detail::getCUDAHooks().isPinnedPtr(data);
  }

 private:
  Device target_;
};

class Guard : public c10::impl::NoOpDeviceGuardImpl<PRIVATE> {
 public:
  explicit Guard(DeviceType target) : target_(target) {}

  Device getDevice() const override { return {PRIVATE, 0}; }
  void synchronizeDevice(const DeviceIndex index) const override {
    if (target_ != DeviceType::CPU) {
      c10::impl::getDeviceGuardImpl(target_)->synchronizeDevice(index);
    }
  }

 private:
  DeviceType target_;
};

}  // namespace

void serve_private_device(Device target) {
  TORCH_CHECK(!at::isPrivateUse1HooksRegistered(), "PyTorch's device for backends of others is taken");
  // PyTorch keeps these until the process ends.
  at::RegisterPrivateUse1HooksInterface(new Hooks(target));
  const c10::impl::DeviceGuardImplRegistrar guard(PRIVATE, new Guard(target.type()));
  c10::SetAllocator(PRIVATE, c10::GetAllocator(target.type()));
}

}  // namespace airgraph
