// The loops of block_products.h over one kind of vector. Included once for each instruction set, within a namespace of
// its own, after what row_products_body.h wants, and
//   kTile, transpose_tile(const float* from, ld, float* to, to_ld)   as in transpose8.h
// No function of the standard library is called here: it would be compiled with these instructions, and may be the one
// that the linker keeps for everybody.

constexpr int kPanelVectors = 2;
constexpr int64_t kPanel = kPanelVectors * Vec::kWidth;
// Rows whose sums registers hold at a time.
constexpr int kStrip = Vec::kWidth >= 16 ? 12 : 6;
// So many products are summed one after another. Longer chains have a worse sum than BLAS's; these panels also lie in
// the first cache.
constexpr int64_t kChain = 128;
// Of more chains than these, what rounding loses of their total is kept apart.
constexpr int64_t kFewChains = 4;

// Some rows of `left` with a piece of a panel.
struct StripOf {
  const float* left;
  int64_t left_ld;
  const float* panel;
  int64_t count;  // of products that a sum has more
  float* out;
  int64_t out_ld;
  int64_t columns;  // of the panel, at most kPanel
  bool is_first;    // nothing was summed before
  bool is_last;
  const float* bias;  // where this is the last piece; or null
  float* lost;        // of each sum, in rows of kPanel, what rounding has lost of it; or null
};

// What a sum is with a chain more.
AIRGRAPH_SIMD typename Vec::F with_more(const StripOf& s, int m, int v, typename Vec::F before, typename Vec::F chain,
                                        typename Vec::F bias) {
  if (s.lost == nullptr) {
    const auto sum = s.is_first ? chain : Vec::add(before, chain);
    return s.bias == nullptr ? sum : Vec::add(sum, bias);
  }
  float* lost = s.lost + m * kPanel + v * Vec::kWidth;
  Total total{before, s.is_first ? Vec::zero() : Vec::load(lost)};
  total.add(chain);
  Vec::store(lost, total.lost);
  const auto sum = s.is_last ? total.value() : total.sum;
  return s.bias == nullptr ? sum : Vec::add(sum, bias);
}

template <int M>
AIRGRAPH_ENTRY void strip(const StripOf& s) {
  typename Vec::F sums[M][kPanelVectors];
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < kPanelVectors; ++v) {
      sums[m][v] = Vec::zero();
    }
  }
  const float* panel = s.panel;
#pragma GCC unroll 4
  for (int64_t k = 0; k < s.count; ++k) {
    typename Vec::F columns[kPanelVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kPanelVectors; ++v) {
      columns[v] = Vec::load(panel + k * kPanel + v * Vec::kWidth);
    }
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
      const auto row = Vec::set(s.left[m * s.left_ld + k]);
#pragma GCC unroll 4
      for (int v = 0; v < kPanelVectors; ++v) {
        sums[m][v] = Vec::fma(row, columns[v], sums[m][v]);
      }
    }
  }
  const bool is_whole = s.columns == kPanel;
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < kPanelVectors; ++v) {
      float* out = s.out + m * s.out_ld + v * Vec::kWidth;
      const int64_t left = s.columns - v * Vec::kWidth;
      if (is_whole || left >= Vec::kWidth) {
        const auto before = s.is_first ? Vec::zero() : Vec::load(out);
        const auto bias = s.bias == nullptr ? Vec::zero() : Vec::load(s.bias + v * Vec::kWidth);
        Vec::store(out, with_more(s, m, v, before, sums[m][v], bias));
      } else if (left > 0) {
        const auto before = s.is_first ? Vec::zero() : Vec::load_part(out, left);
        const auto bias = s.bias == nullptr ? Vec::zero() : Vec::load_part(s.bias + v * Vec::kWidth, left);
        float found[Vec::kWidth];
        Vec::store(found, with_more(s, m, v, before, sums[m][v], bias));
        for (int64_t i = 0; i < left; ++i) {
          out[i] = found[i];
        }
      }
    }
  }
}

using StripFn = void (*)(const StripOf&);

template <int... M>
inline StripFn strip_among(int64_t rows, std::integer_sequence<int, M...> /*all*/) {
  constexpr StripFn all[] = {&strip<M + 1>...};
  return all[rows - 1];
}

