// The types of products on NEON: what a panel's columns are, and their products with inputs.
#pragma once
#include "sets/vec_neon.h"

namespace PW_ISA {

static inline V multiply_add(V sum, V w, float32x4_t x) {
  return {vfmaq_f32(sum.a, w.a, x), vfmaq_f32(sum.b, w.b, x), vfmaq_f32(sum.c, w.c, x),
          vfmaq_f32(sum.d, w.d, x)};
}

struct Float32 {
  typedef float Element;
  typedef float Input;
  typedef V Sum;
  typedef V Columns;
  typedef float32x4_t Scalar;
  static constexpr int STEP = 1;
  static constexpr bool HAS_GROUPS = false;
  static inline Columns columns(const float* p) { return load(p); }
  static inline Scalar scalar(const float* p) { return vld1q_dup_f32(p); }
  static inline V dot(V sum, Columns w, Scalar x) { return multiply_add(sum, w, x); }
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

#ifdef __ARM_FEATURE_BF16_VECTOR_ARITHMETIC

static inline float32x4_t quarter_dot2(float32x4_t sum, uint16x8_t w, uint16x8_t x) {
  return vbfdotq_f32(sum, vreinterpretq_bf16_u16(w), vreinterpretq_bf16_u16(x));
}

// BFDOT adds two products to a sum: all three operations round to odd, and numbers below the normal
// ones count as 0 (Arm Architecture Reference Manual, BFDotAdd).
struct BFloat16 {
  typedef Bf16 Element;
  typedef Bf16 Input;
  typedef V Sum;
  struct Columns {
    uint16x8_t a, b, c, d;
  };
  typedef uint16x8_t Scalar;  // a pair, in all lanes
  static constexpr int STEP = 2;
  static constexpr bool HAS_GROUPS = false;
  static inline Sum nothing() { return zero(); }
  static inline Columns columns(const Bf16* p) {
    return {load_words(p), load_words(p + 8), load_words(p + 16), load_words(p + 24)};
  }
  static inline Scalar scalar(const Bf16* p) {
    return vreinterpretq_u16_s32(vdupq_n_s32(*(const int32_alias*)p));
  }
  static inline V dot(V sum, Columns w, Scalar x) {
    return {quarter_dot2(sum.a, w.a, x), quarter_dot2(sum.b, w.b, x), quarter_dot2(sum.c, w.c, x),
            quarter_dot2(sum.d, w.d, x)};
  }
  static inline Columns first_only(Columns w) {
    const uint16x8_t first = vreinterpretq_u16_u32(vdupq_n_u32(0xffff));
    return {vandq_u16(w.a, first), vandq_u16(w.b, first), vandq_u16(w.c, first),
            vandq_u16(w.d, first)};
  }
  typedef uint8x16x2_t Table;
  static constexpr bool COMPUTES_ROWS = false;
  static inline Table code_table(const float* values) {
    const V all = values ? load(values) : zero();
    return {{vreinterpretq_u8_u16(narrow(all.a, all.b)),
             vreinterpretq_u8_u16(narrow(all.c, all.d))}};
  }
  // The values of the lowest nibbles of both halves of each word, as pairs.
  static inline uint16x8_t pairs_of(const Table& table, int32x4_t words) {
    uint16x8_t index = vandq_u16(vreinterpretq_u16_s32(words), vdupq_n_u16(15));
    index = vmlaq_u16(vdupq_n_u16(0x0100), index, vdupq_n_u16(0x0202));
    return vreinterpretq_u16_u8(vqtbl2q_u8(table, vreinterpretq_u8_u16(index)));
  }
  static inline void next_pair(const Table& table, VI& words, Columns* w) {
    *w = {pairs_of(table, words.a), pairs_of(table, words.b), pairs_of(table, words.c),
          pairs_of(table, words.d)};
    words = next_nibbles(words);
  }
  // Whole numbers of 8 bits are exact in bfloat16.
  static inline void byte_pair(const int8_t* p, Columns* w) {
    const V low = widen_bytes(vld1q_s8(p)), high = widen_bytes(vld1q_s8(p + 16));
    *w = {upper_halves(low.a, low.b), upper_halves(low.c, low.d), upper_halves(high.a, high.b),
          upper_halves(high.c, high.d)};
  }
  // So are floats of 8 bits.
  static inline void float_pair(const uint8_t* p, Columns* w) {
    const V low = widen_floats(vld1q_u8(p)), high = widen_floats(vld1q_u8(p + 16));
    *w = {upper_halves(low.a, low.b), upper_halves(low.c, low.d), upper_halves(high.a, high.b),
          upper_halves(high.c, high.d)};
  }
  static inline uint16x8_t upper_halves(float32x4_t x, float32x4_t y) {
    return vuzp2q_u16(vreinterpretq_u16_f32(x), vreinterpretq_u16_f32(y));
  }
  static constexpr int64_t PAIR_BYTES = 64;
  static inline void load_pair(const uint8_t* p, Columns* w) { *w = columns((const Bf16*)p); }
  static inline void store_pair(uint8_t* p, const Columns* w) {
    store_words(p, w->a);
    store_words(p + 16, w->b);
    store_words(p + 32, w->c);
    store_words(p + 48, w->d);
  }
};

#else

// Widened to floats, and multiplied as such.
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
    float32x4_t first, second;
  };
  static inline float32x4_t first_of(int32x4_t pairs) {
    return vreinterpretq_f32_s32(vshlq_n_s32(pairs, 16));
  }
  static inline float32x4_t second_of(int32x4_t pairs) {
    return vreinterpretq_f32_s32(vandq_s32(pairs, vdupq_n_s32((int)0xffff0000u)));
  }
  static inline Columns columns(const Bf16* p) {
    const VI pairs = load_integers((const float*)p);
    return {{first_of(pairs.a), first_of(pairs.b), first_of(pairs.c), first_of(pairs.d)},
            {second_of(pairs.a), second_of(pairs.b), second_of(pairs.c), second_of(pairs.d)}};
  }
  static inline Scalar scalar(const Bf16* p) {
    const int32x4_t pair = vdupq_n_s32(*(const int32_alias*)p);
    return {first_of(pair), second_of(pair)};
  }
  static inline V dot(V sum, Columns w, Scalar x) {
    return multiply_add(multiply_add(sum, w.first, x.first), w.second, x.second);
  }
  static inline Columns first_only(Columns w) { return {w.first, zero()}; }
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
};

#endif

}  // namespace PW_ISA
