// Products of linear layers by tiles.
//
// An item is cut into units of two row tiles times two panels, or of one row tile times four panels
// if it has at most 16 rows. K is cut into blocks: the rows of a unit and one block stay in the first
// cache while the panels of the item pass from the second one, and meanwhile the next block is read
// from memory. Sums wait in memory between blocks; complete ones are used beside the products of the next
// unit. Every sum runs over K in ascending order through
// one tile, so its bits depend neither on the number of rows nor on blocks, units or threads.
#pragma once

namespace PW_ISA {

static constexpr int64_t TILE_BYTES = 1024;
static constexpr int64_t UNIT_SUMS = 1024;  // floats
// Most bytes of a row of the input in a block; and where weights are widened for few rows, so that they
// stay in the first cache.
static constexpr int64_t BLOCK_BYTES = 1024, FEW_BLOCK_BYTES = 256;
// Rows at multiples of this distance, in bytes, lie in so few sets of the first cache that those of a unit
// would push each other out.
static constexpr int64_t CROWDED_STRIDE = 2048;
static constexpr int64_t TILES_AHEAD = 8;  // that are prefetched of a panel
static constexpr int64_t FEW_ROWS = 2 * TILE_HEIGHT;

// What is prefetched during a product: `lines` per product of each panel, from there on. `is_next`:
// the next product reads it, so it goes to the first cache, else to the second.
struct TileAhead {
  const char* from[4];
  int64_t lines;
  bool is_next;
};

template <bool IS_INTEGER, int SUMS, int ROWS, int WEIGHTS>
static inline void multiply_tiles(Tiles& tiles) {
  if constexpr (IS_INTEGER)
    tiles.multiply_int8<SUMS, ROWS, WEIGHTS>();
  else
    tiles.multiply_bf16<SUMS, ROWS, WEIGHTS>();
}

template <int WIDTH>
static inline void prefetch_lines(TileAhead& ahead) {
  if (ahead.is_next)
    for (int64_t i = 0; i < ahead.lines; i++)
      for (int n = 0; n < WIDTH; n++) __builtin_prefetch(ahead.from[n] + i * 64, 0, 3);
  else
    for (int64_t i = 0; i < ahead.lines; i++)
      for (int n = 0; n < WIDTH; n++) __builtin_prefetch(ahead.from[n] + i * 64, 0, 2);
  for (int n = 0; n < WIDTH; n++) ahead.from[n] += ahead.lines * 64;
}

// The rows of one or two tiles, from `row` on, of an input with rows `stride` bytes apart.
struct TileRows {
  int64_t first, second;  // rows of each tile
  const char *first_row, *second_row;
  int64_t stride, step;  // bytes from one row to the next, and from one product to the next

