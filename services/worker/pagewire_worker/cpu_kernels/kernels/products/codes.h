// Matrices of codes with scales, as others have quantized them, and products with unquantized input.
//
// A weight is the value of its code times the scale of its group, perhaps with an offset. Codes of 8
// bits are signed numbers, or floats (e4m3fn); codes of 4 bits are looked up in a table, whose values
// the input's type has exactly if they are whole numbers. Codes are widened in registers, multiplied
// and summed per group in floats; each group's sum is scaled once. A sum runs over K in ascending
// order, in one register, and over groups in ascending order: its bits do not depend on the number of
// rows.
//
// With many rows the codes of an item are widened once, in memory, and then multiplied: the same
// numbers in the same order.
//
// A panel is, per group, the scales of its 16 rows, their offsets if there are any, and the codes; before
// the groups that share factors of their scales are these factors. The codes are,
// of 8 bits [group / 2][16][2], of 4 bits [group / 8][16] words of 32 bits. In a word, the inputs 0, 2,
// 4 and 6 are the nibbles of the lower half, and the inputs 1, 3, 5 and 7 those of the upper half.
#pragma once

namespace PW_ISA {

static constexpr int64_t CODES_AHEAD = 1024;  // bytes that are prefetched before a panel's product
static constexpr int64_t CHUNK = 8;           // inputs of a word of 4-bit codes

// Where the scales of a group lie.
struct GroupHead {
  const uint8_t* head;
  const uint8_t* factors;

  GroupHead(const uint8_t* panel, const GroupPlace& place)
      : head(panel + place.head), factors(panel + place.factors) {}
};

// The scales of a group (0), or its offsets (1).
static inline V load_scales(const PwLinear& linear, const GroupHead& group, int which = 0) {
  const uint8_t* p = group.head + which * PANEL * scale_bytes(linear);
  switch (linear.scale_type) {
    case PW_SCALE_FLOAT32: return load((const float*)p);
    case PW_SCALE_FLOAT16: return load((const Fp16*)p);
    case PW_SCALE_BFLOAT16: return load((const Bf16*)p);
    default:
      // Exact: a factor has 11 bits, and float32 has 24.
      return mul(load_bytes((const int8_t*)p), load((const Fp16*)group.factors + which * PANEL));
  }
}

template <class In>
static inline float sum_of_group(const In* x, int64_t group) {
  V sum = zero();
  for (int64_t i = 0; i < group; i += PANEL) sum = add(sum, load(x + i));
  return sum_of(sum);
}

// What the sum of a group's inputs is multiplied with.
static inline V added_of(const PwLinear& linear, const GroupHead& group, V scales) {
  const V offsets = load_scales(linear, group, 1);
  return linear.offset_kind == PW_MINIMA ? offsets : sub(zero(), mul(offsets, scales));
}

// Codes of one width for input of type T; WIDENED for codes that are columns of T already, FLOATS for
// floats of 8 bits.
static constexpr int WIDENED = 0, FLOATS = -8;
template <class T, int BITS>
struct Codes {
  typedef uint8_t Element;
  typedef typename T::Element Input;
  static constexpr int STEP = 8;
  static constexpr bool HAS_GROUPS = true;
  static constexpr int64_t CHUNK_BYTES =
      BITS == WIDENED ? CHUNK / 2 * T::PAIR_BYTES : CHUNK * PANEL / (BITS == 4 ? 2 : 1);
  static constexpr bool HAS_BYTES = BITS == 8 || BITS == FLOATS;
  // The columns of two inputs whose codes are bytes.
  static inline __attribute__((always_inline)) void byte_pair(const uint8_t* p,
                                                              typename T::Columns* w) {
    if constexpr (BITS == FLOATS)
      T::float_pair(p, w);
    else
      T::byte_pair((const int8_t*)p, w);
  }
  // Bytes of a group.
  static inline int64_t group_bytes(const PwLinear& linear) {
    return coded_head_bytes(linear) + linear.group / CHUNK * CHUNK_BYTES;
  }
  static constexpr int PER_PAIR = 2 / T::STEP;  // products of two inputs
  static constexpr int REGISTERS_PER_PANEL = PER_PAIR + (BITS == 4 ? 1 : 0);

