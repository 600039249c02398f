// Sixteen floats in four NEON registers. Included by the sets of arm64 only.
//
// Sums run in the order of vec_avx2.h, so that the set "neon" has the bits of "avx2".
#pragma once
#include <arm_neon.h>

#include "types.h"

namespace PW_ISA {

struct V {
  float32x4_t a, b, c, d;
};
typedef uint32_t Words __attribute__((vector_size(16)));

// The halves of the products of 32-bit numbers.
static inline void multiply_words(Words a, uint32_t by, Words* low, Words* high) {
  const uint32x4_t x = (uint32x4_t)a, factor = vdupq_n_u32(by);
  const uint32x4_t first = (uint32x4_t)vmull_u32(vget_low_u32(x), vget_low_u32(factor));
  const uint32x4_t last = (uint32x4_t)vmull_high_u32(x, factor);
  *low = (Words)vuzp1q_u32(first, last);
  *high = (Words)vuzp2q_u32(first, last);
}

#define PW_EACH(name, op)                                                    \
  static inline V name(V x, V y) {                                           \
    return {op(x.a, y.a), op(x.b, y.b), op(x.c, y.c), op(x.d, y.d)};         \
  }
PW_EACH(add, vaddq_f32)
PW_EACH(sub, vsubq_f32)
PW_EACH(mul, vmulq_f32)
PW_EACH(div, vdivq_f32)
PW_EACH(max, vmaxq_f32)
PW_EACH(min, vminq_f32)
#undef PW_EACH

static inline V each(float32x4_t x) { return {x, x, x, x}; }
static inline V zero() { return each(vdupq_n_f32(0.0f)); }
static inline V set1(float x) { return each(vdupq_n_f32(x)); }
static inline V load(const float* p) {
  return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}
static inline void store(float* p, V x) {
  vst1q_f32(p, x.a);
  vst1q_f32(p + 4, x.b);
  vst1q_f32(p + 8, x.c);
  vst1q_f32(p + 12, x.d);
}
static inline V fma(V x, V y, V z) {
  return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b), vfmaq_f32(z.c, x.c, y.c),
          vfmaq_f32(z.d, x.d, y.d)};
}
static inline V round_even(V x) {
  return {vrndnq_f32(x.a), vrndnq_f32(x.b), vrndnq_f32(x.c), vrndnq_f32(x.d)};
}
static inline float32x4_t scale_quarter(float32x4_t p, float32x4_t n) {
  int32x4_t bits = vshlq_n_s32(vcvtq_s32_f32(n), 23);
  return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(p), bits));
}
// p * 2^n for integral n with a normal result.
static inline V scale_by_power(V p, V n) {
  return {scale_quarter(p.a, n.a), scale_quarter(p.b, n.b), scale_quarter(p.c, n.c),
          scale_quarter(p.d, n.d)};
}
static inline float32x4_t scale_quarter_or_vanish(float32x4_t p, float32x4_t n) {
  float32x4_t least = vdupq_n_f32(-126.0f);
  uint32x4_t scaled = vreinterpretq_u32_f32(scale_quarter(p, vmaxq_f32(n, least)));
  return vreinterpretq_f32_u32(vandq_u32(vcgeq_f32(n, least), scaled));
}
// p * 2^n for integral n up to 127; 0 if the result is too small.
static inline V scale_or_vanish(V p, V n) {
  return {scale_quarter_or_vanish(p.a, n.a), scale_quarter_or_vanish(p.b, n.b),
          scale_quarter_or_vanish(p.c, n.c), scale_quarter_or_vanish(p.d, n.d)};
}
// x minus its floor; `whole` becomes the floor, for scale_or_vanish.
static inline V fraction_of(V x, V* whole) {
  *whole = {vrndmq_f32(x.a), vrndmq_f32(x.b), vrndmq_f32(x.c), vrndmq_f32(x.d)};
  return sub(x, *whole);
}
// x where s > t, else y.
static inline V select_greater(V s, V t, V x, V y) {
  return {vbslq_f32(vcgtq_f32(s.a, t.a), x.a, y.a), vbslq_f32(vcgtq_f32(s.b, t.b), x.b, y.b),
          vbslq_f32(vcgtq_f32(s.c, t.c), x.c, y.c), vbslq_f32(vcgtq_f32(s.d, t.d), x.d, y.d)};
}
static inline float32x4_t quarter_in_range(float32x4_t x, float32x4_t other, int first, int end) {
  const int32x4_t lanes = {0, 1, 2, 3};
  uint32x4_t inside = vandq_u32(vcgeq_s32(lanes, vdupq_n_s32(first)),
                                vcltq_s32(lanes, vdupq_n_s32(end)));
  return vbslq_f32(inside, x, other);
}
// x in the lanes first <= i < end, `other` elsewhere.
static inline V in_range(V x, V other, int first, int end) {
  return {quarter_in_range(x.a, other.a, first, end),
          quarter_in_range(x.b, other.b, first - 4, end - 4),
          quarter_in_range(x.c, other.c, first - 8, end - 8),
          quarter_in_range(x.d, other.d, first - 12, end - 12)};
}