  TileRows(int64_t row, int64_t num_rows, bool is_pair, const void* input, int64_t stride,
           int64_t step)
      : stride(stride), step(step) {
    const int64_t left = num_rows - row;
    const bool has_second = is_pair && left > TILE_HEIGHT;
    first = least(left, TILE_HEIGHT);
    // A pair needs two tiles; a second one that is missing is computed and not used.
    second = !is_pair ? 0 : has_second ? least(left - TILE_HEIGHT, TILE_HEIGHT) : first;
    first_row = (const char*)input + row * stride;
    second_row = has_second ? first_row + TILE_HEIGHT * stride : first_row;
  }
  bool has_second() const { return second_row != first_row; }
};

// Sums += rows * panels over `count` products, from product `at` of the rows on. `beside` has a step beside
// each product. With a pair, weights go past the first cache, which the rows keep for the next panels.
template <bool IS_INTEGER, bool IS_PAIR, class Work>
static inline void multiply_along(Tiles& tiles, const TileRows& rows, int64_t at,
                                  const char* const* panels, int64_t count, int64_t depth,
                                  TileAhead& ahead, Work& beside) {
  const int64_t stride = rows.stride, step = rows.step;
  const char *first = rows.first_row + at * step, *second = rows.second_row + at * step;
  const char *p0 = panels[0], *p1 = panels[1], *p2 = panels[2], *p3 = panels[3];
  const int64_t size = depth * PANEL;
  for (int64_t k = 0; k < count; k++) {
    prefetch_lines<IS_PAIR ? 2 : 4>(ahead);
    beside.step();
    tiles.load<4>(first, stride);
    if constexpr (IS_PAIR) {
      tiles.load_once<6>(p0, 64);
      multiply_tiles<IS_INTEGER, 0, 4, 6>(tiles);
      tiles.load_once<7>(p1, 64);
      multiply_tiles<IS_INTEGER, 1, 4, 7>(tiles);
      tiles.load<5>(second, stride);
      multiply_tiles<IS_INTEGER, 2, 5, 6>(tiles);
      multiply_tiles<IS_INTEGER, 3, 5, 7>(tiles);
      second += step;
    } else {
      tiles.load<5>(p0, 64);
      multiply_tiles<IS_INTEGER, 0, 4, 5>(tiles);
      tiles.load<6>(p1, 64);
      multiply_tiles<IS_INTEGER, 1, 4, 6>(tiles);
      tiles.load<7>(p2, 64);
      multiply_tiles<IS_INTEGER, 2, 4, 7>(tiles);
      tiles.load<5>(p3, 64);
      multiply_tiles<IS_INTEGER, 3, 4, 5>(tiles);
      p2 += size;
      p3 += size;
    }
    first += step;
    p0 += size;
    p1 += size;
  }
}

// Places of the four tiles of sums in the memory of a unit, whose rows are 16 floats per panel.
static inline void zero_sums(Tiles& tiles) {
  tiles.zero<0>();
  tiles.zero<1>();
  tiles.zero<2>();
  tiles.zero<3>();
}
template <bool IS_PAIR>
static inline void load_sums(Tiles& tiles, const float* sums) {
  constexpr int64_t STRIDE = (IS_PAIR ? 2 : 4) * PANEL;
  tiles.load<0>(sums, STRIDE * 4);
  tiles.load<1>(sums + PANEL, STRIDE * 4);
  tiles.load<2>(sums + (IS_PAIR ? TILE_HEIGHT * STRIDE : 2 * PANEL), STRIDE * 4);
  tiles.load<3>(sums + (IS_PAIR ? TILE_HEIGHT * STRIDE : 2 * PANEL) + PANEL, STRIDE * 4);
}
template <bool IS_PAIR>
static inline void store_sums(Tiles& tiles, float* sums) {
  constexpr int64_t STRIDE = (IS_PAIR ? 2 : 4) * PANEL;
  tiles.store<0>(sums, STRIDE * 4);
  tiles.store<1>(sums + PANEL, STRIDE * 4);
  tiles.store<2>(sums + (IS_PAIR ? TILE_HEIGHT * STRIDE : 2 * PANEL), STRIDE * 4);
  tiles.store<3>(sums + (IS_PAIR ? TILE_HEIGHT * STRIDE : 2 * PANEL) + PANEL, STRIDE * 4);
}

// One item of a product by tiles.
template <class T, bool IS_PAIR>
class TileItem {
  typedef typename T::Input Input;
  typedef TileStorage<T> Storage;
  static constexpr int64_t SIZE = sizeof(Input);
  static constexpr int64_t HEIGHT = IS_PAIR ? 2 * TILE_HEIGHT : TILE_HEIGHT;  // of a unit, in rows
  static constexpr int64_t WIDTH = IS_PAIR ? 2 : 4;                           // in panels
  static constexpr int64_t STRIDE = WIDTH * PANEL;                            // of its sums

 public:
  TileItem(PwPool* pool, int thread, Tiles& tiles, const PwLinear& linear, Rows x,
           const Item<T>& item)
      : tiles_(tiles),
        linear_(linear),
        item_(item),
        num_inputs_(linear.num_inputs),
        num_groups_(num_inputs_ / linear.group),
        stride_(row_stride<T>(linear)),
        num_rows_(item.end - item.begin),
        row_units_(ceil_div(num_rows_, HEIGHT)),
        panel_units_(ceil_div(item.num_panels, WIDTH)),
        rows_((const Input*)(SIZE == 1 ? x.prepared : x.plain) + item.begin * stride_),
        totals_((const float*)x.prepared + item.begin * num_groups_) {
    const int64_t whole = T::HAS_GROUPS ? linear.group : num_inputs_;
    depth_ = 64;
    while (whole * SIZE % depth_) depth_ /= 2;
    const bool is_few = num_rows_ <= FEW_ROWS;
    int64_t block = (is_few ? FEW_BLOCK_BYTES : BLOCK_BYTES) / SIZE;
    if (is_few && !T::HAS_GROUPS) block = num_inputs_;
    const int64_t step = T::HAS_GROUPS ? linear.group : depth_ / SIZE;
    const int64_t count = ceil_div(num_inputs_, most(1, block / step) * step);
    block_ = ceil_div(ceil_div(num_inputs_, step), count) * step;
    is_whole_ = block_ == num_inputs_;
    const int64_t sums_bytes = (is_whole_ ? 1 : row_units_ * panel_units_) * UNIT_SUMS * 4;
    if constexpr (T::HAS_GROUPS) wide_bytes_ = block_ / linear.group * Storage::wide_bytes(linear);
    is_packed_ = stride_ * SIZE % CROWDED_STRIDE == 0 && depth_ == TILE_WIDTH && panel_units_ >= 4;
    const int64_t wide_bytes = item.num_panels * wide_bytes_;
    const int64_t packed_bytes = is_packed_ ? HEIGHT * block_ * SIZE : 0;
    const int64_t bytes = sums_bytes + wide_bytes + packed_bytes;
    sums_ = (float*)pool->memory(thread, (size_t)bytes, PRODUCT);
    wide_ = (char*)sums_ + sums_bytes;
    packed_ = wide_ + wide_bytes;
  }

