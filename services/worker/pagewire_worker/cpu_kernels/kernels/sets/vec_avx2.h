// Sixteen floats in two AVX registers. Included by avx2.cpp only.
#pragma once
#include <immintrin.h>

#include "types.h"

namespace PW_ISA {

struct V {
  __m256 low, high;
};
typedef uint32_t Words __attribute__((vector_size(32)));

// The halves of the products of 32-bit numbers.
static inline void multiply_words(Words a, uint32_t by, Words* low, Words* high) {
  const __m256i x = (__m256i)a, factor = _mm256_set1_epi32((int32_t)by);
  const __m256i even = _mm256_mul_epu32(x, factor);
  const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), factor);
  *low = (Words)_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
  *high = (Words)_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
}

#define PW_PAIRWISE(name, op)                                                       \
  static inline V name(V a, V b) { return {op(a.low, b.low), op(a.high, b.high)}; }
PW_PAIRWISE(add, _mm256_add_ps)
PW_PAIRWISE(sub, _mm256_sub_ps)
PW_PAIRWISE(mul, _mm256_mul_ps)
PW_PAIRWISE(div, _mm256_div_ps)
PW_PAIRWISE(max, _mm256_max_ps)
PW_PAIRWISE(min, _mm256_min_ps)
#undef PW_PAIRWISE

static inline V zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
static inline V set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
static inline V load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
static inline void store(float* p, V x) {
  _mm256_storeu_ps(p, x.low);
  _mm256_storeu_ps(p + 8, x.high);
}
static inline V fma(V a, V b, V c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
static inline V round_even(V x) {
  constexpr int mode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.low, mode), _mm256_round_ps(x.high, mode)};
}
static inline __m256 scale_half(__m256 p, __m256 n) {
  __m256i bits = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), bits));
}
// p * 2^n for integral n with a normal result.
static inline V scale_by_power(V p, V n) {
  return {scale_half(p.low, n.low), scale_half(p.high, n.high)};
}
static inline __m256 scale_half_or_vanish(__m256 p, __m256 n) {
  __m256 least = _mm256_set1_ps(-126.0f);
  __m256 scaled = scale_half(p, _mm256_max_ps(n, least));
  return _mm256_and_ps(_mm256_cmp_ps(n, least, _CMP_GE_OQ), scaled);
}
// p * 2^n for integral n up to 127; 0 if the result is too small.
static inline V scale_or_vanish(V p, V n) {
  return {scale_half_or_vanish(p.low, n.low), scale_half_or_vanish(p.high, n.high)};
}
// x minus its floor; `whole` becomes the floor, for scale_or_vanish.
static inline V fraction_of(V x, V* whole) {
  *whole = {_mm256_floor_ps(x.low), _mm256_floor_ps(x.high)};
  return sub(x, *whole);
}
// x where a > b, else y.
static inline V select_greater(V a, V b, V x, V y) {
  return {_mm256_blendv_ps(y.low, x.low, _mm256_cmp_ps(a.low, b.low, _CMP_GT_OQ)),
          _mm256_blendv_ps(y.high, x.high, _mm256_cmp_ps(a.high, b.high, _CMP_GT_OQ))};
}
static inline __m256 half_in_range(__m256 x, __m256 other, int first, int end) {
  __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  __m256i inside = _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(first), lanes),
                                       _mm256_cmpgt_epi32(_mm256_set1_epi32(end), lanes));
  return _mm256_blendv_ps(other, x, _mm256_castsi256_ps(inside));
}
// x in the lanes first <= i < end, `other` elsewhere.
static inline V in_range(V x, V other, int first, int end) {
  return {half_in_range(x.low, other.low, first, end),
          half_in_range(x.high, other.high, first - 8, end - 8)};
}

// Halves of the register are added repeatedly; the greatest lane is found in the same way.
static inline float sum_of(V x) {
  __m256 half = _mm256_add_ps(x.low, x.high);
  __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  __m128 two = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
static inline float greatest_of(V x) {
  __m256 half = _mm256_max_ps(x.low, x.high);
  __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  __m128 two = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

// A float16 times 2^-112 has the same digits as a float; products with powers of 2 are exact. One that
// is too small for a normal number is its digits times 2^-24: floats below the normal ones are zeros.
static inline __m256 widen_fp16(__m128i half) {
  __m256i bits = _mm256_cvtepu16_epi32(half);
  __m256i number = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fff));
  __m256i rest = _mm256_slli_epi32(number, 13);
  __m256i sign = _mm256_slli_epi32(_mm256_srli_epi32(bits, 15), 31);
  __m256 normal = _mm256_mul_ps(_mm256_castsi256_ps(rest), _mm256_set1_ps(0x1p112f));
  __m256 small = _mm256_mul_ps(_mm256_cvtepi32_ps(number), _mm256_set1_ps(0x1p-24f));
  __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x400), number);
  __m256 size = _mm256_blendv_ps(normal, small, _mm256_castsi256_ps(is_small));
  return _mm256_or_ps(size, _mm256_castsi256_ps(sign));
}
static inline V load(const Fp16* p) {
  return {widen_fp16(_mm_loadu_si128((const __m128i*)p)),
          widen_fp16(_mm_loadu_si128((const __m128i*)p + 1))};
}