// Halves of the register are added repeatedly; the greatest lane is found in the same way.
static inline float sum_of(V x) {
  float32x4_t quarter = vaddq_f32(vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d));
  float32x2_t two = vadd_f32(vget_low_f32(quarter), vget_high_f32(quarter));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
static inline float greatest_of(V x) {
  return vmaxvq_f32(vmaxq_f32(vmaxq_f32(x.a, x.c), vmaxq_f32(x.b, x.d)));
}

static inline V load(const Fp16* p) {
  const float16_t* q = (const float16_t*)p;
  float16x8_t low = vreinterpretq_f16_u8(vld1q_u8((const uint8_t*)q));
  float16x8_t high = vreinterpretq_f16_u8(vld1q_u8((const uint8_t*)(q + 8)));
  return {vcvt_f32_f16(vget_low_f16(low)), vcvt_high_f32_f16(low),
          vcvt_f32_f16(vget_low_f16(high)), vcvt_high_f32_f16(high)};
}

// Loads of one type of what was stored as another.
static inline uint16x8_t load_words(const void* p) {
  return vreinterpretq_u16_u8(vld1q_u8((const uint8_t*)p));
}
static inline void store_words(void* p, uint16x8_t x) {
  vst1q_u8((uint8_t*)p, vreinterpretq_u8_u16(x));
}

// The lower and the upper four words as the upper halves of floats.
static inline float32x4_t widen_low(uint16x8_t x) {
  return vreinterpretq_f32_u16(vzip1q_u16(vdupq_n_u16(0), x));
}
static inline float32x4_t widen_high(uint16x8_t x) {
  return vreinterpretq_f32_u16(vzip2q_u16(vdupq_n_u16(0), x));
}
static inline V load(const Bf16* p) {
  uint16x8_t low = load_words(p), high = load_words(p + 8);
  return {widen_low(low), widen_high(low), widen_low(high), widen_high(high)};
}
// The upper half of each float, rounded to even.
static inline uint16x8_t narrow(float32x4_t x, float32x4_t y) {
#ifdef __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
  return vreinterpretq_u16_bf16(vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(x), y));
#else
  auto rounded = [](float32x4_t one) {
    uint32x4_t u = vreinterpretq_u32_f32(one);
    uint32x4_t odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
    uint32x4_t up = vaddq_u32(u, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    return vbslq_u32(vceqq_f32(one, one), up, vdupq_n_u32(0x7fc00000));
  };
  return vuzp2q_u16(vreinterpretq_u16_u32(rounded(x)), vreinterpretq_u16_u32(rounded(y)));
#endif
}
static inline void store(Bf16* p, V x) {
  store_words(p, narrow(x.a, x.b));
  store_words(p + 8, narrow(x.c, x.d));
}

// Sixteen integers, and their inner products with four bytes each.
struct VI {
  int32x4_t a, b, c, d;
};