// The rows [k, k + count) of the panel of columns from `n` on.
AIRGRAPH_SIMD void pack_piece(const BlockProducts& p, int64_t n, int64_t k, int64_t count, float* to) {
  const int64_t columns = p.n - n < kPanel ? p.n - n : kPanel;
  const float* from = p.right + n * p.right_n + k * p.right_k;
  int64_t column = 0;
  if (p.right_n == 1 && columns == kPanel) {
    for (int64_t i = 0; i < count; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < kPanelVectors; ++v) {
        Vec::store(to + i * kPanel + v * Vec::kWidth, Vec::load(from + i * p.right_k + v * Vec::kWidth));
      }
    }
    return;
  }
  if (p.right_k == 1) {
    const int64_t turned = count / kTile * kTile;
    for (; column + kTile <= columns; column += kTile) {
      for (int64_t i = 0; i < turned; i += kTile) {
        transpose_tile(from + column * p.right_n + i, p.right_n, to + i * kPanel + column, kPanel);
      }
      for (int64_t i = turned; i < count; ++i) {
        for (int64_t j = column; j < column + kTile; ++j) {
          to[i * kPanel + j] = from[j * p.right_n + i];
        }
      }
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t j = column; j < kPanel; ++j) {
      to[i * kPanel + j] = j < columns ? from[j * p.right_n + i * p.right_k] : 0.0F;
    }
  }
}

AIRGRAPH_ENTRY void pack_panels(const BlockProducts& p, int64_t panel, int64_t panel_end, float* to) {
  for (; panel < panel_end; ++panel) {
    pack_piece(p, panel * kPanel, 0, p.k, to + panel * kPanel * p.k);
  }
}

// Where a product is on its way through the panels.
struct PieceAt {
  int64_t panel, k;
};

// Asks for the part `share` of `shares` of what is read next of the matrix.
AIRGRAPH_SIMD void prefetch_piece(const BlockProducts& p, const PieceAt& next, int64_t share, int64_t shares) {
  constexpr int64_t kLineFloats = kLine / sizeof(float);
  const bool is_packed = p.panels != nullptr;
  const int64_t n = next.panel * kPanel;
  const int64_t count = p.k - next.k < kChain ? p.k - next.k : kChain;
  const int64_t columns = p.n - n < kPanel ? p.n - n : kPanel;
  // Rows of memory, and the lines of each.
  const bool is_by_columns = !is_packed && p.right_k == 1;
  const int64_t rows = is_by_columns ? columns : count;
  const int64_t row_lines = ((is_by_columns ? count : kPanel) + kLineFloats - 1) / kLineFloats;
  const float* from = is_packed ? p.panels + n * p.k + next.k * kPanel : p.right + n * p.right_n + next.k * p.right_k;
  const int64_t ld = is_packed ? kPanel : is_by_columns ? p.right_n : p.right_k;
  for (int64_t row = rows * share / shares; row < rows * (share + 1) / shares; ++row) {
    for (int64_t line = 0; line < row_lines; ++line) {
      Vec::prefetch(from + row * ld + line * kLineFloats);
    }
  }
}

AIRGRAPH_ENTRY void run_blocks(const BlockProducts& p, int64_t row, int64_t row_end, int64_t panel, int64_t panel_end) {
  alignas(64) float piece[kChain * kPanel];
  alignas(64) float lost[kMostBlockRows * kPanel];
  const bool is_long = p.k > kFewChains * kChain;
  const int64_t strips = (row_end - row + kStrip - 1) / kStrip;
  for (; panel < panel_end; ++panel) {
    const int64_t n = panel * kPanel;
    StripOf s{nullptr, p.left_ld, nullptr, 0,      nullptr, p.out_ld, p.n - n < kPanel ? p.n - n : kPanel,
              true,    false,     nullptr, nullptr};
    for (int64_t k = 0; k < p.k; k += kChain) {
      s.count = p.k - k < kChain ? p.k - k : kChain;
      s.is_first = k == 0;
      s.is_last = k + s.count == p.k;
      s.bias = p.bias != nullptr && s.is_last ? p.bias + n : nullptr;
      if (p.panels != nullptr) {
        s.panel = p.panels + n * p.k + k * kPanel;
      } else {
        pack_piece(p, n, k, s.count, piece);
        s.panel = piece;
      }
      const PieceAt next = s.is_last ? PieceAt{panel + 1, 0} : PieceAt{panel, k + kChain};
      int64_t at = row;
      for (int64_t i = 0; i < strips; ++i) {
        if (next.panel < panel_end) {
          prefetch_piece(p, next, i, strips);
        }
        const int64_t rows = (row_end - at + strips - i - 1) / (strips - i);
        s.left = p.left + at * p.left_ld + k;
        s.out = p.out + at * p.out_ld + n;
        s.lost = is_long ? lost + (at - row) * kPanel : nullptr;
        strip_among(rows, std::make_integer_sequence<int, kStrip>())(s);
        at += rows;
      }
    }
  }
}

inline const BlockForm& block_entry() {
  static constexpr BlockForm form{kPanel, &run_blocks, &pack_panels};
  return form;
}