static inline __m256 widen(__m128i half) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}
static inline V load(const Bf16* p) {
  return {widen(_mm_loadu_si128((const __m128i*)p)), widen(_mm_loadu_si128((const __m128i*)p + 1))};
}
// The upper half of each float, rounded to even, in the lower 16 bits of its lane.
static inline __m256i narrow(__m256 x) {
  __m256i u = _mm256_castps_si256(x);
  __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  __m256i rounded = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  __m256 is_nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
  return _mm256_blendv_epi8(_mm256_srli_epi32(rounded, 16), _mm256_set1_epi32(0x7fc0),
                            _mm256_castps_si256(is_nan));
}
static inline void store(Bf16* p, V x) {
  __m256i both = _mm256_packus_epi32(narrow(x.low), narrow(x.high));
  _mm256_storeu_si256((__m256i*)p, _mm256_permute4x64_epi64(both, 0xd8));
}

// Sixteen integers, and their inner products with four bytes each.
struct VI {
  __m256i low, high;
};

static inline VI no_integers() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
static inline VI integers(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
static inline VI load_integers(const float* p) {
  return {_mm256_loadu_si256((const __m256i*)p), _mm256_loadu_si256((const __m256i*)p + 1)};
}
static inline void store(float* p, VI x) {
  _mm256_storeu_si256((__m256i*)p, x.low);
  _mm256_storeu_si256((__m256i*)p + 1, x.high);
}
static inline VI subtract(VI a, VI b) {
  return {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)};
}
static inline __m256 widen_bytes(const int8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)p)));
}
static inline V load_bytes(const int8_t* p) { return {widen_bytes(p), widen_bytes(p + 8)}; }
// Store whole numbers in the range of bytes as bytes.
static inline void store_bytes(int8_t* p, V x) {
  // Each half of 128 bits is packed separately, so the words must be permuted.
  __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(x.low), _mm256_cvtps_epi32(x.high));
  words = _mm256_permute4x64_epi64(words, 0xd8);
  __m128i low = _mm256_castsi256_si128(words), high = _mm256_extracti128_si256(words, 1);
  _mm_storeu_si128((__m128i*)p, _mm_packs_epi16(low, high));
}
static inline V to_floats(VI x) { return {_mm256_cvtepi32_ps(x.low), _mm256_cvtepi32_ps(x.high)}; }

struct FourBytes {
  __m256i even, odd;  // of one input, in all lanes
};
static inline FourBytes four_bytes(const int8_t* p) {
  __m256i x = _mm256_set1_epi32(*(const int32_alias*)p);
  return {_mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8), _mm256_srai_epi16(x, 8)};
}
static inline __m256i half_dot4(__m256i sum, __m256i w, FourBytes x) {
  __m256i even = _mm256_and_si256(w, _mm256_set1_epi16(0xff)), odd = _mm256_srli_epi16(w, 8);
  sum = _mm256_add_epi32(sum, _mm256_madd_epi16(even, x.even));
  return _mm256_add_epi32(sum, _mm256_madd_epi16(odd, x.odd));
}
// sum + w * x; w is unsigned.
static inline VI dot4(VI sum, VI w, FourBytes x) {
  return {half_dot4(sum.low, w.low, x), half_dot4(sum.high, w.high, x)};
}
static inline VI bytes(const uint8_t* p) { return load_integers((const float*)p); }
// Columns of int8, and what is left of the offset of bytes.
static constexpr int COLUMN_OFFSET = 128;
static inline VI byte_columns(const uint8_t* p) { return bytes(p); }
static inline VI low_nibbles(VI x) {
  __m256i mask = _mm256_set1_epi8(15);
  return {_mm256_and_si256(x.low, mask), _mm256_and_si256(x.high, mask)};
}
static inline VI high_nibbles(VI x) {
  return low_nibbles({_mm256_srli_epi16(x.low, 4), _mm256_srli_epi16(x.high, 4)});
}