static inline VI integers(int32_t x) {
  int32x4_t one = vdupq_n_s32(x);
  return {one, one, one, one};
}
static inline VI no_integers() { return integers(0); }
static inline int32x4_t load_quarter(const void* p) {
  return vreinterpretq_s32_u8(vld1q_u8((const uint8_t*)p));
}
static inline VI load_integers(const float* p) {
  return {load_quarter(p), load_quarter(p + 4), load_quarter(p + 8), load_quarter(p + 12)};
}
static inline void store(float* p, VI x) {
  vst1q_u8((uint8_t*)p, vreinterpretq_u8_s32(x.a));
  vst1q_u8((uint8_t*)(p + 4), vreinterpretq_u8_s32(x.b));
  vst1q_u8((uint8_t*)(p + 8), vreinterpretq_u8_s32(x.c));
  vst1q_u8((uint8_t*)(p + 12), vreinterpretq_u8_s32(x.d));
}
static inline VI subtract(VI x, VI y) {
  return {vsubq_s32(x.a, y.a), vsubq_s32(x.b, y.b), vsubq_s32(x.c, y.c), vsubq_s32(x.d, y.d)};
}
// Store whole numbers in the range of bytes as bytes.
static inline void store_bytes(int8_t* p, V x) {
  auto words = [](float32x4_t low, float32x4_t high) {
    return vcombine_s16(vqmovn_s32(vcvtq_s32_f32(low)), vqmovn_s32(vcvtq_s32_f32(high)));
  };
  vst1q_s8(p, vcombine_s8(vqmovn_s16(words(x.a, x.b)), vqmovn_s16(words(x.c, x.d))));
}
static inline V to_floats(VI x) {
  return {vcvtq_f32_s32(x.a), vcvtq_f32_s32(x.b), vcvtq_f32_s32(x.c), vcvtq_f32_s32(x.d)};
}

typedef int8x16_t FourBytes;  // of one input, in all lanes
static inline FourBytes four_bytes(const int8_t* p) {
  return vreinterpretq_s8_s32(vdupq_n_s32(*(const int32_alias*)p));
}
static inline int32x4_t quarter_dot4(int32x4_t sum, int32x4_t w, FourBytes x) {
  int8x16_t bytes = vreinterpretq_s8_s32(w);
#ifdef __ARM_FEATURE_DOTPROD
  return vdotq_s32(sum, bytes, x);
#else
  int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(bytes), vget_low_s8(x)));
  int32x4_t high = vpaddlq_s16(vmull_high_s8(bytes, x));
  return vaddq_s32(sum, vpaddq_s32(low, high));
#endif
}
// sum + w * x; w is signed here: nibbles, or bytes without their offset.
static inline VI dot4(VI sum, VI w, FourBytes x) {
  return {quarter_dot4(sum.a, w.a, x), quarter_dot4(sum.b, w.b, x), quarter_dot4(sum.c, w.c, x),
          quarter_dot4(sum.d, w.d, x)};
}
static inline VI bytes(const uint8_t* p) { return load_integers((const float*)p); }
// Columns of int8: what is left of the offset of bytes, and bytes without the rest.
static constexpr int COLUMN_OFFSET = 0;
static inline int32x4_t signed_quarter(const uint8_t* p) {
  return vreinterpretq_s32_u8(veorq_u8(vld1q_u8(p), vdupq_n_u8(0x80)));
}
static inline VI byte_columns(const uint8_t* p) {
  return {signed_quarter(p), signed_quarter(p + 16), signed_quarter(p + 32), signed_quarter(p + 48)};
}
static inline int32x4_t low_nibbles(int32x4_t x) {
  return vreinterpretq_s32_u8(vandq_u8(vreinterpretq_u8_s32(x), vdupq_n_u8(15)));
}
static inline int32x4_t high_nibbles(int32x4_t x) {
  return vreinterpretq_s32_u8(vshrq_n_u8(vreinterpretq_u8_s32(x), 4));
}
static inline VI low_nibbles(VI x) {
  return {low_nibbles(x.a), low_nibbles(x.b), low_nibbles(x.c), low_nibbles(x.d)};
}
static inline VI high_nibbles(VI x) {
  return {high_nibbles(x.a), high_nibbles(x.b), high_nibbles(x.c), high_nibbles(x.d)};
}

