#include "overlap.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "../internals/tensors.h"

namespace airgraph {
namespace {

constexpr int kMostSteps = 100000;

struct Term {
  int64_t stride, most;  // a multiple of `stride`, of 0 to `most`
};

// Whether a sum of the terms from `first` on is `target`. Strides are positive and sorted, the largest first.
class Equation {
 public:
  explicit Equation(std::vector<Term> terms)
      : terms_(std::move(terms)), reach_(terms_.size() + 1, 0), step_(terms_.size() + 1, 0) {
    for (size_t i = terms_.size(); i-- > 0;) {
      reach_[i] = reach_[i + 1] + terms_[i].stride * terms_[i].most;
      step_[i] = std::gcd(step_[i + 1], terms_[i].stride);
    }
  }

  bool solvable(size_t first, int64_t target) {
    if (target == 0) {
      return true;
    }
    if (target < 0 || target > reach_[first] || target % step_[first] != 0) {
      return false;
    }
    if (++steps_ > kMostSteps) {
      return true;
    }
    const auto [stride, most] = terms_[first];
    const int64_t least = std::max<int64_t>(0, (target - reach_[first + 1] + stride - 1) / stride);
    for (int64_t count = least; count <= std::min(most, target / stride); ++count) {
      if (solvable(first + 1, target - count * stride)) {
        return true;
      }
    }
    return false;
  }

 private:
  std::vector<Term> terms_;
  std::vector<int64_t> reach_, step_;
  int steps_ = 0;
};

void add_terms(const at::Tensor& tensor, std::vector<Term>& terms) {
  const auto itemsize = static_cast<int64_t>(tensor.itemsize());
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (tensor.size(dim) > 1 && tensor.stride(dim) != 0) {
      terms.push_back({tensor.stride(dim) * itemsize, tensor.size(dim) - 1});
    }
  }
  if (itemsize > 1) {
    terms.push_back({1, itemsize - 1});
  }
}

}  // namespace

Span Span::of(const at::Tensor& tensor) {
  if (tensor.numel() == 0) {
    return {};
  }
  const auto begin = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  return {begin, begin + extent_of(tensor)};
}

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  const auto one = Span::of(a), other = Span::of(b);
  if (!one.meets(other)) {
    return false;
  }
  // a + sum(i * stride) == b + sum(j * stride), with j counted from the end so that all signs are positive.
  std::vector<Term> terms;
  add_terms(a, terms);
  add_terms(b, terms);
  std::sort(terms.begin(), terms.end(), [](const Term& x, const Term& y) { return x.stride > y.stride; });
  std::vector<Term> merged;
  for (const auto& term : terms) {
    if (!merged.empty() && merged.back().stride == term.stride) {
      merged.back().most += term.most;
    } else {
      merged.push_back(term);
    }
  }
  const auto target = static_cast<int64_t>(other.end - 1 - one.begin);
  return Equation(std::move(merged)).solvable(0, target);
}

}  // namespace airgraph
