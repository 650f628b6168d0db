// Runs prepared operators on the simulated device and counts their calls.
#include "operator.h"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <stdexcept>

extern "C" simcann::Status aclrtSynchronizeStream(void* stream);

namespace simcann::opapi {
namespace {

std::vector<Operator*>& operators() {
  static std::vector<Operator*> all;
  return all;
}

// A kernel runs on one thread: streams are the simulated device's only parallelism.
void run(const std::function<void()>& kernel) {
  at::AutoDispatchBelowADInplaceOrView no_autograd;
  c10::ParallelGuard one_thread(true);
  try {
    kernel();
  } catch (const c10::Error& error) {
    throw std::runtime_error(error.what_without_backtrace());
  }
}

// A view beyond its storage means that a descriptor is wrong; the kernel would write over other tensors.
bool fits_storage(const TensorRecord& record) {
  auto last = record.offset;
  for (size_t i = 0; i < record.sizes.size(); ++i) {
    last += (record.sizes[i] - 1) * record.strides[i];
  }
  return record.offset >= 0 && last < c10::multiply_integers(record.storage_sizes);
}

}  // namespace

Operator::Operator(const char* name) : name_(name) { operators().push_back(this); }

Tensor view_of(const TensorRecord& record) {
  const auto options = at::TensorOptions().dtype(record.dtype);
  const auto numel = c10::multiply_integers(record.sizes);
  if (numel == 0) {
    return at::empty(record.sizes, options);
  }
  TORCH_CHECK(fits_storage(record), "an argument of shape ", at::IntArrayRef(record.sizes), ", strides ",
              at::IntArrayRef(record.strides), " and offset ", record.offset, " is larger than its storage");
  auto* storage = static_cast<char*>(host_view(record.storage));
  TORCH_CHECK(storage != nullptr, "an argument of shape ", at::IntArrayRef(record.sizes), " is at ", record.storage,
              ", which is not device memory");
  const auto offset_bytes = record.offset * static_cast<int64_t>(c10::elementSize(record.dtype));
  return at::from_blob(storage + offset_bytes, record.sizes, record.strides, options);
}

Parameter<const TensorList&>::Saved Parameter<const TensorList&>::save(C list) {
  Saved records;
  if (list != nullptr) {
    for (const auto* tensor : list->elements) {
      records.push_back(Parameter<const Tensor&>::save(tensor));
    }
  }
  return records;
}

TensorList Parameter<const TensorList&>::load(const Saved& records) {
  TensorList tensors;
  for (const auto& record : records) {
    tensors.push_back(Parameter<const Tensor&>::load(record));
  }
  return tensors;
}

Scalars Parameter<const Scalars&>::save(C list) {
  Scalars values;
  if (list != nullptr) {
    for (const auto* scalar : list->elements) {
      values.push_back(scalar->value);
    }
  }
  return values;
}

void store(const Tensor& out, const Tensor& result) {
  TORCH_CHECK(out.sizes() == result.sizes(), "the output has shape ", out.sizes(), ", the result ", result.sizes());
  out.copy_(result);
}

void Resizable::store(const Tensor& result) {
  TORCH_CHECK(result.numel() <= data.numel(), "the output has room for ", data.numel(), " elements, the result has ",
              result.numel());
  if (result.numel() > 0) {
    data.as_strided(result.sizes(), result.contiguous().strides()).copy_(result);
  }
  record->sizes.assign(result.sizes().begin(), result.sizes().end());
}

Status execute(aclOpExecutor* executor, void* stream) {
  if (executor == nullptr) {
    return fail(PARAM_NULLPTR, "simcann: an operator was launched without its executor");
  }
  const std::unique_ptr<aclOpExecutor, decltype(&aclDestroyAclOpExecutor)> owned(executor, aclDestroyAclOpExecutor);
  auto& call = static_cast<PreparedCall&>(*executor);
  call.op.count_call();
  std::function<void()> kernel;
  if (call.kernel) {
    kernel = [kernel = std::move(call.kernel)] { run(kernel); };
  }
  const auto status = launch(stream, call.op.name(), std::move(kernel));
  return status == SUCCESS && call.waits ? aclrtSynchronizeStream(stream) : status;
}

}  // namespace simcann::opapi

// For tests: write up to `capacity` operators' names and numbers of calls, and return how many there are.
extern "C" SIMCANN_EXPORT uint64_t simcann_operator_calls(const char** names, uint64_t* calls, uint64_t capacity) {
  const auto& all = simcann::opapi::operators();
  for (uint64_t i = 0; i < std::min<uint64_t>(capacity, all.size()); ++i) {
    names[i] = all[i]->name();
    calls[i] = all[i]->calls();
  }
  return all.size();
}
