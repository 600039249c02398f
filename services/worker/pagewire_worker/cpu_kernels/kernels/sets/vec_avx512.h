// Sixteen floats in one AVX-512 register. Included by avx512.cpp and avx512bf16.cpp only.
#pragma once
#include <immintrin.h>

#include "types.h"

namespace PW_ISA {

typedef __m512 V;
typedef uint32_t Words __attribute__((vector_size(64)));

// The halves of the products of 32-bit numbers.
static inline void multiply_words(Words a, uint32_t by, Words* low, Words* high) {
  const __m512i x = (__m512i)a, factor = _mm512_set1_epi32((int32_t)by);
  const __m512i even = _mm512_mul_epu32(x, factor);
  const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(x, 32), factor);
  *low = (Words)_mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64(odd, 32));
  *high = (Words)_mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 32), odd);
}

static inline V zero() { return _mm512_setzero_ps(); }
static inline V set1(float x) { return _mm512_set1_ps(x); }
static inline V load(const float* p) { return _mm512_loadu_ps(p); }
static inline void store(float* p, V x) { _mm512_storeu_ps(p, x); }
static inline V add(V a, V b) { return _mm512_add_ps(a, b); }
static inline V sub(V a, V b) { return _mm512_sub_ps(a, b); }
static inline V mul(V a, V b) { return _mm512_mul_ps(a, b); }
static inline V div(V a, V b) { return _mm512_div_ps(a, b); }
static inline V max(V a, V b) { return _mm512_max_ps(a, b); }
static inline V min(V a, V b) { return _mm512_min_ps(a, b); }
static inline V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
static inline V round_even(V x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// p * 2^n for integral n with a normal result.
static inline V scale_by_power(V p, V n) {
  __m512i bits = _mm512_slli_epi32(_mm512_cvtps_epi32(n), 23);
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), bits));
}
// p * 2^n for integral n of any size; 0 if the result is too small.
static inline V scale_or_vanish(V p, V n) { return _mm512_scalef_ps(p, n); }
// x minus its floor; `whole` becomes x itself, because scale_or_vanish rounds down.
static inline V fraction_of(V x, V* whole) {
  *whole = x;
  return _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}
// x where a > b, else y.
static inline V select_greater(V a, V b, V x, V y) {
  return _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), x);
}
// x in the lanes first <= i < end, `other` elsewhere.
static inline V in_range(V x, V other, int first, int end) {
  uint32_t below = end >= 16 ? 0xffffu : end <= 0 ? 0u : (1u << end) - 1;
  uint32_t under = first >= 16 ? 0xffffu : first <= 0 ? 0u : (1u << first) - 1;
  return _mm512_mask_mov_ps(other, (__mmask16)(below & ~under), x);
}

// Halves of the register are added repeatedly; the greatest lane is found in the same way.
static inline float sum_of(V x) {
  __m256 half = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  __m128 two = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
static inline float greatest_of(V x) {
  __m256 half = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  __m128 two = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

static inline V load(const Bf16* p) {
  __m256i half = _mm256_loadu_si256((const __m256i*)p);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}
static inline V load(const Fp16* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p));
}
static inline void store(Bf16* p, V x) {
#ifdef __AVX512BF16__
  _mm256_storeu_si256((__m256i*)p, (__m256i)_mm512_cvtneps_pbh(x));
#else
  __m512i u = _mm512_castps_si512(x);
  __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  __m512i rounded = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  __m512i high = _mm512_srli_epi32(rounded, 16);
  __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  high = _mm512_mask_mov_epi32(high, is_nan, _mm512_set1_epi32(0x7fc0));
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtepi32_epi16(high));
#endif
}

// Sixteen integers, and their inner products with four bytes each.
typedef __m512i VI;

static inline VI no_integers() { return _mm512_setzero_si512(); }
static inline VI integers(int32_t x) { return _mm512_set1_epi32(x); }
static inline VI load_integers(const float* p) { return _mm512_loadu_si512(p); }
static inline void store(float* p, VI x) { _mm512_storeu_si512(p, x); }
static inline VI subtract(VI a, VI b) { return _mm512_sub_epi32(a, b); }
static inline V load_bytes(const int8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p)));
}
// Store whole numbers in the range of bytes as bytes.
static inline void store_bytes(int8_t* p, V x) {
  _mm_storeu_si128((__m128i*)p, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x)));
}
static inline V to_floats(VI x) { return _mm512_cvtepi32_ps(x); }