static inline V widen_bytes(int8x16_t x) {
  int16x8_t low = vmovl_s8(vget_low_s8(x)), high = vmovl_high_s8(x);
  return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_high_s16(low)),
          vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_high_s16(high))};
}
static inline V load_bytes(const int8_t* p) { return widen_bytes(vld1q_s8(p)); }
// The two inputs of 16 pairs of signed bytes.
static inline void widen_pairs(const int8_t* p, V* first, V* second) {
  int8x16x2_t pairs = vld2q_s8(p);
  *first = widen_bytes(pairs.val[0]);
  *second = widen_bytes(pairs.val[1]);
}

// Floats of 8 bits, e4m3fn. Float16 has their digits; its exponent counts from 15, and theirs from 7.
static inline float32x4x2_t widen_floats(uint8x8_t x) {
  uint16x8_t sign = vshll_n_u8(vand_u8(x, vdup_n_u8(0x80)), 8);
  uint16x8_t number = vshll_n_u8(vand_u8(x, vdup_n_u8(0x7f)), 7);
  float16x8_t half = vreinterpretq_f16_u16(vorrq_u16(sign, number));
  return {{vmulq_n_f32(vcvt_f32_f16(vget_low_f16(half)), 256.0f),
           vmulq_n_f32(vcvt_high_f32_f16(half), 256.0f)}};
}
static inline V widen_floats(uint8x16_t x) {
  float32x4x2_t low = widen_floats(vget_low_u8(x)), high = widen_floats(vget_high_u8(x));
  return {low.val[0], low.val[1], high.val[0], high.val[1]};
}
// The two inputs of 16 pairs of them.
static inline void widen_float_pairs(const uint8_t* p, V* first, V* second) {
  uint8x16x2_t pairs = vld2q_u8(p);
  *first = widen_floats(pairs.val[0]);
  *second = widen_floats(pairs.val[1]);
}

// Values of the table at the lowest nibble of each word; each is looked up as four bytes.
static inline float32x4_t look_up(V table, uint32x4_t words) {
  uint32x4_t index = vandq_u32(words, vdupq_n_u32(15));
  index = vmlaq_u32(vdupq_n_u32(0x03020100), index, vdupq_n_u32(0x04040404));
  uint8x16x4_t all = {{vreinterpretq_u8_f32(table.a), vreinterpretq_u8_f32(table.b),
                       vreinterpretq_u8_f32(table.c), vreinterpretq_u8_f32(table.d)}};
  return vreinterpretq_f32_u8(vqtbl4q_u8(all, vreinterpretq_u8_u32(index)));
}
static inline float32x4_t look_up_low(V table, int32x4_t words) {
  return look_up(table, vreinterpretq_u32_s32(words));
}
static inline float32x4_t look_up_high(V table, int32x4_t words) {
  return look_up(table, vshrq_n_u32(vreinterpretq_u32_s32(words), 16));
}
static inline int32x4_t next_nibbles(int32x4_t words) {
  return vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(words), 4));
}
static inline VI next_nibbles(VI words) {
  return {next_nibbles(words.a), next_nibbles(words.b), next_nibbles(words.c),
          next_nibbles(words.d)};
}
// The values of two nibbles of each word, that at bit 0 and that at bit 16; the next ones move there.
static inline void look_up_pairs(V table, VI& words, V* first, V* second) {
  *first = {look_up_low(table, words.a), look_up_low(table, words.b), look_up_low(table, words.c),
            look_up_low(table, words.d)};
  *second = {look_up_high(table, words.a), look_up_high(table, words.b),
             look_up_high(table, words.c), look_up_high(table, words.d)};
  words = next_nibbles(words);
}

static constexpr int TILE_ROWS = 6;
static constexpr int WIDE_TILE_ROWS = 6;
static constexpr int TILE_SUMS = 6;
static constexpr int SPARE_REGISTERS = 3;  // beside the sums
static constexpr int WIDEST_TILE = 2;

}  // namespace PW_ISA
