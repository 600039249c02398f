// The inner loops of all matrix products: a few rows times a few panels, sums in registers.
//
// Every sum runs over K in ascending order in one register, whatever the shape of the tile. So a
// result does not depend on the number of rows, nor on the distribution to threads.
#pragma once

namespace PW_ISA {

// sums[M][NB] += x[M rows of K] * panels[NB] for inputs from `k` to `end`; a panel is
// [K / STEP][16][STEP].
template <class T, int M, int NB>
static inline __attribute__((always_inline)) void multiply(
    typename T::Sum (&sums)[M][NB], const typename T::Input* x, int64_t x_stride, int64_t k,
    int64_t end, const typename T::Element* const* panels,
    const typename T::Element* const* ahead, int shift) {
  constexpr int STEP = T::STEP;
  for (; k < end; k += STEP) {
    typename T::Columns w[NB];
#pragma GCC unroll 8
    for (int n = 0; n < NB; n++) {
      const typename T::Element* p = panels[n] + k * PANEL;
      __builtin_prefetch(ahead[n] + (k >> shift) * PANEL, 0, 2);
      w[n] = T::columns(p);
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; m++) {
      typename T::Scalar scalar = T::scalar(x + m * x_stride + k);
#pragma GCC unroll 8
      for (int n = 0; n < NB; n++) sums[m][n] = T::dot(sums[m][n], w[n], scalar);
    }
  }
}

// out[M rows, stride] = x * panels; out has 16 columns per panel, of integers for int8. Only with
// HAS_TURN it uses `later`; without it, the loop has registers for one address only.
template <class T, int M, int NB, bool HAS_TURN>
static __attribute__((noinline)) void whole_tile(const typename T::Input* x, int64_t x_stride,
                                                 int64_t size,
                                                 const typename T::Element* const* panels,
                                                 float* out, int64_t stride,
                                                 const Prefetch<T>& prefetch) {
  typename T::Sum sums[M][NB];
#pragma GCC unroll 8
  for (int m = 0; m < M; m++)
#pragma GCC unroll 8
    for (int n = 0; n < NB; n++) sums[m][n] = T::nothing();
  const int64_t turn = HAS_TURN ? prefetch.turn : size;
  multiply<T, M, NB>(sums, x, x_stride, 0, turn, panels, prefetch.ahead, prefetch.shift);
  if constexpr (HAS_TURN)
    multiply<T, M, NB>(sums, x, x_stride, turn, size, panels, prefetch.later, prefetch.shift);
#pragma GCC unroll 8
  for (int m = 0; m < M; m++)
#pragma GCC unroll 8
    for (int n = 0; n < NB; n++) store(out + m * stride + n * PANEL, sums[m][n]);
}

// Whether products of T have the bits of tiles (sets/tiles_amx.h): with one or two rows, the loads of tiles
// cost more than memory takes.
static constexpr int CHAINED_ROWS = 2;
template <class T>
struct IsChained {
  static constexpr bool VALUE = false;
};
template <>
struct IsChained<BFloat16> {
  static constexpr bool VALUE = HAS_TILES;
};

// The same as whole_tile, in the order of a tile: for each `depth` inputs, those at even places are
// summed, and those at odd places, and then both sums are added to the result.
template <class T, int M, int NB>
static __attribute__((noinline)) void chained_tile(const typename T::Input* x, int64_t x_stride,
                                                   int64_t size,
                                                   const typename T::Element* const* panels,
                                                   float* out, int64_t stride,
                                                   const Prefetch<T>& prefetch) {
  const int64_t depth = size % 32 ? 16 : 32;
  for (int m = 0; m < M; m++)
    for (int n = 0; n < NB; n++) store(out + m * stride + n * PANEL, zero());
  for (int64_t begin = 0; begin < size; begin += depth) {
    V even[M][NB], odd[M][NB];
#pragma GCC unroll 8
    for (int m = 0; m < M; m++)
#pragma GCC unroll 8
      for (int n = 0; n < NB; n++) even[m][n] = odd[m][n] = zero();
    const typename T::Element* const* ahead =
        begin < prefetch.turn ? prefetch.ahead : prefetch.later;
    for (int64_t k = begin; k < begin + depth; k += 2) {
      V first[M], second[M];
#pragma GCC unroll 8
      for (int m = 0; m < M; m++) broadcast_pair(x + m * x_stride + k, first + m, second + m);
#pragma GCC unroll 8
      for (int n = 0; n < NB; n++) {
        V one, other;
        split_pairs(panels[n] + k * PANEL, &one, &other);
        __builtin_prefetch(ahead[n] + (k >> prefetch.shift) * PANEL, 0, 2);
#pragma GCC unroll 8
        for (int m = 0; m < M; m++) {
          even[m][n] = fma(one, first[m], even[m][n]);
          odd[m][n] = fma(other, second[m], odd[m][n]);
        }
      }
    }
    for (int m = 0; m < M; m++)
      for (int n = 0; n < NB; n++) {
        float* sum = out + m * stride + n * PANEL;
        store(sum, add(load(sum), add(even[m][n], odd[m][n])));
      }
  }
}

template <class T, int M, int NB>
static void tile(const typename T::Input* x, int64_t x_stride, int64_t size, GroupInput input,
                 const typename T::Element* const* panels, float* out, int64_t stride,
                 const Prefetch<T>& prefetch) {
  if constexpr (RowPairs<T>::EXISTS && M > 1) {
    RowPairs<T>::template tile<M, NB>(x, x_stride, size, input, panels, out, stride, prefetch);
  } else if constexpr (T::HAS_GROUPS) {
    (void)size;
    T::template tile<M, NB>(x, x_stride, input, panels, out, stride, prefetch.later);
  } else if constexpr (IsChained<T>::VALUE) {
    (void)input;
    chained_tile<T, M, NB>(x, x_stride, size, panels, out, stride, prefetch);
  } else {
    (void)input;
    if (prefetch.turn < size)
      whole_tile<T, M, NB, true>(x, x_stride, size, panels, out, stride, prefetch);
    else
      whole_tile<T, M, NB, false>(x, x_stride, size, panels, out, stride, prefetch);
  }
}

template <class T>
using Tile = void (*)(const typename T::Input* x, int64_t x_stride, int64_t size,
                      GroupInput input, const typename T::Element* const* panels, float* out, int64_t stride,
                      const Prefetch<T>& prefetch);

// Whether the sums fit beside what else is in registers: weights that are made there take some too.
template <class T, int M, int NB>
constexpr bool fits_registers() {
  if constexpr (RowPairs<T>::EXISTS && M > 1)
    return (M + 1) / 2 * 2 * NB <= TILE_SUMS;
  else if constexpr (T::HAS_GROUPS)
    return M * NB + NB * T::REGISTERS_PER_PANEL <= TILE_SUMS + SPARE_REGISTERS;
  else if constexpr (IsChained<T>::VALUE)
    return M <= CHAINED_ROWS && 2 * M * NB + 2 <= TILE_SUMS;
  else
    return M * NB <= TILE_SUMS;
}

template <class T, int M, int NB>
constexpr Tile<T> tile_or_null() {
  if constexpr (M <= TILE_ROWS && NB <= WIDEST_TILE && fits_registers<T, M, NB>())
    return tile<T, M, NB>;
  else
    return nullptr;
}

static constexpr int MAX_TILE_ROWS = 8;
static constexpr int MAX_TILE_PANELS = 6;

// TILES<T>[rows - 1][panels - 1]; null where the sums do not fit into the registers.
#define PW_TILE_ROW(M)                                                              \
  {tile_or_null<T, M, 1>(), tile_or_null<T, M, 2>(), tile_or_null<T, M, 3>(),       \
   tile_or_null<T, M, 4>(), nullptr, tile_or_null<T, M, 6>()}
template <class T>
static const Tile<T> TILES[MAX_TILE_ROWS][MAX_TILE_PANELS] = {
    PW_TILE_ROW(1), PW_TILE_ROW(2), PW_TILE_ROW(3), PW_TILE_ROW(4),
    PW_TILE_ROW(5), PW_TILE_ROW(6), PW_TILE_ROW(7), PW_TILE_ROW(8)};
#undef PW_TILE_ROW

// Few rows are limited by memory, and tall tiles read it less often. Many rows are limited by the
// products, and wide tiles have more products for each row that they read.
static constexpr int64_t MANY_ROWS = 48;

// Rows of the tiles that `num_rows` are cut into: as equal as possible.
static inline int64_t tile_rows(int64_t num_rows) {
  int64_t highest = num_rows > MANY_ROWS ? WIDE_TILE_ROWS : TILE_ROWS;
  return ceil_div(num_rows, ceil_div(num_rows, highest));
}

// out[num_rows <= TILE_ROWS, stride] = x * panels for any number of panels.
template <class T>
static inline void multiply_rows(const typename T::Input* x, int64_t x_stride, int num_rows,
                                 int64_t size, GroupInput input,
                                 const typename T::Element* const* panels,
                                 int num_panels, float* out, int64_t stride,
                                 const Prefetch<T>& prefetch) {
  for (int n = 0; n < num_panels;) {
    int width = num_panels - n < WIDEST_TILE ? num_panels - n : WIDEST_TILE;
    while (TILES<T>[num_rows - 1][width - 1] == nullptr) width--;
    // Two tiles of half the width are faster than a wide tile and a narrow rest.
    int left = num_panels - n;
    if (left > width && left < 2 * width && left % 2 == 0) width = left / 2;
    while (TILES<T>[num_rows - 1][width - 1] == nullptr) width--;
    TILES<T>[num_rows - 1][width - 1](x, x_stride, size, input, panels + n, out + n * PANEL, stride,
                                      {prefetch.ahead + n, prefetch.shift, prefetch.later + n,
                                       prefetch.turn});
    n += width;
  }
}

}  // namespace PW_ISA
