#include "row_program_layout.h"

#include <algorithm>

namespace airgraph::own {
namespace {

constexpr int64_t kLine = 64;

int64_t nbytes_of(Element element) { return element == Element::f32 ? 4 : 2; }

class Layout {
 public:
  Layout(const RowProgram& program, const std::vector<RowStrides>& tensors, int64_t count, bool is_operand)
      : program_(program), tensors_(tensors), count_(count), operands_(tensors.size() - 1), is_operand_(is_operand) {
    places_.resize(program.values.size());
    is_placed_.resize(program.values.size());
    last_use_.assign(program.values.size(), 0);
    uses_.assign(program.values.size(), 0);
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      for (const int64_t value : program.instructions[i].from) {
        last_use_[value] = i;
        ++uses_[value];
      }
    }
  }

  std::optional<RowLayout> made() {
    place_result();
    forward_parts();
    for (size_t i = 0; i < operands_; ++i) {
      place_operand(i);
    }
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      const auto& each = program_.instructions[i];
      if (each.step == RowStep::cat ? !add_cat(i) : !add_op(i)) {
        return std::nullopt;
      }
      release(i);
    }
    put_apart();
    return std::move(layout_);
  }

 private:
  struct Slot {
    int64_t nbytes, begin;
  };
  struct Part {
    int64_t of = -1;  // the value that it is a part of
    int64_t begin = 0;
  };

  const RowProgram& program_;
  const std::vector<RowStrides>& tensors_;
  const int64_t count_;
  const size_t operands_;
  const bool is_operand_;
  std::vector<RowPlace> places_;
  std::vector<bool> is_placed_;
  std::vector<size_t> last_use_;
  std::vector<int> uses_;
  std::vector<Part> parts_;
  std::vector<Slot> free_;
  RowLayout layout_;

  int64_t count_of(int64_t value) const {
    const int64_t count = program_.values[value].count;
    return program_.is_elementwise && count > 1 ? count_ : count;
  }
  int64_t number_nbytes(int64_t value) const { return nbytes_of(program_.values[value].element); }

  // The parts of a cat are computed in their places, before all operands were read.
  bool is_made_apart() const {
    const auto result = static_cast<int64_t>(places_.size()) - 1;
    const bool lies_apart = count_of(result) > 1 && tensors_[0].step != number_nbytes(result);
    return lies_apart || (is_operand_ && program_.instructions.back().step == RowStep::cat);
  }

  void place_result() {
    if (!is_made_apart()) {
      set(static_cast<int64_t>(places_.size()) - 1, {0, 0, 0, tensors_[0].row});
    }
  }

  void put_apart() {
    const auto result = static_cast<int64_t>(places_.size()) - 1;
    if (is_made_apart()) {
      RowProgramCall call;
      call.out = {0, 0, 0, tensors_[0].row};
      call.a = places_[result];
      call.count = count_of(result);
      call.nbytes = number_nbytes(result);
      call.step = call.nbytes;
      call.out_step = tensors_[0].step;
      layout_.calls.push_back(call);
    }
  }

