// Products of many rows where widening takes as long as multiplying: both sides are widened first.
//
// K is cut into blocks. For each block the rows of an item are widened once, and each panel once; then
// tiles of six rows and one panel multiply the widened numbers. Sums wait in memory between blocks. A
// sum runs over K in ascending order, and over groups as in codes.h: it has the bits of the products
// that widen in registers, and those are taken for few rows.
//
// A cell is what 4 bytes of a widened row hold: a float, or two integers of 16 bits. A set says in
// Wide which types it widens and how (sets/wide_avx2.h); most have instructions that need no widening.
#pragma once

namespace PW_ISA {

// CELL_INPUTS: inputs of a cell. Target: the type that multiplies cells, with a STEP of one.
template <class T>
struct Wide {
  static constexpr bool EXISTS = false;
};

static constexpr int64_t BLOCK_CELLS = 256, BLOCK_TILE_ROWS = 6;

// Whether a block holds whole groups of the matrix; a scale may be for all inputs.
template <class T>
static inline bool fits_block(const PwLinear& linear) {
  return !T::HAS_GROUPS || linear.group <= BLOCK_CELLS * Wide<T>::CELL_INPUTS;
}

// sums[M rows, stride] = or += rows [M, BLOCK_CELLS] * one widened panel, over `count` cells.
template <class W, int M>
static __attribute__((noinline)) void block_tile(const typename W::Input* rows,
                                                 const typename W::Element* panel, int64_t count,
                                                 bool is_first, float* sums, int64_t stride) {
  typename W::Sum own[M];
#pragma GCC unroll 8
  for (int m = 0; m < M; m++)
    own[m] = is_first ? W::nothing() : W::load_sum(sums + m * stride);
  // Not unrolled: compilers sum integers of several turns apart, and then registers do not suffice.
#pragma GCC unroll 1
  for (int64_t k = 0; k < count; k++) {
    const typename W::Columns w = W::columns(panel + k * PANEL);
#pragma GCC unroll 8
    for (int m = 0; m < M; m++) own[m] = W::dot(own[m], w, W::scalar(rows + m * BLOCK_CELLS + k));
  }
#pragma GCC unroll 8
  for (int m = 0; m < M; m++) store(sums + m * stride, own[m]);
}

template <class W>
using BlockTile = void (*)(const typename W::Input*, const typename W::Element*, int64_t, bool, float*,
                           int64_t);
template <class W>
static const BlockTile<W> BLOCK_TILES[BLOCK_TILE_ROWS] = {
    block_tile<W, 1>, block_tile<W, 2>, block_tile<W, 3>,
    block_tile<W, 4>, block_tile<W, 5>, block_tile<W, 6>};

// One item of a product.
template <class T>
class BlockItem {
  typedef Wide<T> W;
  typedef typename W::Target Target;
  typedef typename Target::Input Cell;

 public:
  BlockItem(PwPool* pool, int thread, const PwLinear& linear, Rows x, const Item<T>& item)
      : linear_(linear),
        item_(item),
        num_groups_(linear.num_inputs / linear.group),
        row_stride_(row_stride<T>(linear)),
        num_rows_(item.end - item.begin),
        sums_stride_(item.num_panels * PANEL),
        rows_((const typename T::Input*)(sizeof(typename T::Input) == 1 ? x.prepared : x.plain) +
              item.begin * row_stride_),
        totals_((const float*)x.prepared + item.begin * num_groups_) {
    const int64_t step = T::HAS_GROUPS ? linear.group : PANEL;
    block_ = BLOCK_CELLS * W::CELL_INPUTS / step * step;
    const int64_t row_bytes = num_rows_ * BLOCK_CELLS * 4, sum_bytes = num_rows_ * sums_stride_ * 4;
    char* memory = (char*)pool->memory(
        thread, (size_t)(row_bytes + sum_bytes + W::panel_bytes(linear, block_)), PRODUCT);
    wide_rows_ = (Cell*)memory;
    sums_ = (float*)(memory + row_bytes);
    wide_panel_ = (uint8_t*)(memory + row_bytes + sum_bytes);
  }

  // Call finish(row, first_panel, num_panels, sums) for each row.
  template <class Finish>
  void multiply(const Finish& finish) {
    for (int64_t k = 0; k < linear_.num_inputs; k += block_) {
      const int64_t size = least(block_, linear_.num_inputs - k);
      for (int64_t m = 0; m < num_rows_; m++)
        W::widen_row(rows_ + m * row_stride_ + k, size, wide_rows_ + m * BLOCK_CELLS);
      for (int n = 0; n < item_.num_panels; n++) {
        const uint8_t* panel = W::widen_panel(linear_, item_.panels[n], k, size, wide_panel_);
        if constexpr (T::HAS_GROUPS)
          add_groups(k, size, panel, sums_ + n * PANEL);
        else
          add_tiles(wide_rows_, panel, size, k == 0, sums_ + n * PANEL);
      }
    }
    float* sums = sums_;
    for (int64_t m = 0; m < num_rows_; m++, sums += sums_stride_) {
      rescale<T>(linear_, rows_ + m * row_stride_, item_.first_panel, item_.num_panels, sums);
      finish(item_.begin + m, item_.first_panel, item_.num_panels, sums);
    }
  }

 private:
  // sums = or += rows * panel over `size` inputs, for all rows.
  void add_tiles(const Cell* rows, const uint8_t* panel, int64_t size, bool is_first, float* sums) {
    int64_t left = ceil_div(num_rows_, BLOCK_TILE_ROWS);
    for (int64_t m = 0, height; m < num_rows_; m += height, left--) {
      height = ceil_div(num_rows_ - m, left);
      BLOCK_TILES<Target>[height - 1](rows + m * BLOCK_CELLS, (const typename Target::Element*)panel,
                                      size / W::CELL_INPUTS, is_first, sums + m * sums_stride_,
                                      sums_stride_);
    }
  }
  // The same by groups, whose sums are scaled.
  void add_groups(int64_t k, int64_t size, const uint8_t* panel, float* sums) {
    const int64_t group = linear_.group;
    alignas(64) float part[BLOCK_TILE_ROWS * PANEL];
    for (int64_t i = 0; i < size; i += group, panel += W::panel_bytes(linear_, group)) {
      const uint8_t* cells = panel + W::head_bytes(linear_);
      const int64_t g = (k + i) / group;
      for (int64_t m = 0, height; m < num_rows_; m += height) {
        height = least(BLOCK_TILE_ROWS, num_rows_ - m);
        BLOCK_TILES<Target>[height - 1](wide_rows_ + m * BLOCK_CELLS + i / W::CELL_INPUTS,
                                        (const typename Target::Element*)cells,
                                        group / W::CELL_INPUTS, true, part, PANEL);
        for (int64_t row = m; row < m + height; row++) {
          float* sum = sums + row * sums_stride_;
          if (g == 0) store(sum, zero());
          W::add_group(linear_, totals_ + row * num_groups_, g, panel, part + (row - m) * PANEL, sum);
        }
      }
    }
  }

  const PwLinear& linear_;
  const Item<T>& item_;
  const int64_t num_groups_, row_stride_, num_rows_, sums_stride_;
  const typename T::Input* rows_;
  const float* totals_;  // of the groups of rows, where they are needed
  int64_t block_;        // inputs
  Cell* wide_rows_;      // [rows, BLOCK_CELLS]
  float* sums_;          // [rows, panels, 16]
  uint8_t* wide_panel_;
};

}  // namespace PW_ISA

#ifdef PW_WIDE
#include PW_WIDE
#endif
