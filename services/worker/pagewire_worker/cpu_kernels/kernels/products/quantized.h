// Matrices of int8 and int4, and the int8 rows that they are multiplied with.
//
// Rows of activations are quantized in each call, with one scale per row (dynamic, symmetric). Weights
// are stored as unsigned bytes or nibbles, which are their values plus an offset. The sums of each
// group of the row serve to subtract the offset again. Sums of integers are exact in any order.
#pragma once

namespace PW_ISA {

// What products of groups need besides the rows: the matrix, and the sums of each group of each row
// where it has offsets, [rows, groups].
struct GroupInput {
  const PwLinear* linear;
  const float* totals;
};

// Rows with one scale each (symmetric).
struct Int8 {
  typedef uint8_t Element;
  typedef int8_t Input;
  typedef VI Sum;
  typedef VI Columns;
  typedef FourBytes Scalar;
  static constexpr int STEP = 4;
  static constexpr bool HAS_GROUPS = false;
  static constexpr int OFFSET = 128;
  static inline Sum nothing() { return no_integers(); }
  static inline Columns columns(const uint8_t* p) { return byte_columns(p); }
  static inline Scalar scalar(const int8_t* p) { return four_bytes(p); }
  static inline Sum dot(Sum sum, Columns w, Scalar x) { return dot4(sum, w, x); }
};

// Rows with a scale for each group of inputs. A panel is, per group, 16 scales and then
// [group / 8][16 outputs][4 bytes]: the low nibbles are four inputs, the high ones the next four.
struct Int4 {
  typedef uint8_t Element;
  typedef int8_t Input;
  static constexpr int STEP = 8;
  static constexpr bool HAS_GROUPS = true;
  static constexpr int REGISTERS_PER_PANEL = 3;  // of both halves of the nibbles, and one to spare
  static constexpr int OFFSET = 8;

  // See int4_tile.
  template <int M, int NB>
  static inline void tile(const int8_t* x, int64_t x_stride, GroupInput input,
                          const uint8_t* const* panels, float* out, int64_t stride,
                          const uint8_t* const* next);
};

// Lower bound of the largest value from which a scale is made: the reciprocal of a smaller one would be
// infinite.
static constexpr float LEAST_LARGEST = 0x1p-100f;

static inline float scale_of(const int8_t* row, int64_t size) { return *(const float*)(row + size); }
static inline const int32_t* sums_of(const int8_t* row, int64_t size) {
  return (const int32_t*)(row + size + 4);
}

// Quantize one row of `size` values for a matrix with groups of this size. A row with a value that is
// not finite gets the scale NaN, because no byte can represent it.
template <class In>
static inline void quantize_row(const In* x, int64_t size, int64_t group, int8_t* row) {
  V high = set1(LEAST_LARGEST), strange = zero();
  for (int64_t i = 0; i < size; i += PANEL) {
    V part = load(x + i);
    strange = fma(part, zero(), strange);
    high = max(high, max(part, sub(zero(), part)));
  }
  float greatest = greatest_of(high);
  *(float*)(row + size) = greatest / 127.0f + sum_of(strange);
  V factor = set1(127.0f / greatest);
  int32_t* sums = (int32_t*)(row + size + 4);
  for (int64_t g = 0; g < size / group; g++) {
    V sum = zero();  // of whole numbers below 2^24: exact
    for (int64_t i = g * group; i < (g + 1) * group; i += PANEL) {
      V whole = round_even(mul(load(x + i), factor));
      store_bytes(row + i, whole);
      sum = add(sum, whole);
    }
    sums[g] = (int32_t)sum_of(sum);
  }
}

static constexpr int64_t INT4_GROUPS_AHEAD = 2;  // prefetched

// out[M rows, stride] = x * panels of an int4 matrix, without the scale of the rows.
template <int M, int NB>
static void int4_tile(const int8_t* x, int64_t x_stride, int64_t size, int64_t group,
                      const uint8_t* const* panels, float* out, int64_t stride,
                      const uint8_t* const* next) {
  for (int m = 0; m < M; m++)
    for (int n = 0; n < NB; n++) store(out + m * stride + n * PANEL, zero());
  const int64_t group_bytes = GROUP_SCALES + group * PANEL / 2;
  for (int64_t g = 0; g < size / group; g++) {
    VI sums[M][NB];
#pragma GCC unroll 8
    for (int m = 0; m < M; m++)
#pragma GCC unroll 8
      for (int n = 0; n < NB; n++) sums[m][n] = no_integers();
    // After the last groups of these panels, the first groups of the next panels are prefetched.
    const bool is_near = (g + INT4_GROUPS_AHEAD) * group < size;
    const uint8_t* ahead[NB];
    for (int n = 0; n < NB; n++)
      ahead[n] = is_near ? panels[n] + (g + INT4_GROUPS_AHEAD) * group_bytes
                         : next[n] + ((g + INT4_GROUPS_AHEAD) * group - size) / group * group_bytes;
    for (int64_t k = 0; k < group; k += 8) {
      VI low[NB], high[NB];
#pragma GCC unroll 8
      for (int n = 0; n < NB; n++) {
        const uint8_t* p = panels[n] + g * group_bytes + GROUP_SCALES + k * PANEL / 2;
        __builtin_prefetch(ahead[n] + k * PANEL / 2, 0, 2);
        VI both = bytes(p);
        low[n] = low_nibbles(both);
        high[n] = high_nibbles(both);
      }
#pragma GCC unroll 8
      for (int m = 0; m < M; m++) {
        const int8_t* row = x + m * x_stride + g * group + k;
        FourBytes first = four_bytes(row), second = four_bytes(row + 4);
#pragma GCC unroll 8
        for (int n = 0; n < NB; n++)
          sums[m][n] = dot4(dot4(sums[m][n], low[n], first), high[n], second);
      }
    }
    for (int m = 0; m < M; m++) {
      VI offset = integers(Int4::OFFSET * sums_of(x + m * x_stride, size)[g]);
      for (int n = 0; n < NB; n++) {
        float* sum = out + m * stride + n * PANEL;
        V scales = load((const float*)(panels[n] + g * group_bytes));
        store(sum, fma(to_floats(subtract(sums[m][n], offset)), scales, load(sum)));
      }
    }
  }
}

template <int M, int NB>
inline void Int4::tile(const int8_t* x, int64_t x_stride, GroupInput input,
                       const uint8_t* const* panels, float* out, int64_t stride,
                       const uint8_t* const* next) {
  const PwLinear& linear = *input.linear;
  int4_tile<M, NB>(x, x_stride, linear.num_inputs, linear.group, panels, out, stride, next);
}

}  // namespace PW_ISA