static inline void widen_half_pairs(const int8_t* p, __m256* first, __m256* second) {
  __m256i pairs = _mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i*)p));
  *first = _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(pairs, 24), 24));
  *second = _mm256_cvtepi32_ps(_mm256_srai_epi32(pairs, 8));
}
// The two inputs of 16 pairs of signed bytes.
static inline void widen_pairs(const int8_t* p, V* first, V* second) {
  widen_half_pairs(p, &first->low, &second->low);
  widen_half_pairs(p + 16, &first->high, &second->high);
}

// Floats of 8 bits, e4m3fn, in the lower bytes; as in widen_fp16.
static inline __m256 widen_float8(__m256i bits) {
  __m256i number = _mm256_and_si256(bits, _mm256_set1_epi32(0x7f));
  __m256i sign = _mm256_slli_epi32(_mm256_srli_epi32(bits, 7), 31);
  __m256i rest = _mm256_slli_epi32(number, 20);
  __m256 normal = _mm256_mul_ps(_mm256_castsi256_ps(rest), _mm256_set1_ps(0x1p120f));
  __m256 small = _mm256_mul_ps(_mm256_cvtepi32_ps(number), _mm256_set1_ps(0x1p-9f));
  __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(8), number);
  __m256 size = _mm256_blendv_ps(normal, small, _mm256_castsi256_ps(is_small));
  return _mm256_or_ps(size, _mm256_castsi256_ps(sign));
}
static inline void widen_half_float_pairs(const uint8_t* p, __m256* first, __m256* second) {
  __m256i pairs = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p));
  *first = widen_float8(pairs);
  *second = widen_float8(_mm256_srli_epi32(pairs, 8));
}
// The two inputs of 16 pairs of floats of 8 bits.
static inline void widen_float_pairs(const uint8_t* p, V* first, V* second) {
  widen_half_float_pairs(p, &first->low, &second->low);
  widen_half_float_pairs(p + 16, &first->high, &second->high);
}