  // sums[M][NB] += x * codes for the inputs of one group; `p` are the codes of each panel. IN_ROW: the
  // values of codes are whole numbers in a row, and the set has instructions for that.
  template <int M, int NB, bool IN_ROW = false>
  static inline __attribute__((always_inline)) void multiply_group(
      V (&sums)[M][NB], const Input* x, int64_t x_stride, int64_t group,
      const typename T::Table& table, const uint8_t* const* p, const uint8_t* const* ahead) {
    for (int64_t k = 0, at = 0; k < group; k += CHUNK, at += CHUNK_BYTES) {
      VI words[NB];
#pragma GCC unroll 8
      for (int n = 0; n < NB; n++) {
        if constexpr (BITS != WIDENED) __builtin_prefetch(ahead[n] + at, 0, 2);
        if constexpr (HAS_BYTES) __builtin_prefetch(ahead[n] + at + 64, 0, 2);
        if constexpr (BITS == 4) words[n] = bytes(p[n] + at);
      }
#pragma GCC unroll 4
      for (int pair = 0; pair < CHUNK / 2; pair++) {
        typename T::Columns w[NB][PER_PAIR];
#pragma GCC unroll 8
        for (int n = 0; n < NB; n++) {
          if constexpr (BITS == 4 && IN_ROW)
            T::next_pair_in_row(table, words[n], w[n]);
          else if constexpr (BITS == 4)
            T::next_pair(table, words[n], w[n]);
          else if constexpr (BITS == WIDENED)
            T::load_pair(p[n] + at + pair * T::PAIR_BYTES, w[n]);
          else
            byte_pair(p[n] + at + pair * PANEL * 2, w[n]);
        }
#pragma GCC unroll 8
        for (int m = 0; m < M; m++)
#pragma GCC unroll 2
          for (int s = 0; s < PER_PAIR; s++) {
            typename T::Scalar scalar = T::scalar(x + m * x_stride + k + 2 * pair + s * T::STEP);
#pragma GCC unroll 8
            for (int n = 0; n < NB; n++) sums[m][n] = T::dot(sums[m][n], w[n][s], scalar);
          }
      }
    }
  }

  // out[M rows, stride] = x * panels
  template <int M, int NB>
  static inline void tile(const Input* x, int64_t x_stride, GroupInput input,
                          const uint8_t* const* panels, float* out, int64_t stride,
                          const uint8_t* const* next) {
    const typename T::Table table = T::code_table(input.linear->table);
    if constexpr (BITS == 4 && T::COMPUTES_ROWS) {
      if (table.is_row)
        return tile_of<M, NB, true>(x, x_stride, input, table, panels, out, stride, next);
    }
    tile_of<M, NB, false>(x, x_stride, input, table, panels, out, stride, next);
  }

