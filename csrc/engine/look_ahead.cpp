#include "look_ahead.h"

#include "../internals/tensors.h"
#include "step.h"

namespace airgraph {
namespace {

constexpr size_t kLine = 64;
// Of a step as much as most have.
constexpr size_t kOfStep = 4 * kLine;
// Less than this stays in a cache beside the others.
constexpr size_t kSmall = size_t{64} << 10;

}  // namespace

void LookAhead::note(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) {
    return;
  }
  streamed_nbytes_ += tensor.nbytes() > kSmall ? tensor.nbytes() : 0;
  add_lines(impl_of(tensor), kImplNbytes);
  add_lines(storage_impl_of(tensor), kLine);
}

void LookAhead::add(const Step* step) {
  add_lines(step, kOfStep);
  const auto list = step->list();
  add_lines(list.data(), list.size());
  ends_.push_back(lines_.size());
}

void LookAhead::add_lines(const void* begin, size_t nbytes) {
  for (size_t at = 0; at < nbytes; at += kLine) {
    lines_.push_back(static_cast<const char*>(begin) + at);
  }
}

}  // namespace airgraph
