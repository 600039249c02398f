// Products of two rows by two columns with BFMMLA and SMMLA.
//
// BFMMLA does to each sum what BFDOT does with two pairs of inputs, one after the other (Arm
// Architecture Reference Manual, BFMatMulAdd), so a row has the bits that it has alone. Sums of SMMLA
// are whole numbers. Rows of a pair are 8 bytes each: 4 inputs of bfloat16 or 8 of int8. The columns
// for them are two lines of a panel, whose words alternate.
#pragma once

namespace PW_ISA {

// Sums of a pair of rows and 16 columns: each register has two columns of both rows.
template <class Q>
struct PairSums {
  Q q[8];
};

// Two registers of sums by row.
static inline float32x4_t first_row(float32x4_t x, float32x4_t y) {
  return vcombine_f32(vget_low_f32(x), vget_low_f32(y));
}
static inline float32x4_t second_row(float32x4_t x, float32x4_t y) {
  return vcombine_f32(vget_high_f32(x), vget_high_f32(y));
}
static inline int32x4_t first_row(int32x4_t x, int32x4_t y) {
  return vcombine_s32(vget_low_s32(x), vget_low_s32(y));
}
static inline int32x4_t second_row(int32x4_t x, int32x4_t y) {
  return vcombine_s32(vget_high_s32(x), vget_high_s32(y));
}
static inline V row_of(const PairSums<float32x4_t>& s, bool is_second) {
  auto row = [=](auto x, auto y) { return is_second ? second_row(x, y) : first_row(x, y); };
  return {row(s.q[0], s.q[1]), row(s.q[2], s.q[3]), row(s.q[4], s.q[5]), row(s.q[6], s.q[7])};
}
static inline VI row_of(const PairSums<int32x4_t>& s, bool is_second) {
  auto row = [=](auto x, auto y) { return is_second ? second_row(x, y) : first_row(x, y); };
  return {row(s.q[0], s.q[1]), row(s.q[2], s.q[3]), row(s.q[4], s.q[5]), row(s.q[6], s.q[7])};
}

static inline int32x4_t multiply_pair(int32x4_t sum, uint8x16_t rows, uint8x16_t columns) {
  return vmmlaq_s32(sum, vreinterpretq_s8_u8(rows), vreinterpretq_s8_u8(columns));
}
static inline float32x4_t multiply_pair(float32x4_t sum, uint8x16_t rows, uint8x16_t columns) {
  return vbfmmlaq_f32(sum, vreinterpretq_bf16_u8(rows), vreinterpretq_bf16_u8(columns));
}

// 8 bytes of two rows; the second one is 0 if there is none.
static inline uint8x16_t load_pair_of_rows(const void* first, const void* second) {
  const uint8x8_t one = vld1_u8((const uint8_t*)first);
  return vcombine_u8(one, second == nullptr ? vdup_n_u8(0) : vld1_u8((const uint8_t*)second));
}

// sums[pairs] += rows * 4 columns, whose words are those of the first and the second half of each row.
template <int P, class Q>
static inline __attribute__((always_inline)) void multiply_quarter(
    PairSums<Q> (&sums)[P], const uint8x16_t (&rows)[P], int quarter, uint8x16_t first,
    uint8x16_t second) {
  const uint32x4_t one = vreinterpretq_u32_u8(first), other = vreinterpretq_u32_u8(second);
  const uint8x16_t low = vreinterpretq_u8_u32(vzip1q_u32(one, other));
  const uint8x16_t high = vreinterpretq_u8_u32(vzip2q_u32(one, other));
#pragma GCC unroll 4
  for (int p = 0; p < P; p++) {
    Q* q = sums[p].q + 2 * quarter;
    q[0] = multiply_pair(q[0], rows[p], low);
    q[1] = multiply_pair(q[1], rows[p], high);
  }
}

// Rows of 8 bytes at `at`, `stride` bytes apart.
template <int M>
static inline __attribute__((always_inline)) void load_rows(const char* at, int64_t stride,
                                                            uint8x16_t (&rows)[(M + 1) / 2]) {
#pragma GCC unroll 4
  for (int p = 0; p < (M + 1) / 2; p++)
    rows[p] = load_pair_of_rows(at + 2 * p * stride,
                                2 * p + 1 < M ? at + (2 * p + 1) * stride : nullptr);
}

// Products of panels whose lines are multiplied as they are: bfloat16 and int8.
template <class T, class Q>
struct LinePairs {
  static constexpr bool EXISTS = true;
  typedef typename T::Element Element;
  typedef typename T::Input Input;
  static constexpr int64_t LINE = 64 / (int64_t)sizeof(Element);  // elements