  // What is only ever put behind others is computed there.
  void forward_parts() {
    parts_.resize(program_.values.size());
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      const auto& each = program_.instructions[i];
      int64_t begin = 0;
      for (const int64_t value : each.from) {
        if (each.step == RowStep::cat && uses_[value] == 1 && value >= static_cast<int64_t>(operands_)) {
          parts_[value] = {static_cast<int64_t>(operands_ + i), begin};
        }
        begin += count_of(value) * number_nbytes(value);
      }
    }
  }

  void place_operand(size_t operand) {
    const auto value = static_cast<int64_t>(operand);
    const auto& strides = tensors_[operand + 1];
    const RowPlace lying{static_cast<int>(operand) + 1, 0, 0, strides.row};
    if (count_of(value) == 1 || strides.step == number_nbytes(value)) {
      set(value, lying);
    } else {
      put_together(value, lying, strides.step);
    }
  }

  // A value of so many numbers of which each lies `step` after the one before.
  void put_together(int64_t value, const RowPlace& from, int64_t step) {
    set(value, in_scratch(count_of(value) * number_nbytes(value)));
    RowProgramCall call;
    call.out = places_[value];
    call.a = from;
    call.count = count_of(value);
    call.step = step;
    call.nbytes = call.out_step = number_nbytes(value);
    layout_.calls.push_back(call);
  }

  void set(int64_t value, const RowPlace& place) {
    places_[value] = place;
    is_placed_[value] = true;
  }

  const RowPlace& place_of(int64_t value) {
    if (is_placed_[value]) {
      return places_[value];
    }
    const auto& part = parts_[value];
    if (part.of >= 0) {
      auto place = place_of(part.of);
      place.offset += part.begin;
      set(value, place);
    } else {
      set(value, in_scratch(count_of(value) * number_nbytes(value)));
    }
    return places_[value];
  }

  RowPlace in_scratch(int64_t nbytes) {
    const int64_t rounded = (nbytes + kLine - 1) / kLine * kLine;
    const auto found =
        std::find_if(free_.begin(), free_.end(), [&](const Slot& slot) { return slot.nbytes == rounded; });
    if (found != free_.end()) {
      const int64_t begin = found->begin;
      free_.erase(found);
      return {RowPlace::kScratch, begin, 0, rounded};
    }
    layout_.scratch_nbytes += rounded;
    return {RowPlace::kScratch, layout_.scratch_nbytes - rounded, 0, rounded};
  }

  // After an instruction nobody reads these any more. A part belongs to what it is a part of.
  void release(size_t instruction) {
    auto from = program_.instructions[instruction].from;
    std::sort(from.begin(), from.end());
    from.erase(std::unique(from.begin(), from.end()), from.end());
    for (const int64_t value : from) {
      if (last_use_[value] == instruction && places_[value].tensor == RowPlace::kScratch && parts_[value].of < 0) {
        free_.push_back({places_[value].row_stride, places_[value].slot});
      }
    }
  }

  bool add_cat(size_t instruction) {
    const auto value = static_cast<int64_t>(operands_ + instruction);
    const auto& each = program_.instructions[instruction];
    auto to = place_of(value);
    for (const int64_t from : each.from) {
      if (parts_[from].of != value) {
        RowProgramCall call;
        const auto element = program_.values[from].element;
        call.fn = row_op(RowOp::copy, Second::none, element, element);
        call.out = to;
        call.a = places_[from];
        call.count = count_of(from);
        if (call.fn == nullptr) {
          return false;
        }
        layout_.calls.push_back(call);
      }
      to.offset += count_of(from) * number_nbytes(from);
    }
    return true;
  }

  bool add_op(size_t instruction) {
    const auto value = static_cast<int64_t>(operands_ + instruction);
    const auto& each = program_.instructions[instruction];
    RowProgramCall call;
    call.number = each.number.value_or(0);
    int64_t a = each.from[0];
    int64_t b = each.from.size() > 1 ? each.from[1] : -1;
    auto second = each.number ? Second::number : Second::none;
    if (b >= 0) {
      const bool is_first_one = count_of(a) == 1 && count_of(b) > 1;
      if (is_first_one && (each.op == RowOp::add || each.op == RowOp::mul)) {
        std::swap(a, b);
      }
      second = count_of(b) == 1 && count_of(a) > 1 ? Second::one : Second::row;
    }
    call.a = places_[a];
    if (b >= 0) {
      call.b = places_[b];
      if (count_of(a) == 1 && count_of(b) > 1) {
        call.a = spread(a, count_of(b));
      }
    }
    call.out = place_of(value);
    // A mean has one number, of as many as it is of.
    call.count = each.op == RowOp::mean ? count_of(a) : count_of(value);
    call.fn = row_op(each.op, second, program_.values[a].element, program_.values[value].element);
    if (call.fn != nullptr) {
      layout_.calls.push_back(call);
    }
    return call.fn != nullptr;
  }

  // One number as a row of them.
  RowPlace spread(int64_t value, int64_t count) {
    RowProgramCall call;
    call.a = places_[value];
    call.out = in_scratch(count * number_nbytes(value));
    call.count = count;
    call.nbytes = call.out_step = number_nbytes(value);
    layout_.calls.push_back(call);
    return call.out;
  }
};

}  // namespace

std::optional<RowLayout> lay_out(const RowProgram& program, const std::vector<RowStrides>& tensors, int64_t count,
                                 bool is_operand) {
  return Layout(program, tensors, count, is_operand).made();
}

}  // namespace airgraph::own