static inline __m256 look_up(V table, __m256i index) {
  // Bit 3 of the index becomes the sign, which selects the half; the lower 3 bits count in both.
  return _mm256_blendv_ps(_mm256_permutevar8x32_ps(table.low, index),
                          _mm256_permutevar8x32_ps(table.high, index),
                          _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
}
// The values of two nibbles of each word, that at bit 0 and that at bit 16; the next ones move there.
static inline void look_up_pairs(V table, VI& words, V* first, V* second) {
  *first = {look_up(table, words.low), look_up(table, words.high)};
  *second = {look_up(table, _mm256_srli_epi32(words.low, 16)),
             look_up(table, _mm256_srli_epi32(words.high, 16))};
  words = {_mm256_srli_epi32(words.low, 4), _mm256_srli_epi32(words.high, 4)};
}

// The values of codes of 4 bits. Those of most formats are whole numbers in a row, which are computed:
// that takes less than looking them up, and gives the same bits.
struct CodeTable {
  V values;
  __m256 below_first, below_second;  // see next_in_row
  bool is_row;
};
static inline CodeTable code_table(const float* values) {
  if (values == nullptr) return {zero(), _mm256_setzero_ps(), _mm256_setzero_ps(), false};
  const float start = values[0];
  bool is_row = start > -99.0f && start < 99.0f && start == (float)(int)start;
  for (int i = 1; i < 16; i++) is_row = is_row && values[i] == start + (float)i;
  return {load(values), _mm256_set1_ps(8388608.0f - start), _mm256_set1_ps(128.0f - start), is_row};
}
static inline __m256 number_of(__m256i word, int mask, int base, __m256 below) {
  const __m256i digits = _mm256_and_si256(word, _mm256_set1_epi32(mask));
  const __m256i number = _mm256_or_si256(digits, _mm256_set1_epi32(base));
  return _mm256_sub_ps(_mm256_castsi256_ps(number), below);
}
// What look_up_pairs gives. The nibbles become digits of a float: from 2^23 on, bit 0 counts 1, and from
// 2^7 on bit 16 does.
static inline void next_in_row(const CodeTable& table, VI& words, V* first, V* second) {
  *first = {number_of(words.low, 15, 0x4b000000, table.below_first),
            number_of(words.high, 15, 0x4b000000, table.below_first)};
  *second = {number_of(words.low, 15 << 16, 0x43000000, table.below_second),
             number_of(words.high, 15 << 16, 0x43000000, table.below_second)};
  words = {_mm256_srli_epi32(words.low, 4), _mm256_srli_epi32(words.high, 4)};
}

struct Float32 {
  typedef float Element;
  typedef float Input;
  typedef V Sum;
  typedef V Columns;
  typedef __m256 Scalar;
  static constexpr int STEP = 1;
  static constexpr bool HAS_GROUPS = false;
  static inline Columns columns(const float* p) { return load(p); }
  static inline Scalar scalar(const float* p) { return _mm256_set1_ps(*p); }
  static inline V dot(V sum, Columns w, Scalar x) {
    return {_mm256_fmadd_ps(w.low, x, sum.low), _mm256_fmadd_ps(w.high, x, sum.high)};
  }
  static inline Columns first_only(Columns w) { return w; }
  static inline Sum nothing() { return zero(); }
  // The columns of two inputs of a matrix of codes, for codes.h.
  typedef CodeTable Table;
  static constexpr bool COMPUTES_ROWS = true;
  static inline Table code_table(const float* values) { return PW_ISA::code_table(values); }
  static inline void next_pair(const Table& table, VI& words, Columns* w) {
    look_up_pairs(table.values, words, w, w + 1);
  }
  static inline void next_pair_in_row(const Table& table, VI& words, Columns* w) {
    next_in_row(table, words, w, w + 1);
  }
  static inline void byte_pair(const int8_t* p, Columns* w) { widen_pairs(p, w, w + 1); }
  static inline void float_pair(const uint8_t* p, Columns* w) { widen_float_pairs(p, w, w + 1); }
  static constexpr int64_t PAIR_BYTES = 2 * PANEL * 4;
  static inline void load_pair(const uint8_t* p, Columns* w) {
    w[0] = load((const float*)p);
    w[1] = load((const float*)p + PANEL);
  }
  static inline void store_pair(uint8_t* p, const Columns* w) {
    store((float*)p, w[0]);
    store((float*)p + PANEL, w[1]);
  }
};

struct BFloat16 {
  typedef Bf16 Element;
  typedef Bf16 Input;
  typedef V Sum;
  static constexpr int STEP = 2;
  static constexpr bool HAS_GROUPS = false;
  static inline Sum nothing() { return zero(); }
  struct Columns {
    V first, second;
  };
  struct Scalar {
    __m256 first, second;
  };
  static inline Scalar split(__m256i pairs) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)),
            _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32((int)0xffff0000u)))};
  }
  static inline Columns columns(const Bf16* p) {
    Scalar low = split(_mm256_loadu_si256((const __m256i*)p));
    Scalar high = split(_mm256_loadu_si256((const __m256i*)p + 1));
    return {{low.first, high.first}, {low.second, high.second}};
  }
  static inline Scalar scalar(const Bf16* p) {
    return split(_mm256_set1_epi32(*(const int32_alias*)p));
  }
  static inline V dot(V sum, Columns w, Scalar x) {
    V first = {_mm256_fmadd_ps(w.first.low, x.first, sum.low),
               _mm256_fmadd_ps(w.first.high, x.first, sum.high)};
    return {_mm256_fmadd_ps(w.second.low, x.second, first.low),
            _mm256_fmadd_ps(w.second.high, x.second, first.high)};
  }
  static inline Columns first_only(Columns w) { return {w.first, zero()}; }
  typedef CodeTable Table;
  static constexpr bool COMPUTES_ROWS = true;
  static inline Table code_table(const float* values) { return PW_ISA::code_table(values); }
  static inline void next_pair(const Table& table, VI& words, Columns* w) {
    look_up_pairs(table.values, words, &w->first, &w->second);
  }
  static inline void next_pair_in_row(const Table& table, VI& words, Columns* w) {
    next_in_row(table, words, &w->first, &w->second);
  }
  static inline void byte_pair(const int8_t* p, Columns* w) {
    widen_pairs(p, &w->first, &w->second);
  }
  static inline void float_pair(const uint8_t* p, Columns* w) {
    widen_float_pairs(p, &w->first, &w->second);
  }
  static constexpr int64_t PAIR_BYTES = 2 * PANEL * 4;
  static inline void load_pair(const uint8_t* p, Columns* w) {
    w->first = load((const float*)p);
    w->second = load((const float*)p + PANEL);
  }
  static inline void store_pair(uint8_t* p, const Columns* w) {
    store((float*)p, w->first);
    store((float*)p + PANEL, w->second);
  }
};

static constexpr int TILE_ROWS = 4;
static constexpr int WIDE_TILE_ROWS = 4;
static constexpr int TILE_SUMS = 4;
static constexpr int SPARE_REGISTERS = 3;  // beside the sums
static constexpr int WIDEST_TILE = 1;

}  // namespace PW_ISA