  // out[M rows, stride] = x * panels
  template <int M, int NB>
  static __attribute__((noinline)) void tile(const Input* x, int64_t x_stride, int64_t size,
                                             GroupInput, const Element* const* panels, float* out,
                                             int64_t stride, const Prefetch<T>& prefetch) {
    constexpr int P = (M + 1) / 2;
    PairSums<Q> sums[NB][P];
#pragma GCC unroll 4
    for (int n = 0; n < NB; n++)
#pragma GCC unroll 4
      for (int p = 0; p < P; p++)
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) sums[n][p].q[i] = Q{};
    const int shift = prefetch.shift;
    for (int64_t k = 0; k < size; k += 2 * T::STEP) {
      const Element* const* ahead = k < prefetch.turn ? prefetch.ahead : prefetch.later;
      uint8x16_t rows[P];
      load_rows<M>((const char*)(x + k), x_stride * (int64_t)sizeof(Input), rows);
#pragma GCC unroll 4
      for (int n = 0; n < NB; n++) {
        const uint8_t* p = (const uint8_t*)(panels[n] + k * PANEL);
        __builtin_prefetch(ahead[n] + (k >> shift) * PANEL, 0, 2);
        __builtin_prefetch(ahead[n] + (k >> shift) * PANEL + LINE, 0, 2);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
          multiply_quarter<P>(sums[n], rows, i, columns(p + 16 * i), columns(p + 64 + 16 * i));
      }
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; m++)
#pragma GCC unroll 4
      for (int n = 0; n < NB; n++)
        store(out + m * stride + n * PANEL, row_of(sums[n][m / 2], m % 2));
  }

  static inline uint8x16_t columns(const uint8_t* p) {
    const uint8x16_t line = vld1q_u8(p);
    return sizeof(Input) == 1 ? veorq_u8(line, vdupq_n_u8(0x80)) : line;
  }
};

template <>
struct RowPairs<BFloat16> : LinePairs<BFloat16, float32x4_t> {};
template <>
struct RowPairs<Int8> : LinePairs<Int8, int32x4_t> {};

// The nibbles of a line are two lines.
template <>
struct RowPairs<Int4> {
  static constexpr bool EXISTS = true;

  // out[M rows, stride] = x * panels, without the scale of the rows.
  template <int M, int NB>
  static __attribute__((noinline)) void tile(const int8_t* x, int64_t x_stride, int64_t size,
                                             GroupInput input, const uint8_t* const* panels,
                                             float* out, int64_t stride,
                                             const Prefetch<Int4>& prefetch) {
    constexpr int P = (M + 1) / 2;
    const int64_t group = input.linear->group, group_bytes = GROUP_SCALES + group * PANEL / 2;
    for (int m = 0; m < M; m++)
      for (int n = 0; n < NB; n++) store(out + m * stride + n * PANEL, zero());
    for (int64_t g = 0; g < size / group; g++) {
      const int64_t later = (g + INT4_GROUPS_AHEAD) * group - size;
      for (int n = 0; n < NB; n++) {
        const uint8_t* p = panels[n] + g * group_bytes;
        const uint8_t* ahead = later < 0 ? p + INT4_GROUPS_AHEAD * group_bytes
                                         : prefetch.later[n] + later / group * group_bytes;
        PairSums<int32x4_t> sums[P];
#pragma GCC unroll 4
        for (int i = 0; i < P; i++)
#pragma GCC unroll 8
          for (int j = 0; j < 8; j++) sums[i].q[j] = vdupq_n_s32(0);
        for (int64_t k = 0; k < group; k += 8) {
          const uint8_t* line = p + GROUP_SCALES + k * PANEL / 2;
          __builtin_prefetch(ahead + k * PANEL / 2, 0, 2);
          uint8x16_t rows[P];
          load_rows<M>((const char*)(x + g * group + k), x_stride, rows);
#pragma GCC unroll 4
          for (int i = 0; i < 4; i++) {
            const uint8x16_t both = vld1q_u8(line + 16 * i);
            multiply_quarter<P>(sums, rows, i, vandq_u8(both, vdupq_n_u8(15)), vshrq_n_u8(both, 4));
          }
        }
        const V scales = load((const float*)p);
#pragma GCC unroll 8
        for (int m = 0; m < M; m++) {
          const VI offset = integers(Int4::OFFSET * sums_of(x + m * x_stride, size)[g]);
          float* sum = out + m * stride + n * PANEL;
          const VI whole = subtract(row_of(sums[m / 2], m % 2), offset);
          store(sum, fma(to_floats(whole), scales, load(sum)));
        }
      }
    }
  }
};