#ifdef __AVX512VNNI__
typedef __m512i FourBytes;  // of one input, in all lanes
static inline FourBytes four_bytes(const int8_t* p) {
  return _mm512_set1_epi32(*(const int32_alias*)p);
}
// sum + w * x; w is unsigned.
static inline VI dot4(VI sum, VI w, FourBytes x) { return _mm512_dpbusd_epi32(sum, w, x); }
#else
struct FourBytes {
  __m512i even, odd;
};
static inline FourBytes four_bytes(const int8_t* p) {
  __m512i x = _mm512_set1_epi32(*(const int32_alias*)p);
  return {_mm512_srai_epi16(_mm512_slli_epi16(x, 8), 8), _mm512_srai_epi16(x, 8)};
}
static inline VI dot4(VI sum, VI w, FourBytes x) {
  __m512i even = _mm512_and_si512(w, _mm512_set1_epi16(0xff)), odd = _mm512_srli_epi16(w, 8);
  sum = _mm512_add_epi32(sum, _mm512_madd_epi16(even, x.even));
  return _mm512_add_epi32(sum, _mm512_madd_epi16(odd, x.odd));
}
#endif
static inline VI bytes(const uint8_t* p) { return _mm512_loadu_si512(p); }
// Columns of int8, and what is left of the offset of bytes.
static constexpr int COLUMN_OFFSET = 128;
static inline VI byte_columns(const uint8_t* p) { return bytes(p); }
static inline VI low_nibbles(VI x) { return _mm512_and_si512(x, _mm512_set1_epi8(15)); }
static inline VI high_nibbles(VI x) { return low_nibbles(_mm512_srli_epi16(x, 4)); }

// The first and the second of 16 pairs, and of one pair in all lanes.
static inline void split_pairs(__m512i pairs, V* first, V* second) {
  *first = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
  *second = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000u)));
}
static inline void split_pairs(const Bf16* p, V* first, V* second) {
  split_pairs(_mm512_loadu_si512(p), first, second);
}
static inline void broadcast_pair(const Bf16* p, V* first, V* second) {
  split_pairs(_mm512_set1_epi32(*(const int32_alias*)p), first, second);
}

// The two inputs of 16 pairs of signed bytes.
static inline void widen_pairs(const int8_t* p, V* first, V* second) {
  __m512i pairs = _mm512_cvtepi16_epi32(_mm256_loadu_si256((const __m256i*)p));
  *first = _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(pairs, 24), 24));
  *second = _mm512_cvtepi32_ps(_mm512_srai_epi32(pairs, 8));
}

// The two inputs of 16 pairs of floats of 8 bits, e4m3fn. Float16 has their digits; its exponent
// counts from 15, and theirs from 7.
static inline void widen_float_pairs(const uint8_t* p, V* first, V* second) {
  __m256i pairs = _mm256_loadu_si256((const __m256i*)p);
  __m256i sign = _mm256_set1_epi16((short)0x8000), number = _mm256_set1_epi16(0x3f80);
  __m256i low = _mm256_or_si256(_mm256_and_si256(_mm256_slli_epi16(pairs, 8), sign),
                                _mm256_and_si256(_mm256_slli_epi16(pairs, 7), number));
  __m256i high = _mm256_or_si256(_mm256_and_si256(pairs, sign),
                                 _mm256_and_si256(_mm256_srli_epi16(pairs, 1), number));
  *first = _mm512_mul_ps(_mm512_cvtph_ps(low), _mm512_set1_ps(256.0f));
  *second = _mm512_mul_ps(_mm512_cvtph_ps(high), _mm512_set1_ps(256.0f));
}

// The values of two nibbles of each word, that at bit 0 and that at bit 16; the next ones move there.
static inline void look_up_pairs(V table, VI& words, V* first, V* second) {
  // Only the lower 4 bits of an index count.
  *first = _mm512_permutexvar_ps(words, table);
  *second = _mm512_permutexvar_ps(_mm512_srli_epi32(words, 16), table);
  words = _mm512_srli_epi32(words, 4);
}

