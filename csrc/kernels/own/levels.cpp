#include <ATen/Version.h>

#include <atomic>
#include <string>

#include "attention.h"
#include "block_products.h"
#include "grouped_products.h"
#include "int_products.h"
#include "row_forms.h"
#include "row_norms.h"
#include "row_ops.h"
#include "row_products.h"
#include "whole_rows.h"

namespace airgraph::own {
namespace {

enum class Level { scalar, avx2, avx512 };

// The best that ATen itself would use, which ATEN_CPU_CAPABILITY limits.
Level level() {
  static const Level found = [] {
    const std::string name = at::get_cpu_capability();
    if (name.starts_with("AVX512") && avx512_row_products(Element::f32) != nullptr) {
      return Level::avx512;
    }
    return name == "AVX2" && avx2_row_products(Element::f32) != nullptr ? Level::avx2 : Level::scalar;
  }();
  return found;
}

std::atomic<bool> dots_wanted{true};
std::atomic<int> places_wanted{-1};  // as is known to be faster

}  // namespace

const char* level_name() {
  switch (level()) {
    case Level::avx512:
      return "AVX512";
    case Level::avx2:
      return "AVX2";
    default:
      return "scalar";
  }
}

bool may_use_dots() { return level() == Level::avx512 && dots_wanted.load(std::memory_order_relaxed); }

bool reads_several_places() {
  static const bool is_faster = [] {
#if defined(__x86_64__)
    return __builtin_cpu_is("intel") != 0 || (__builtin_cpu_is("amd") != 0 && level() == Level::avx2);
#else
    return false;
#endif
  }();
  const int wanted = places_wanted.load(std::memory_order_relaxed);
  return wanted < 0 ? is_faster : wanted != 0;
}

void read_several_places(std::optional<bool> wanted) {
  places_wanted.store(wanted ? static_cast<int>(*wanted) : -1, std::memory_order_relaxed);
}

void use_dots(bool wanted) { dots_wanted.store(wanted, std::memory_order_relaxed); }

RowProductsFn row_products(Element element) {
  switch (level()) {
    case Level::avx512:
      return avx512_row_products(element);
    case Level::avx2:
      return avx2_row_products(element);
    default:
      return scalar_row_products(element);
  }
}

RowProductsFn stored_row_products(Element element) {
  return element == Element::bf16 && may_use_dots() ? avx512_dots_row_products() : nullptr;
}

const WholeForm* whole_form() {
  const WholeForm* dots = may_use_dots() ? avx512_dots_whole_form() : nullptr;
  if (dots != nullptr) {
    return dots;
  }
  switch (level()) {
    case Level::avx512:
      return avx512_whole_form();
    case Level::avx2:
      return avx2_whole_form();
    default:
      return nullptr;
  }
}

const RowForms& row_forms(Element element) {
  switch (level()) {
    case Level::avx512:
      return avx512_row_forms(element);
    case Level::avx2:
      return avx2_row_forms(element);
    default:
      return scalar_row_forms(element);
  }
}

const RowNorms& row_norms(Element element) {
  switch (level()) {
    case Level::avx512:
      return avx512_row_norms(element);
    case Level::avx2:
      return avx2_row_norms(element);
    default:
      return scalar_row_norms(element);
  }
}

RowOpFn row_op(RowOp op, Second second, Element in, Element out) {
  switch (level()) {
    case Level::avx512:
      return avx512_row_op(op, second, in, out);
    case Level::avx2:
      return avx2_row_op(op, second, in, out);
    default:
      return scalar_row_op(op, second, in, out);
  }
}

RowOpFn row_argmax(Element in) {
  switch (level()) {
    case Level::avx512:
      return avx512_row_argmax(in);
    case Level::avx2:
      return avx2_row_argmax(in);
    default:
      return scalar_row_argmax(in);
  }
}

IntProductsFn int_products() {
  switch (level()) {
    case Level::avx512:
      return avx512_int_products();
    case Level::avx2:
      return avx2_int_products();
    default:
      return scalar_int_products();
  }
}

GroupedFn grouped_products() {
  switch (level()) {
    case Level::avx512:
      return avx512_grouped_products();
    case Level::avx2:
      return avx2_grouped_products();
    default:
      return scalar_grouped_products();
  }
}

const BlockForm& block_form() {
  switch (level()) {
    case Level::avx512:
      return avx512_block_form();
    case Level::avx2:
      return avx2_block_form();
    default:
      return scalar_block_form();
  }
}

const AttentionFns& attention_fns() {
  switch (level()) {
    case Level::avx512:
      return avx512_attention_fns();
    case Level::avx2:
      return avx2_attention_fns();
    default:
      return scalar_attention_fns();
  }
}

}  // namespace airgraph::own
