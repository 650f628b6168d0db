// Random operators: what they draw depends on the seed, the offset and the number of elements, nothing else.
#include "operator.h"

#include <ATen/CPUGeneratorImpl.h>

using namespace simcann::opapi;

namespace {

// One generator a call. The same seed with another offset must give unrelated numbers, so the two are mixed well
// (the finaliser of MurmurHash3) before they become the 32 bits that the generator starts from.
at::Generator generator(uint64_t seed, uint64_t offset) {
  uint64_t state = seed + 0x9e3779b97f4a7c15ULL * (offset + 1);
  state = (state ^ (state >> 33)) * 0xff51afd7ed558ccdULL;
  state = (state ^ (state >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return at::make_generator<at::CPUGeneratorImpl>((state ^ (state >> 33)) & 0xffffffffULL);
}

// In a captured graph seed and offset live on the device and are read at every replay.
at::Generator generator(const Tensor& seed, const Tensor& offset, uint64_t offset_in_graph) {
  return generator(seed.item().to<uint64_t>(), offset.item().to<uint64_t>() + offset_in_graph);
}

// Fill a contiguous copy: the values must not depend on the output's strides.
template <typename Fill>
void draw(const Tensor& out, Fill fill) {
  auto values = at::empty(out.sizes(), out.options());
  fill(values);
  store(out, values);
}

// One bit an element, set with the probability of keeping it, in the order of the elements, lowest bit first.
void keep_mask(const Ints& shape, double drop_probability, const at::Generator& gen, const Tensor& mask) {
  const auto numel = c10::multiply_integers(shape);
  const auto kept = at::empty({mask.numel() * 8}, at::kFloat).uniform_(0, 1, gen).ge(drop_probability);
  TORCH_CHECK(numel <= kept.numel(), "a mask of ", mask.numel(), " bytes is too small for ", numel, " elements");
  const auto weights = at::tensor({1, 2, 4, 8, 16, 32, 64, 128}, at::kInt);
  store(mask, kept.view({-1, 8}).to(at::kInt).mul(weights).sum(-1).to(at::kByte).view(mask.sizes()));
}

Tensor mask_bits(const Tensor& mask, int64_t numel) {
  const auto shifts = at::arange(8, at::kInt);
  const auto bits = at::bitwise_right_shift(mask.reshape({-1, 1}).to(at::kInt), shifts).bitwise_and(1);
  return bits.view({-1}).slice(0, 0, numel);
}

}  // namespace

SIMCANN_OPERATOR(5, aclnnInplaceUniform,
                 [](Tensor& self, double from, double to, uint64_t seed, uint64_t offset) {
                   draw(self, [&](Tensor& values) { values.uniform_(from, to, generator(seed, offset)); });
                 })
SIMCANN_OPERATOR(6, aclnnInplaceUniformTensor,
                 [](Tensor& self, double from, double to, const Tensor& seed, const Tensor& offset, uint64_t more) {
                   draw(self, [&](Tensor& values) { values.uniform_(from, to, generator(seed, offset, more)); });
                 })

SIMCANN_OPERATOR(5, aclnnInplaceNormal, [](Tensor& self, float mean, float std, int64_t seed, int64_t offset) {
  draw(self, [&](Tensor& values) { values.normal_(mean, std, generator(seed, offset)); });
})
SIMCANN_OPERATOR(6, aclnnInplaceNormalTensor,
                 [](Tensor& self, float mean, float std, const Tensor& seed, const Tensor& offset, uint64_t more) {
                   draw(self, [&](Tensor& values) { values.normal_(mean, std, generator(seed, offset, more)); });
                 })
SIMCANN_OPERATOR(5, aclnnNormalFloatFloat, [](float mean, float std, int64_t seed, int64_t offset, Tensor& out) {
  draw(out, [&](Tensor& values) { values.normal_(mean, std, generator(seed, offset)); });
})
SIMCANN_OPERATOR(5, aclnnNormalTensorFloat,
                 [](const Tensor& mean, float std, int64_t seed, int64_t offset, Tensor& out) {
                   draw(out, [&](Tensor& values) { values.normal_(0, std, generator(seed, offset)).add_(mean); });
                 })
SIMCANN_OPERATOR(5, aclnnNormalFloatTensor,
                 [](float mean, const Tensor& std, int64_t seed, int64_t offset, Tensor& out) {
                   draw(out, [&](Tensor& values) {
                     values.normal_(0, 1, generator(seed, offset)).mul_(std).add_(mean);
                   });
                 })
SIMCANN_OPERATOR(5, aclnnNormalTensorTensor,
                 [](const Tensor& mean, const Tensor& std, int64_t seed, int64_t offset, Tensor& out) {
                   draw(out, [&](Tensor& values) {
                     values.normal_(0, 1, generator(seed, offset)).mul_(std).add_(mean);
                   });
                 })

SIMCANN_OPERATOR(4, aclnnInplaceBernoulli, [](Tensor& self, const Scalar& p, uint64_t seed, uint64_t offset) {
  draw(self, [&](Tensor& values) { values.bernoulli_(p.toDouble(), generator(seed, offset)); });
})
SIMCANN_OPERATOR(4, aclnnInplaceBernoulliTensor,
                 [](Tensor& self, const Tensor& p, uint64_t seed, uint64_t offset) {
                   // The probabilities may share their memory with the output: draw() writes it last.
                   const auto chances = p.expand(self.sizes());
                   draw(self, [&](Tensor& values) { values.bernoulli_(chances, generator(seed, offset)); });
                 })

SIMCANN_OPERATOR(5, aclnnInplaceRandom, [](Tensor& self, int64_t from, int64_t to, uint64_t seed, uint64_t offset) {
  draw(self, [&](Tensor& values) { values.random_(from, to, generator(seed, offset)); });
})
SIMCANN_OPERATOR(6, aclnnInplaceRandomTensor,
                 [](Tensor& self, int64_t from, int64_t to, const Tensor& seed, const Tensor& offset, uint64_t more) {
                   draw(self, [&](Tensor& values) { values.random_(from, to, generator(seed, offset, more)); });
                 })
SIMCANN_OPERATOR(4, aclnnRandperm, [](int64_t n, uint64_t seed, uint64_t offset, Tensor& out) {
  store(out, at::randperm(n, generator(seed, offset), at::kLong));
})
SIMCANN_OPERATOR(6, aclnnMultinomial,
                 [](const Tensor& self, int64_t samples, bool replacement, uint64_t seed, uint64_t offset,
                    Tensor& out) {
                   store(out, at::multinomial(self, samples, replacement, generator(seed, offset)));
                 })
SIMCANN_OPERATOR(7, aclnnMultinomialTensor,
                 [](const Tensor& self, int64_t samples, bool replacement, const Tensor& seed, const Tensor& offset,
                    uint64_t more, Tensor& out) {
                   store(out, at::multinomial(self, samples, replacement, generator(seed, offset, more)));
                 })

SIMCANN_OPERATOR(6, aclnnDropoutGenMaskV2,
                 [](const Ints& shape, double p, uint64_t seed, uint64_t offset, ScalarType, Tensor& mask) {
                   keep_mask(shape, p, generator(seed, offset), mask);
                 })
SIMCANN_OPERATOR(7, aclnnDropoutGenMaskV2Tensor,
                 [](const Ints& shape, double p, const Tensor& seed, const Tensor& offset, uint64_t more, ScalarType,
                    Tensor& mask) { keep_mask(shape, p, generator(seed, offset, more), mask); })
SIMCANN_OPERATOR(4, aclnnDropoutDoMask, [](const Tensor& self, const Tensor& mask, double p, Tensor& out) {
  const auto kept = mask_bits(mask, self.numel()).view(self.sizes());
  store(out, at::where(kept.to(at::kBool), self / (1 - p), 0));
})