// The inner product over one step of K for 16 columns, which a panel stores together.
struct Float32 {
  typedef float Element;
  typedef float Input;
  typedef V Sum;
  typedef __m512 Columns;
  typedef __m512 Scalar;
  static constexpr int STEP = 1;
  static constexpr bool HAS_GROUPS = false;
  static inline Columns columns(const float* p) { return _mm512_loadu_ps(p); }
  static inline Scalar scalar(const float* p) { return _mm512_set1_ps(*p); }
  static inline V dot(V sum, Columns w, Scalar x) { return _mm512_fmadd_ps(w, x, sum); }
  static inline Columns first_only(Columns w) { return w; }
  static inline Sum nothing() { return zero(); }
  // The columns of two inputs of a matrix of codes, for codes.h.
  typedef V Table;
  static constexpr bool COMPUTES_ROWS = false;
  static inline Table code_table(const float* values) { return values ? load(values) : zero(); }
  static inline void next_pair(Table table, VI& words, Columns* w) {
    look_up_pairs(table, words, w, w + 1);
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
#ifdef __AVX512BF16__
  typedef __m512bh Columns;
  typedef __m512bh Scalar;
  static inline Columns columns(const Bf16* p) { return (__m512bh)_mm512_loadu_si512(p); }
  static inline Scalar scalar(const Bf16* p) {
    return (__m512bh)_mm512_set1_epi32(*(const int32_alias*)p);
  }
  static inline V dot(V sum, Columns w, Scalar x) { return _mm512_dpbf16_ps(sum, w, x); }
  static inline Columns first_only(Columns w) {
    return (__m512bh)_mm512_and_si512((__m512i)w, _mm512_set1_epi32(0xffff));
  }
  typedef __m512i Table;  // twice, because the lower 5 bits of an index count
  static constexpr bool COMPUTES_ROWS = false;
  static inline Table code_table(const float* values) {
    V table = values ? load(values) : zero();
    return (__m512i)_mm512_cvtne2ps_pbh(table, table);
  }
  static inline void next_pair(Table table, VI& words, Columns* w) {
    *w = (__m512bh)_mm512_permutexvar_epi16(words, table);
    words = _mm512_srli_epi32(words, 4);
  }
  // Whole numbers of 8 bits are exact in bfloat16.
  static inline void byte_pair(const int8_t* p, Columns* w) {
    __m512i low = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p));
    __m512i high = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p + 1));
    *w = _mm512_cvtne2ps_pbh(_mm512_cvtepi32_ps(high), _mm512_cvtepi32_ps(low));
  }
  static inline void float_pair(const uint8_t* p, Columns* w) {
    V first, second;
    widen_float_pairs(p, &first, &second);
    // bfloat16 has their values, so no bits are lost.
    __m512i low = _mm512_srli_epi32(_mm512_castps_si512(first), 16);
    __m512i high = _mm512_and_si512(_mm512_castps_si512(second), _mm512_set1_epi32((int)0xffff0000u));
    *w = (__m512bh)_mm512_or_si512(low, high);
  }
  static constexpr int64_t PAIR_BYTES = 64;
  static inline void load_pair(const uint8_t* p, Columns* w) { *w = columns((const Bf16*)p); }
  static inline void store_pair(uint8_t* p, const Columns* w) {
    _mm512_storeu_si512(p, (__m512i)*w);
  }
#else
  struct Columns {
    __m512 first, second;
  };
  typedef Columns Scalar;
  static inline Columns split(__m512i pairs) {
    Columns result;
    split_pairs(pairs, &result.first, &result.second);
    return result;
  }
  static inline Columns columns(const Bf16* p) { return split(_mm512_loadu_si512(p)); }
  static inline Scalar scalar(const Bf16* p) {
    return split(_mm512_set1_epi32(*(const int32_alias*)p));
  }
  static inline V dot(V sum, Columns w, Scalar x) {
    return _mm512_fmadd_ps(w.second, x.second, _mm512_fmadd_ps(w.first, x.first, sum));
  }
  static inline Columns first_only(Columns w) { return {w.first, _mm512_setzero_ps()}; }
  typedef V Table;
  static constexpr bool COMPUTES_ROWS = false;
  static inline Table code_table(const float* values) { return values ? load(values) : zero(); }
  static inline void next_pair(Table table, VI& words, Columns* w) {
    look_up_pairs(table, words, &w->first, &w->second);
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
#endif
};

static constexpr int TILE_ROWS = 8;       // most rows of a tile of the matrix product
static constexpr int WIDE_TILE_ROWS = 6;  // rows of a wide tile
static constexpr int TILE_SUMS = 24;      // registers for its sums
static constexpr int SPARE_REGISTERS = 6;  // beside the sums
static constexpr int WIDEST_TILE = 6;     // panels of one

}  // namespace PW_ISA
