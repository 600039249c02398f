// What AVX2 widens for products of many rows (products/blocks.h): floats of 16 bits and codes to
// float32, bytes to integers of 16 bits. Included by blocks.h only.
#pragma once

namespace PW_ISA {

// Least rows of a product that is computed in blocks: with fewer, widening takes longer than it saves.
static constexpr int64_t WIDE_ROWS = 32;

struct WideFloats : Float32 {
  static inline V load_sum(const float* p) { return load(p); }
};

// Two integers of 16 bits in a cell.
struct WideIntegers {
  typedef int32_t Element;
  typedef int32_t Input;
  typedef VI Sum;
  typedef VI Columns;
  typedef __m256i Scalar;
  static inline Sum nothing() { return no_integers(); }
  static inline Sum load_sum(const float* p) { return load_integers(p); }
  static inline Columns columns(const int32_t* p) { return load_integers((const float*)p); }
  static inline Scalar scalar(const int32_t* p) { return _mm256_set1_epi32(*(const int32_alias*)p); }
  static inline Sum dot(Sum sum, Columns w, Scalar x) {
    return {_mm256_add_epi32(sum.low, _mm256_madd_epi16(w.low, x)),
            _mm256_add_epi32(sum.high, _mm256_madd_epi16(w.high, x))};
  }
};

// Rows of T as floats.
template <class T>
struct WideRows {
  static constexpr bool EXISTS = true;
  static constexpr int64_t LEAST_ROWS = WIDE_ROWS, CELL_INPUTS = 1;
  typedef WideFloats Target;
  static inline void widen_row(const typename T::Element* x, int64_t size, float* out) {
    for (int64_t i = 0; i < size; i += PANEL) store(out + i, load(x + i));
  }
};

template <>
struct Wide<Float32> : WideRows<Float32> {
  static inline int64_t panel_bytes(const PwLinear&, int64_t) { return 0; }
  static inline const uint8_t* widen_panel(const PwLinear&, const float* panel, int64_t k, int64_t,
                                           uint8_t*) {
    return (const uint8_t*)(panel + k * PANEL);
  }
};

template <>
struct Wide<BFloat16> : WideRows<BFloat16> {
  static inline int64_t panel_bytes(const PwLinear&, int64_t size) { return size * PANEL * 4; }
  static inline const uint8_t* widen_panel(const PwLinear&, const Bf16* panel, int64_t k, int64_t size,
                                           uint8_t* out) {
    float* to = (float*)out;
    for (int64_t i = k; i < k + size; i += 2, to += 2 * PANEL) {
      const BFloat16::Columns w = BFloat16::columns(panel + i * PANEL);
      store(to, w.first);
      store(to + PANEL, w.second);
    }
    return out;
  }
};

// The sums of groups are those of codes.h.
template <class T, int BITS>
struct Wide<Codes<T, BITS>> : WideRows<T> {
  static constexpr bool EXISTS = BITS != WIDENED;
  typedef Codes<Float32, WIDENED> Columns;
  static inline int64_t head_bytes(const PwLinear& linear) {
    return coded_head_bytes(widened(linear));
  }
  static inline int64_t panel_bytes(const PwLinear& linear, int64_t size) {
    return size / linear.group * Columns::group_bytes(widened(linear));
  }
  static inline const uint8_t* widen_panel(const PwLinear& linear, const uint8_t* panel, int64_t k,
                                           int64_t size, uint8_t* out) {
    GroupPlace place(linear, Codes<T, BITS>::group_bytes(linear), k / linear.group);
    for (int64_t g = 0; g < size / linear.group; g++, place.next())
      widen_group<Float32, BITS>(linear, GroupHead(panel, place),
                                 out + g * panel_bytes(linear, linear.group));
    return out;
  }
  static inline void add_group(const PwLinear& linear, const float* totals, int64_t g,
                               const uint8_t* head, const float* part, float* sums) {
    V sum = fma(load(part), load((const float*)head), load(sums));
    if (linear.offset_kind != PW_NO_OFFSETS)
      sum = fma(load((const float*)head + PANEL), set1(totals[g]), sum);
    store(sums, sum);
  }
};

// Four inputs are two cells: those at even places, and those at odd places.
template <>
struct Wide<Int8> {
  static constexpr bool EXISTS = true;
  static constexpr int64_t LEAST_ROWS = WIDE_ROWS, CELL_INPUTS = 2;
  typedef WideIntegers Target;
  static inline int64_t panel_bytes(const PwLinear&, int64_t size) { return size * PANEL * 2; }
  static inline const uint8_t* widen_panel(const PwLinear&, const uint8_t* panel, int64_t k,
                                           int64_t size, uint8_t* out) {
    const __m256i low = _mm256_set1_epi16(0xff);
    float* to = (float*)out;
    for (int64_t i = k; i < k + size; i += 4, to += 2 * PANEL) {
      const VI w = bytes(panel + i * PANEL);
      store(to, VI{_mm256_and_si256(w.low, low), _mm256_and_si256(w.high, low)});
      store(to + PANEL, VI{_mm256_srli_epi16(w.low, 8), _mm256_srli_epi16(w.high, 8)});
    }
    return out;
  }
  static inline void widen_row(const int8_t* x, int64_t size, int32_t* out) {
    for (int64_t i = 0; i < size; i += 16, out += 8) {
      const __m128i four = _mm_loadu_si128((const __m128i*)(x + i));
      const __m128i even = _mm_srai_epi16(_mm_slli_epi16(four, 8), 8);
      const __m128i odd = _mm_srai_epi16(four, 8);
      _mm_storeu_si128((__m128i*)out, _mm_unpacklo_epi32(even, odd));
      _mm_storeu_si128((__m128i*)(out + 4), _mm_unpackhi_epi32(even, odd));
    }
  }
};

}  // namespace PW_ISA