  // Call finish(row, first_panel, num_panels, sums) for each row and each unit's panels.
  template <class Finish>
  void multiply(const Finish& finish) {
    Place done = {};
    const auto finish_row = [&](int64_t m) {
      float* sums = done.sums + m * STRIDE;
      const int64_t row = done.row + m;
      rescale<T>(linear_, rows_ + row * stride_, done.panel, done.num_panels, sums);
      finish(item_.begin + row, done.panel, done.num_panels, sums);
    };
    Beside<decltype(finish_row)> late(finish_row);
    for (int64_t k = 0; k < num_inputs_; k += block_) {
      first_input_ = k;
      size_ = least(block_, num_inputs_ - k);
      if constexpr (T::HAS_GROUPS) widen();
      for (int64_t row = 0; row < row_units_; row++) {
        if (is_packed_) pack_rows(row);
        for (int64_t panel = 0; panel < panel_units_; panel++) {
          float* sums = sums_ + (is_whole_ ? 0 : row * panel_units_ + panel) * UNIT_SUMS;
          const TileRows rows = unit_rows(row);
          tiles_.shape(rows.first, rows.second, depth_);
          if constexpr (T::HAS_GROUPS) {
            late.finish();
            add_groups(rows, row, panel, sums);
          } else {
            add_block(rows, row, panel, sums, late);
          }
          if (k + size_ < num_inputs_) continue;
          done = {sums, row * HEIGHT, item_.first_panel + panel * WIDTH, num_panels(panel)};
          late.begin(least(HEIGHT, num_rows_ - row * HEIGHT), size_ * SIZE / depth_);
        }
      }
    }
    late.finish();
  }

 private:
  // A unit: where its sums, its rows and its panels are.
  struct Place {
    float* sums;
    int64_t row, panel;
    int num_panels;
  };

  int num_panels(int64_t unit) const { return (int)least(WIDTH, item_.num_panels - unit * WIDTH); }

  // The rows of a unit in the block.
  TileRows unit_rows(int64_t row) const {
    const int64_t stride = stride_ * SIZE;
    if (!is_packed_)
      return TileRows(row * HEIGHT, num_rows_, IS_PAIR, rows_ + first_input_, stride, depth_);
    return TileRows(0, num_rows_ - row * HEIGHT, IS_PAIR, packed_, TILE_WIDTH, HEIGHT * TILE_WIDTH);
  }

  // Copy the rows of a unit in the block to [products][rows][64 bytes].
  void pack_rows(int64_t row) {
    const int64_t count = size_ * SIZE / TILE_WIDTH, last = least(HEIGHT, num_rows_ - row * HEIGHT);
    for (int64_t m = 0; m < last; m++) {
      const char* from = (const char*)(rows_ + (row * HEIGHT + m) * stride_ + first_input_);
      char* to = packed_ + m * TILE_WIDTH;
      for (int64_t k = 0; k < count; k++, from += TILE_WIDTH, to += HEIGHT * TILE_WIDTH)
        store((float*)to, load((const float*)from));
    }
  }

  // Widen the block of all panels.
  void widen() {
    const int64_t bytes = Storage::group_bytes(linear_), wide = Storage::wide_bytes(linear_);
    const int64_t first = first_input_ / linear_.group, count = size_ / linear_.group;
    for (int n = 0; n < item_.num_panels; n++) {
      GroupPlace place(linear_, bytes, first);
      for (int64_t g = 0; g < count; g++, place.next()) {
        const GroupHead group(item_.panels[n], place);
        for (int64_t i = 0; i < bytes; i += 64)
          __builtin_prefetch(group.head + i + CODES_AHEAD, 0, 2);
        Storage::widen(linear_, group, (uint8_t*)wide_ + n * wide_bytes_ + g * wide);
      }
    }
  }

