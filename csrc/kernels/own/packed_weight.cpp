#include "packed_weight.h"

#include <bit>
#include <mutex>
#include <new>
#include <unordered_map>

#include "../../internals/tensors.h"
#include "block_products.h"

namespace airgraph {
namespace {

// Calls in a row that find a weight changed, after which it is taken for one that is being trained.
constexpr int kMostChanges = 4;

const float* first_of(const at::Tensor& weight, const MatrixPlace& place) {
  return static_cast<const float*>(address_of(weight)) + place.offset;
}

std::atomic<uint64_t> trust{0};

}  // namespace

void distrust_packed_weights() { trust.fetch_add(1, std::memory_order_relaxed); }

Contents::Contents(const at::Tensor& tensor, const MatrixPlace& place)
    : tensor_(tensor),
      address_(address_of(tensor)),
      version_(tensor._version()),
      trust_(trust.load(std::memory_order_relaxed)),
      samples_(samples_of(tensor, place)) {}

bool Contents::are_of(const at::Tensor& tensor, const MatrixPlace& place) const {
  return tensor_.is(tensor) && address_ == address_of(tensor) && can_be_told(tensor, place) &&
         version_ == tensor._version() && trust_ == trust.load(std::memory_order_relaxed) &&
         samples_ == samples_of(tensor, place);
}

bool Contents::can_be_told(const at::Tensor& tensor, const MatrixPlace& place) {
  if (tensor.is_inference() || tensor.scalar_type() != at::kFloat || address_of(tensor) == nullptr) {
    return false;
  }
  const int64_t last = place.offset + (place.k - 1) * place.stride_k + (place.n - 1) * place.stride_n;
  const auto held = static_cast<int64_t>(tensor.storage().nbytes() / sizeof(float));
  return tensor.storage_offset() + last < held;
}

Contents::Samples Contents::samples_of(const at::Tensor& tensor, const MatrixPlace& place) {
  Samples found;
  const float* first = first_of(tensor, place);
  for (size_t i = 0; i < kSamples; ++i) {
    const auto at = static_cast<int64_t>(i);
    const int64_t k = (place.k - 1) * at / static_cast<int64_t>(kSamples - 1);
    // Another order than that of k, lest all lie on a diagonal.
    const int64_t n = (place.n - 1) * (at * 3 % static_cast<int64_t>(kSamples)) / static_cast<int64_t>(kSamples - 1);
    found[i] = std::bit_cast<uint32_t>(first[k * place.stride_k + n * place.stride_n]);
  }
  return found;
}

// What is packed of all weights of the process, by the tensor. Who holds it are the launches.
class PackedWeight::Shared {
 public:
  static Shared& get() {
    static auto* const all = new Shared;
    return *all;
  }

  std::shared_ptr<const Made> find(const at::Tensor& weight, const MatrixPlace& place) {
    const std::scoped_lock lock(mutex);
    return find_locked(weight, place);
  }

  // What another thread has packed meanwhile, or `made`.
  std::shared_ptr<const Made> add(const at::Tensor& weight, const std::shared_ptr<const Made>& made) {
    const std::scoped_lock lock(mutex);
    if (auto found = find_locked(weight, made->place)) {
      return found;
    }
    std::erase_if(by_tensor, [](const auto& each) { return each.second.expired(); });
    by_tensor.emplace(impl_of(weight), made);
    return made;
  }

 private:
  std::shared_ptr<const Made> find_locked(const at::Tensor& weight, const MatrixPlace& place) const {
    const auto [begin, end] = by_tensor.equal_range(impl_of(weight));
    for (auto each = begin; each != end; ++each) {
      auto made = each->second.lock();
      if (made != nullptr && made->place == place && made->contents.are_of(weight, place)) {
        return made;
      }
    }
    return nullptr;
  }

  // Held for moments only: a process that is forked meanwhile could not take it.
  std::mutex mutex;
  std::unordered_multimap<const void*, std::weak_ptr<const Made>> by_tensor;
};

PackedWeight::PackedWeight(const at::Tensor& weight, const at::Tensor& matrix)
    : place_{matrix.size(0), matrix.size(1), matrix.stride(0), matrix.stride(1),
             (static_cast<const float*>(address_of(matrix)) - static_cast<const float*>(address_of(weight)))} {
  refresh(weight);
  changes_ = 0;
}

void PackedWeight::refresh(const at::Tensor& weight) {
  if (is_given_up_) {
    return;
  }
  if (made_ != nullptr && made_->contents.are_of(weight, place_)) {
    changes_ = 0;
    return;
  }
  made_ = nullptr;
  is_given_up_ = !Contents::can_be_told(weight, place_) || ++changes_ > kMostChanges;
  if (!is_given_up_) {
    try {
      made_ = make(weight, place_);
    } catch (const std::bad_alloc&) {
      is_given_up_ = true;
    }
  }
  nbytes_.store(made_ == nullptr ? 0 : made_->memory.size(), std::memory_order_relaxed);
  address_.store(reinterpret_cast<uintptr_t>(panels()), std::memory_order_relaxed);
}

std::shared_ptr<const PackedWeight::Made> PackedWeight::make(const at::Tensor& weight, const MatrixPlace& place) {
  constexpr size_t kAlignment = 64;
  auto& shared = Shared::get();
  if (auto found = shared.find(weight, place)) {
    return found;
  }
  const auto& form = own::block_form();
  const int64_t panels = (place.n + form.width - 1) / form.width;
  const auto nbytes = static_cast<size_t>(panels * form.width * place.k) * sizeof(float);
  auto made =
      std::make_shared<Made>(Made{Contents(weight, place), place, std::vector<char>(nbytes + kAlignment), nullptr});
  const auto past = reinterpret_cast<uintptr_t>(made->memory.data()) % kAlignment;
  auto* to = reinterpret_cast<float*>(made->memory.data() + (kAlignment - past));
  own::BlockProducts matrix{};
  matrix.n = place.n;
  matrix.k = place.k;
  matrix.right = first_of(weight, place);
  matrix.right_k = place.stride_k;
  matrix.right_n = place.stride_n;
  form.pack(matrix, 0, panels, to);
  made->panels = to;
  return shared.add(weight, made);
}

}  // namespace airgraph
