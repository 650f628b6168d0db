#include "huge_pages.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <cstring>
#include <memory>

namespace airgraph {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kAlignment = 64;  // as of what PyTorch allocates

size_t rounded_up(size_t number, size_t to) { return (number + to - 1) / to * to; }

class Mapping {
 public:
  explicit Mapping(size_t nbytes) : mapped_(nbytes + kHugePage) {
    memory_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TORCH_CHECK_WITH(OutOfMemoryError, memory_ != MAP_FAILED, "no memory for ", nbytes, " bytes of weights");
    const auto address = reinterpret_cast<uintptr_t>(memory_);
    begin_ = static_cast<char*>(memory_) + (rounded_up(address, kHugePage) - address);
#ifdef MADV_HUGEPAGE
    madvise(begin_, rounded_up(nbytes, kHugePage), MADV_HUGEPAGE);
#endif
  }
  ~Mapping() { munmap(memory_, mapped_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  char* begin() const { return begin_; }

 private:
  const size_t mapped_;
  void* memory_;
  char* begin_;
};

struct Share {
  std::shared_ptr<Mapping> mapping;
  // What a storage had before that others may point into, as an array of NumPy does that was made of it.
  at::DataPtr before;
};

void let_go(void* share) { delete static_cast<Share*>(share); }

}  // namespace

HugePages move_into_huge_pages(const std::vector<c10::Storage>& storages) {
  size_t nbytes = 0;
  for (const auto& storage : storages) {
    nbytes += rounded_up(storage.nbytes(), kAlignment);
  }
  if (nbytes == 0) {
    return {nullptr, 0};
  }
  const auto mapping = std::make_shared<Mapping>(rounded_up(nbytes, kHugePage));
  auto* to = mapping->begin();
  for (const auto& storage : storages) {
    // Mutable: what shares its memory until one of them writes has memory of its own then.
    std::memcpy(to, storage.mutable_data(), storage.nbytes());
    auto share = std::make_unique<Share>(Share{mapping, {}});
    auto* const kept = share.get();
    auto before = storage.unsafeGetStorageImpl()->set_data_ptr(at::DataPtr(to, share.release(), &let_go, c10::kCPU));
    if (!storage.resizable()) {
      kept->before = std::move(before);
    }
    to += rounded_up(storage.nbytes(), kAlignment);
  }
  return {mapping->begin(), nbytes};
}

}  // namespace airgraph