  // sums = or += rows * panels of one block, of a storage without groups, with the work that is left of
  // other sums beside it.
  template <class Work>
  void add_block(const TileRows& rows, int64_t row, int64_t unit, float* sums, Work& beside) {
    const int64_t count = size_ * SIZE / depth_, bytes = depth_ * PANEL;
    const int64_t early = row_units_ > 1 ? count : most(0, count - TILES_AHEAD);
    const bool is_last = first_input_ + size_ == num_inputs_;
    const char *panels[4], *rest[4];
    // With several units, each prefetches its part of the next block. A single one prefetches its own
    // panels, and then those of the next unit.
    TileAhead ahead = {{}, ceil_div(depth_ / 4, row_units_), false};
    TileAhead later = {{}, depth_ / 4, false};
    for (int n = 0; n < 4; n++) {
      // Panels that are missing at the end are computed like the first one, and not used.
      const int64_t panel = unit * WIDTH + (n < num_panels(unit) ? n : 0);
      const typename T::Element* weights = item_.panels[panel];
      panels[n] = (const char*)(weights + first_input_ * PANEL);
      rest[n] = panels[n] + early * bytes;
      const char* next = (const char*)(is_last ? weights + item_.next
                                               : weights + (first_input_ + size_) * PANEL);
      ahead.from[n] = row_units_ > 1 ? next + row * count * ahead.lines * 64
                                     : panels[n] + TILES_AHEAD * bytes;
      later.from[n] = unit + 1 < panel_units_
                          ? (const char*)item_.panels[least(panel + WIDTH, item_.num_panels - 1)]
                          : (const char*)(item_.panels[panel - unit * WIDTH] + item_.next);
    }
    if (first_input_ == 0)
      zero_sums(tiles_);
    else
      load_sums<IS_PAIR>(tiles_, sums);
    multiply_along<Storage::IS_INTEGER, IS_PAIR>(tiles_, rows, 0, panels, early, depth_, ahead,
                                                 beside);
    if (early < count)
      multiply_along<Storage::IS_INTEGER, IS_PAIR>(tiles_, rows, early, rest, count - early, depth_,
                                                   later, beside);
    // The sums before may lie in the same memory.
    beside.finish();
    store_sums<IS_PAIR>(tiles_, sums);
  }

  // The same of a storage with groups.
  void add_groups(const TileRows& rows, int64_t row, int64_t unit, float* sums) {
    alignas(64) float part[UNIT_SUMS];
    const int64_t group = linear_.group, head = Storage::head_bytes(linear_);
    const int64_t height = least(HEIGHT, num_rows_ - row * HEIGHT);
    if (first_input_ == 0) __builtin_memset(sums, 0, UNIT_SUMS * 4);
    for (int64_t i = 0; i < size_; i += group) {
      const char *heads[4], *panels[4];
      for (int n = 0; n < 4; n++) {
        const int64_t panel = unit * WIDTH + (n < num_panels(unit) ? n : 0);
        heads[n] = wide_ + panel * wide_bytes_ + i / group * Storage::wide_bytes(linear_);
        panels[n] = heads[n] + head;
      }
      TileAhead nothing = {};
      NoWork none;
      zero_sums(tiles_);
      multiply_along<Storage::IS_INTEGER, IS_PAIR>(
          tiles_, rows, i * SIZE / depth_, panels, group * SIZE / depth_, depth_, nothing, none);
      store_sums<IS_PAIR>(tiles_, part);
      const int64_t g = (first_input_ + i) / group;
      for (int64_t m = 0; m < height; m++) {
        const int64_t at = row * HEIGHT + m;
        for (int n = 0; n < num_panels(unit); n++)
          Storage::add_group(linear_, rows_ + at * stride_, totals_ + at * num_groups_, g,
                             (const uint8_t*)heads[n], part + m * STRIDE + n * PANEL,
                             sums + m * STRIDE + n * PANEL);
      }
    }
  }

  Tiles& tiles_;
  const PwLinear& linear_;
  const Item<T>& item_;
  const int64_t num_inputs_, num_groups_;
  const int64_t stride_;  // of rows, in elements
  const int64_t num_rows_, row_units_, panel_units_;
  const Input* rows_;
  const float* totals_;  // of the groups of rows, where they are needed
  int64_t depth_;        // bytes of a row in one product
  int64_t block_;        // inputs
  bool is_whole_;        // there is one block
  bool is_packed_;       // rows are copied first
  int64_t wide_bytes_ = 0;  // of a panel of one block
  float* sums_;
  char *wide_, *packed_;
  int64_t first_input_, size_;  // of the block
};

// Compute one item.
template <class T, class Finish>
static inline void multiply_by_tiles(PwPool* pool, int thread, Tiles& tiles, const PwLinear& linear,
                                     Rows x, const Item<T>& item, const Finish& finish) {
  if (item.end - item.begin > TILE_HEIGHT)
    TileItem<T, true>(pool, thread, tiles, linear, x, item).multiply(finish);
  else
    TileItem<T, false>(pool, thread, tiles, linear, x, item).multiply(finish);
}

}  // namespace PW_ISA