// Codes become pairs of bfloat16 first, two at a time.
template <int BITS>
struct RowPairs<Codes<BFloat16, BITS>> {
  static constexpr bool EXISTS = true;
  typedef Codes<BFloat16, BITS> Type;
  typedef BFloat16::Columns Columns;

  // out[M rows, stride] = x * panels
  template <int M, int NB>
  static __attribute__((noinline)) void tile(const Bf16* x, int64_t x_stride, int64_t size,
                                             GroupInput input, const uint8_t* const* panels,
                                             float* out, int64_t stride,
                                             const Prefetch<Type>& prefetch) {
    constexpr int P = (M + 1) / 2;
    const PwLinear& linear = *input.linear;
    const BFloat16::Table table = BFloat16::code_table(linear.table);
    const int64_t group = linear.group, head = coded_head_bytes(linear);
    const int64_t step = Type::group_bytes(linear);
    const int64_t panel_end = GroupPlace(linear, step, size / group).head;
    GroupPlace place(linear, step, 0);
    for (int m = 0; m < M; m++)
      for (int n = 0; n < NB; n++) store(out + m * stride + n * PANEL, zero());
    for (int64_t g = 0; g < size / group; g++, place.next()) {
      const int64_t at = place.head, later = at + head + CODES_AHEAD;
      for (int n = 0; n < NB; n++) {
        const uint8_t* ahead = later < panel_end ? panels[n] + later
                                                 : prefetch.later[n] + later - panel_end;
        PairSums<float32x4_t> sums[P];
#pragma GCC unroll 4
        for (int i = 0; i < P; i++)
#pragma GCC unroll 8
          for (int j = 0; j < 8; j++) sums[i].q[j] = vdupq_n_f32(0.0f);
        multiply_group<M>(sums, x + g * group, x_stride, group, table, panels[n] + at + head, ahead);
        finish_group<M>(sums, linear, GroupHead(panels[n], place), input.totals + g, size / group,
                        out + n * PANEL, stride);
      }
    }
  }

  // sums += x * codes for the inputs of one group.
  template <int M>
  static inline __attribute__((always_inline)) void multiply_group(
      PairSums<float32x4_t> (&sums)[(M + 1) / 2], const Bf16* x, int64_t x_stride, int64_t group,
      const BFloat16::Table& table, const uint8_t* codes, const uint8_t* ahead) {
    constexpr int P = (M + 1) / 2;
    for (int64_t k = 0, at = 0; k < group; k += CHUNK, at += Type::CHUNK_BYTES) {
      if constexpr (BITS != WIDENED) __builtin_prefetch(ahead + at, 0, 2);
      if constexpr (Type::HAS_BYTES) __builtin_prefetch(ahead + at + 64, 0, 2);
      VI words;
      if constexpr (BITS == 4) words = bytes(codes + at);
#pragma GCC unroll 2
      for (int half = 0; half < 2; half++) {
        Columns w[2];
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
          const int pair = 2 * half + i;
          if constexpr (BITS == 4)
            BFloat16::next_pair(table, words, w + i);
          else if constexpr (BITS == WIDENED)
            BFloat16::load_pair(codes + at + pair * BFloat16::PAIR_BYTES, w + i);
          else
            Type::byte_pair(codes + at + pair * PANEL * 2, w + i);
        }
        uint8x16_t rows[P];
        load_rows<M>((const char*)(x + k + 4 * half), x_stride * 2, rows);
        auto line = [](uint16x8_t one) { return vreinterpretq_u8_u16(one); };
        multiply_quarter<P>(sums, rows, 0, line(w[0].a), line(w[1].a));
        multiply_quarter<P>(sums, rows, 1, line(w[0].b), line(w[1].b));
        multiply_quarter<P>(sums, rows, 2, line(w[0].c), line(w[1].c));
        multiply_quarter<P>(sums, rows, 3, line(w[0].d), line(w[1].d));
      }
    }
  }

  // out += the scaled sums of one group; `top` is its head, `totals` those of its inputs.
  template <int M>
  static inline __attribute__((always_inline)) void finish_group(
      const PairSums<float32x4_t> (&sums)[(M + 1) / 2], const PwLinear& linear,
      const GroupHead& top, const float* totals, int64_t num_groups, float* out, int64_t stride) {
    const V scales = load_scales(linear, top);
    const bool has_added = linear.offset_kind != PW_NO_OFFSETS;
    const V added = has_added ? added_of(linear, top, scales) : zero();
#pragma GCC unroll 8
    for (int m = 0; m < M; m++) {
      float* sum = out + m * stride;
      V scaled = fma(row_of(sums[m / 2], m % 2), scales, load(sum));
      if (has_added) scaled = fma(added, set1(totals[m * num_groups]), scaled);
      store(sum, scaled);
    }
  }
};

}  // namespace PW_ISA