  template <int M, int NB, bool IN_ROW = false>
  static __attribute__((noinline)) void tile_of(const Input* x, int64_t x_stride, GroupInput input,
                                                const typename T::Table& table,
                                                const uint8_t* const* panels, float* out,
                                                int64_t stride, const uint8_t* const* next) {
    const PwLinear& linear = *input.linear;
    const int64_t group = linear.group, size = linear.num_inputs;
    const int64_t head = coded_head_bytes(linear), step = group_bytes(linear);
    GroupPlace place(linear, step, 0);
    const int64_t panel_end = GroupPlace(linear, step, size / group).head;
    for (int m = 0; m < M; m++)
      for (int n = 0; n < NB; n++) store(out + m * stride + n * PANEL, zero());
    for (int64_t g = 0; g < size / group; g++, place.next()) {
      // After the last groups of these panels, the first groups of the next panels are prefetched.
      const int64_t at = place.head, later = at + head + CODES_AHEAD;
      const uint8_t *p[NB], *ahead[NB];
      for (int n = 0; n < NB; n++) {
        p[n] = panels[n] + at + head;
        ahead[n] = later < panel_end ? panels[n] + later : next[n] + later - panel_end;
      }
      V sums[M][NB];
#pragma GCC unroll 8
      for (int m = 0; m < M; m++)
#pragma GCC unroll 8
        for (int n = 0; n < NB; n++) sums[m][n] = zero();
      multiply_group<M, NB, IN_ROW>(sums, x + g * group, x_stride, group, table, p, ahead);
#pragma GCC unroll 8
      for (int n = 0; n < NB; n++) {
        const GroupHead top(panels[n], place);
        const V scales = load_scales(linear, top);
        float* sum = out + n * PANEL;
        if (linear.offset_kind == PW_NO_OFFSETS) {
#pragma GCC unroll 8
          for (int m = 0; m < M; m++, sum += stride)
            store(sum, fma(sums[m][n], scales, load(sum)));
          continue;
        }
        const V added = added_of(linear, top, scales);
        const float* totals = input.totals + g;
#pragma GCC unroll 8
        for (int m = 0; m < M; m++, sum += stride, totals += size / group)
          store(sum, fma(added, set1(*totals), fma(sums[m][n], scales, load(sum))));
      }
    }
  }
};

template <class T>
using Codes8 = Codes<T, 8>;
template <class T>
using Codes4 = Codes<T, 4>;
template <class T>
using Floats8 = Codes<T, FLOATS>;

// The matrix as it is once it is widened.
static inline PwLinear widened(const PwLinear& linear) {
  PwLinear result = linear;
  result.scale_type = PW_SCALE_FLOAT32;
  result.factor_groups = 0;
  if (linear.offset_kind != PW_NO_OFFSETS) result.offset_kind = PW_MINIMA;
  return result;
}

// Widen one group of a panel.
template <class T, int BITS>
static inline void widen_group(const PwLinear& linear, const GroupHead& group, uint8_t* out) {
  typedef Codes<T, BITS> Source;
  const typename T::Table table = T::code_table(linear.table);
  const V scales = load_scales(linear, group);
  store((float*)out, scales);
  if (linear.offset_kind != PW_NO_OFFSETS)
    store((float*)out + PANEL, added_of(linear, group, scales));
  const uint8_t* from = group.head + coded_head_bytes(linear);
  uint8_t* to = out + coded_head_bytes(widened(linear));
  for (int64_t k = 0; k < linear.group; k += CHUNK, from += Source::CHUNK_BYTES) {
    VI words;
    if constexpr (BITS == 4) words = bytes(from);
    for (int pair = 0; pair < CHUNK / 2; pair++, to += T::PAIR_BYTES) {
      typename T::Columns w[Source::PER_PAIR];
      if constexpr (BITS == 4)
        T::next_pair(table, words, w);
      else
        Source::byte_pair(from + pair * PANEL * 2, w);
      T::store_pair(to, w);
    }
  }
}

// Widen one panel.
template <class T, int BITS>
static inline void widen_panel(const PwLinear& linear, const uint8_t* panel, uint8_t* out) {
  GroupPlace place(linear, Codes<T, BITS>::group_bytes(linear), 0);
  const int64_t wide_bytes = Codes<T, WIDENED>::group_bytes(widened(linear));
  for (int64_t g = 0; g < linear.num_inputs / linear.group; g++, place.next())
    widen_group<T, BITS>(linear, GroupHead(panel, place), out + g * wide_bytes);
}

// Place of an input's nibble in its word, in bits.
static inline int nibble_shift(int64_t k) { return (int)(k % CHUNK / 2 * 4 + k % 2 * 16); }

// The word of eight codes, a byte each.
static inline uint32_t word_of(const uint8_t* codes) {
  uint64_t all;
  __builtin_memcpy(&all, codes, 8);
  uint64_t even = all & 0x000f000f000f000full, odd = all >> 8 & 0x000f000f000f000full;
  even |= even >> 12 | even >> 24 | even >> 36;
  odd |= odd >> 12 | odd >> 24 | odd >> 36;
  return (uint32_t)(even & 0xffff) | (uint32_t)(odd & 0xffff) << 16;
}

// Pack the factors of the scales of one panel.
static inline void pack_factors(const PackCodesArguments& a, int64_t first_row, int64_t num_rows,
                                uint8_t* out) {
  const PwLinear& linear = *a.linear;
  const int64_t num_groups = linear.num_inputs / linear.group;
  const int64_t num_factors = num_groups / linear.factor_groups;
  const uint16_t* offset_factors = (const uint16_t*)a.codes->offset_factors;
  for (int64_t i = 0; i < num_factors; i++) {
    const GroupPlace place(linear, coded_group_bytes(linear), i * linear.factor_groups);
    uint16_t* to = (uint16_t*)(out + place.factors);
    for (int64_t lane = 0; lane < num_rows; lane++) {
      const int64_t from = (first_row + lane) * num_factors + i;
      to[lane] = ((const uint16_t*)a.codes->scale_factors)[from];
      if (offset_factors != nullptr) to[PANEL + lane] = offset_factors[from];
    }
  }
}

// Pack the rows of one panel. `first_row` is that of the codes; some may lie behind their end.
static inline void pack_panel_codes(const PackCodesArguments& a, int64_t first_row, uint8_t* out) {
  const PwLinear& linear = *a.linear;
  const int64_t size = linear.num_inputs, group = linear.group, num_groups = size / group;
  const int64_t scale = scale_bytes(linear), head = coded_head_bytes(linear);
  __builtin_memset(out, 0, (size_t)panel_bytes(linear));
  const int64_t num_rows = least(PANEL, a.num_rows - first_row);
  if (linear.factor_groups != 0) pack_factors(a, first_row, num_rows, out);
  GroupPlace place(linear, coded_group_bytes(linear), 0);
  for (int64_t g = 0; g < num_groups; g++, place.next()) {
    uint8_t *top = out + place.head, *to = top + head;
    for (int64_t lane = 0; lane < num_rows; lane++) {
      const int64_t from = ((first_row + lane) * num_groups + g) * scale;
      __builtin_memcpy(top + lane * scale, (const char*)a.codes->scales + from, (size_t)scale);
      if (a.codes->offsets != nullptr)
        __builtin_memcpy(top + (PANEL + lane) * scale, (const char*)a.codes->offsets + from,
                         (size_t)scale);
    }
    const uint8_t* codes = a.codes->codes + first_row * size + g * group;
    if (linear.kind != PW_CODES4) {
      for (int64_t k = 0; k < group; k += 2)
        for (int64_t lane = 0; lane < num_rows; lane++)
          __builtin_memcpy(to + k * PANEL + lane * 2, codes + lane * size + k, 2);
      continue;
    }
    for (int64_t k = 0; k < group; k += CHUNK)
      for (int64_t lane = 0; lane < num_rows; lane++) {
        const uint32_t word = word_of(codes + lane * size + k);
        __builtin_memcpy(to + k / 2 * PANEL + lane * 4, &word, 4);
      }
  }
}

static void pack_codes_job(PwPool* pool, const void* arguments, int thread) {
  const PackCodesArguments& a = *(const PackCodesArguments*)arguments;
  const int64_t num_panels = ceil_div(a.num_rows, PANEL), bytes = panel_bytes(*a.linear);
  for (int64_t panel; (panel = pool->next(0, thread, num_panels)) < num_panels;)
    pack_panel_codes(a, panel * PANEL,
                     (uint8_t*)a.linear->weight + (a.first_panel + panel * a.panel_step) * bytes);
}

// One weight of a packed panel.
static inline float coded_weight(const PwLinear& linear, const uint8_t* panel, int64_t lane,
                                 int64_t k) {
  const int64_t i = k % linear.group;
  const GroupHead group(panel, GroupPlace(linear, coded_group_bytes(linear), k / linear.group));
  const uint8_t* codes = group.head + coded_head_bytes(linear);
  alignas(64) float scales[PANEL], offsets[PANEL];
  store(scales, load_scales(linear, group));
  float code;
  if (linear.kind != PW_CODES4) {
    const uint8_t byte = codes[i / 2 * PANEL * 2 + lane * 2 + i % 2];
    code = linear.kind == PW_FLOATS8 ? linear.table[byte] : (float)(int8_t)byte;
  } else {
    uint32_t word;
    __builtin_memcpy(&word, codes + i / CHUNK * PANEL * 4 + lane * 4, 4);
    code = linear.table[word >> nibble_shift(i) & 15];
  }
  if (linear.offset_kind == PW_NO_OFFSETS) return code * scales[lane];
  store(offsets, load_scales(linear, group, 1));
  return linear.offset_kind == PW_ZERO_POINTS ? (code - offsets[lane]) * scales[lane]
                                              : code * scales[lane] + offsets[lane];
}

}  // namespace PW_ISA
