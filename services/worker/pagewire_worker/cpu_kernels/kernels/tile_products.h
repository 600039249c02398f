// Products of linear layers by tiles.
//
// An item is cut into units of two row tiles times two panels, or of one row tile times four panels
// if it has at most 16 rows. K is cut into blocks, so that the rows stay in the cache while panels
// pass; sums wait in memory between blocks. Every sum runs over K in ascending order through one tile,
// so its bits depend neither on the number of rows nor on blocks, units or threads.
#pragma once

namespace PW_ISA {

static constexpr int64_t TILE_BYTES = 1024;
static constexpr int64_t UNIT_SUMS = 1024;                 // floats
static constexpr int64_t CACHED_ROW_BYTES = 1024 * 1024;   // of the rows of an item and one block
static constexpr int64_t CACHED_PANEL_BYTES = 64 * 1024;   // of a widened panel and one block
static constexpr int64_t FIRST_CACHE_BYTES = 4 * 1024;     // the same where rows are few
static constexpr int64_t TILES_AHEAD = 4;                  // that are prefetched of a panel
static constexpr int64_t FEW_ROWS = 2 * TILE_HEIGHT;
static constexpr int64_t TILE_ITEM_ROWS = 512, TILE_ITEM_PANELS = 16;

// The cut of an item.
struct TileCut {
  int64_t height, width;  // rows and panels of a unit
  int64_t depth;          // bytes of a row of the input in one product
  int64_t block;          // inputs
};

template <class T>
static inline TileCut tile_cut(const PwLinear& linear, int64_t num_rows) {
  constexpr int64_t SIZE = sizeof(typename T::Input);
  const bool is_pair = num_rows > TILE_HEIGHT;
  TileCut c = {is_pair ? 2 * TILE_HEIGHT : TILE_HEIGHT, is_pair ? 2 : 4, 64, linear.num_inputs};
  const int64_t whole = T::HAS_GROUPS ? linear.group : linear.num_inputs;
  while (whole * SIZE % c.depth) c.depth /= 2;
  int64_t most = num_rows > FEW_ROWS ? CACHED_ROW_BYTES / (num_rows * SIZE) : linear.num_inputs;
  if (T::HAS_GROUPS)
    most = least(most, (num_rows > FEW_ROWS ? CACHED_PANEL_BYTES : FIRST_CACHE_BYTES) / (PANEL * SIZE));
  const int64_t step = T::HAS_GROUPS ? linear.group : c.depth / SIZE;
  c.block = least(linear.num_inputs, ::most(1, most / step) * step);
  return c;
}

// What is prefetched during a product: `lines` per product of each panel, from there on.
struct TileAhead {
  const char* from[4];
  int64_t lines;
};

template <bool IS_INTEGER, int SUMS, int ROWS, int WEIGHTS>
static inline void multiply_tiles(Tiles& tiles) {
  if constexpr (IS_INTEGER)
    tiles.multiply_int8<SUMS, ROWS, WEIGHTS>();
  else
    tiles.multiply_bf16<SUMS, ROWS, WEIGHTS>();
}

// Sums += rows * panels over `count` products. `second` are the rows of the second tile of a pair.
template <bool IS_INTEGER, bool IS_PAIR>
static inline void multiply_along(Tiles& tiles, const char* first, const char* second,
                                  int64_t stride, const char* const* panels, int64_t count,
                                  int64_t depth, TileAhead& ahead) {
  const char *p0 = panels[0], *p1 = panels[1], *p2 = panels[2], *p3 = panels[3];
  const int64_t size = depth * PANEL;
  for (int64_t k = 0; k < count; k++) {
    for (int64_t i = 0; i < ahead.lines; i++)
      for (int n = 0; n < (IS_PAIR ? 2 : 4); n++) __builtin_prefetch(ahead.from[n] + i * 64, 0, 2);
    for (int n = 0; n < (IS_PAIR ? 2 : 4); n++) ahead.from[n] += ahead.lines * 64;
    tiles.load<4>(first, stride);
    if constexpr (IS_PAIR) {
      tiles.load<6>(p0, 64);
      multiply_tiles<IS_INTEGER, 0, 4, 6>(tiles);
      tiles.load<7>(p1, 64);
      multiply_tiles<IS_INTEGER, 1, 4, 7>(tiles);
      tiles.load<5>(second, stride);
      multiply_tiles<IS_INTEGER, 2, 5, 6>(tiles);
      multiply_tiles<IS_INTEGER, 3, 5, 7>(tiles);
      second += depth;
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
    first += depth;
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

// The rows of a unit, and one block of its panels: weights in tiles, behind heads where there are
// groups.
template <class T>
struct TileUnit {
  const typename T::Input *first, *second;  // rows of the tiles, from the first input of the block on
  int64_t stride;                           // of the rows, in elements
  int64_t num_rows;
  int num_panels;
  const char* panels[4];
  int64_t num_inputs;   // of the block
  int64_t first_input;  // in the row
  const float* totals;  // of the groups of the first row
  bool is_first, is_last;
};

// sums = or += rows * panels of a storage without groups.
template <class T, bool IS_PAIR>
static inline void add_block(Tiles& tiles, const TileCut& c, const TileUnit<T>& u, float* sums,
                             const TileAhead* ahead, int64_t turn) {
  constexpr int64_t SIZE = sizeof(typename T::Input);
  constexpr bool IS_INTEGER = TileStorage<T>::IS_INTEGER;
  if (u.is_first)
    zero_sums(tiles);
  else
    load_sums<IS_PAIR>(tiles, sums);
  const int64_t count = u.num_inputs * SIZE / c.depth, early = least(turn, count);
  const char *first = (const char*)u.first, *second = (const char*)u.second;
  TileAhead now = ahead[0], later = ahead[1];
  multiply_along<IS_INTEGER, IS_PAIR>(tiles, first, second, u.stride * SIZE, u.panels, early,
                                      c.depth, now);
  if (early < count) {
    const char* rest[4];
    for (int n = 0; n < 4; n++) rest[n] = u.panels[n] + early * c.depth * PANEL;
    multiply_along<IS_INTEGER, IS_PAIR>(tiles, first + early * c.depth, second + early * c.depth,
                                        u.stride * SIZE, rest, count - early, c.depth, later);
  }
  store_sums<IS_PAIR>(tiles, sums);
}

// The same of a storage with groups.
template <class T, bool IS_PAIR>
static inline void add_groups(Tiles& tiles, const PwLinear& linear, const TileCut& c,
                              const TileUnit<T>& u, float* sums) {
  typedef TileStorage<T> Storage;
  constexpr int64_t SIZE = sizeof(typename T::Input), STRIDE = (IS_PAIR ? 2 : 4) * PANEL;
  alignas(64) float part[UNIT_SUMS];
  const int64_t group = linear.group, head = Storage::head_bytes(linear);
  const int64_t num_groups = linear.num_inputs / group;
  if (u.is_first) __builtin_memset(sums, 0, (size_t)(c.height * STRIDE * 4));
  for (int64_t i = 0; i < u.num_inputs; i += group) {
    const char *heads[4], *panels[4];
    for (int n = 0; n < 4; n++) {
      heads[n] = u.panels[n] + i / group * Storage::wide_bytes(linear);
      panels[n] = heads[n] + head;
    }
    TileAhead nothing = {{}, 0};
    zero_sums(tiles);
    multiply_along<Storage::IS_INTEGER, IS_PAIR>(tiles, (const char*)(u.first + i),
                                                 (const char*)(u.second + i), u.stride * SIZE,
                                                 panels, group * SIZE / c.depth, c.depth, nothing);
    store_sums<IS_PAIR>(tiles, part);
    const int64_t g = (u.first_input + i) / group;
    for (int64_t m = 0; m < u.num_rows; m++) {
      const typename T::Input* row = u.first - u.first_input + m * u.stride;
      const float* totals = u.totals == nullptr ? nullptr : u.totals + m * num_groups;
      for (int n = 0; n < u.num_panels; n++)
        Storage::add_group(linear, row, totals, g, (const uint8_t*)heads[n],
                           part + m * STRIDE + n * PANEL, sums + m * STRIDE + n * PANEL);
    }
  }
}

// Call finish(row, first_panel, num_panels, sums) for each row of an item and each unit's panels.
template <class T, bool IS_PAIR, class Finish>
static void multiply_by_tiles(PwPool* pool, int thread, Tiles& tiles, const PwLinear& linear,
                              Rows x, const Item<T>& item, const Finish& finish) {
  typedef typename T::Input Input;
  typedef TileStorage<T> Storage;
  constexpr int64_t SIZE = sizeof(Input), WIDTH = IS_PAIR ? 2 : 4, STRIDE = WIDTH * PANEL;
  const int64_t num_rows = item.end - item.begin, stride = row_stride<T>(linear);
  const TileCut c = tile_cut<T>(linear, num_rows);
  const Input* rows = (const Input*)(SIZE == 1 ? x.prepared : x.plain) + item.begin * stride;
  const int64_t row_units = ceil_div(num_rows, c.height), units = ceil_div(item.num_panels, WIDTH);
  const bool is_whole = c.block == linear.num_inputs;
  int64_t wide_bytes = 0;
  if constexpr (T::HAS_GROUPS) wide_bytes = c.block / linear.group * Storage::wide_bytes(linear);
  const int64_t sums_bytes = (is_whole ? 1 : row_units * units) * UNIT_SUMS * 4;
  char* memory = (char*)pool->memory(thread, (size_t)(sums_bytes + WIDTH * wide_bytes), PRODUCT);
  for (int64_t k = 0; k < linear.num_inputs; k += c.block) {
    const int64_t block = least(c.block, linear.num_inputs - k);
    for (int64_t unit = 0; unit < units; unit++) {
      TileUnit<T> u = {};
      const int64_t panel = unit * WIDTH;
      u.num_panels = (int)least(WIDTH, item.num_panels - panel);
      u.num_inputs = block;
      u.first_input = k;
      u.stride = stride;
      u.is_first = k == 0;
      u.is_last = k + block == linear.num_inputs;
      TileAhead ahead[2] = {};
      int64_t turn = block;
      for (int n = 0; n < 4; n++) {
        // Panels that are missing at the end are computed like the first one, and not used.
        const int64_t from = n < u.num_panels ? panel + n : panel;
        const typename T::Element* weights = item.panels[from];
        if constexpr (T::HAS_GROUPS) {
          const int64_t bytes = Storage::group_bytes(linear), wide = Storage::wide_bytes(linear);
          u.panels[n] = memory + sums_bytes + (n < u.num_panels ? n : 0) * wide_bytes;
          for (int64_t g = 0; g < (n < u.num_panels ? block / linear.group : 0); g++) {
            const uint8_t* group = weights + (k / linear.group + g) * bytes;
            for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(group + i + CODES_AHEAD, 0, 2);
            Storage::widen(linear, group, (uint8_t*)u.panels[n] + g * wide);
          }
        } else {
          u.panels[n] = (const char*)(weights + k * PANEL);
          // The panels of the next unit, or of the next item.
          const int64_t size = c.depth * PANEL, count = block * SIZE * PANEL / size;
          const char* next = unit + 1 < units
                                 ? (const char*)(item.panels[least(from + WIDTH, item.num_panels - 1)] +
                                                 k * PANEL)
                             : u.is_last ? (const char*)(item.panels[from - panel] + item.next)
                                         : (const char*)(item.panels[from - panel] + (k + block) * PANEL);
          if (row_units > 1) {
            ahead[0].lines = ceil_div(c.depth / 4, row_units);
            ahead[0].from[n] = next;
          } else {
            ahead[0].lines = ahead[1].lines = c.depth / 4;
            ahead[0].from[n] = u.panels[n] + TILES_AHEAD * size;
            ahead[1].from[n] = next;
            turn = most(0, count - TILES_AHEAD);
          }
        }
      }
      for (int64_t unit_row = 0; unit_row < row_units; unit_row++) {
        const int64_t begin = unit_row * c.height, height = least(c.height, num_rows - begin);
        // A pair needs two tiles; the second one is computed and not used.
        const bool has_second = height > TILE_HEIGHT;
        u.first = rows + begin * stride + k;
        u.second = has_second ? u.first + TILE_HEIGHT * stride : u.first;
        u.num_rows = height;
        u.totals = T::HAS_GROUPS && SIZE > 1
                       ? (const float*)x.prepared + (item.begin + begin) * (linear.num_inputs / linear.group)
                       : nullptr;
        const int64_t first_rows = least(height, TILE_HEIGHT);
        const int64_t second_rows = has_second ? height - TILE_HEIGHT : first_rows;
        tiles.shape(first_rows, IS_PAIR ? second_rows : 0, c.depth);
        float* sums = (float*)memory + (is_whole ? 0 : (unit * row_units + unit_row) * UNIT_SUMS);
        if constexpr (T::HAS_GROUPS) {
          add_groups<T, IS_PAIR>(tiles, linear, c, u, sums);
        } else {
          add_block<T, IS_PAIR>(tiles, c, u, sums, ahead, turn);
          if (row_units > 1)
            for (int n = 0; n < 4; n++) {
              const int64_t count = block * SIZE / c.depth;
              ahead[0].from[n] += count * ahead[0].lines * 64;
            }
        }
        if (!u.is_last) continue;
        for (int64_t m = 0; m < height; m++) {
          float* row_sums = sums + m * STRIDE;
          rescale<T>(linear, u.first - k + m * stride, item.first_panel + panel, u.num_panels, row_sums);
          finish(item.begin + begin + m, item.first_panel + panel, u.num_panels, row_sums);
        }
      }
    }
  }
}

// Cut a product into items of as many rows as the cache holds, and as many panels as leave each thread
// an equal share.
static inline Cut cut_for_tiles(int64_t num_panels, int64_t num_rows, int num_threads) {
  Cut c = {num_panels, 0, 0, 0, 0};
  c.num_row_blocks = ceil_div(num_rows, TILE_ITEM_ROWS);
  c.num_rows = ceil_div(ceil_div(num_rows, c.num_row_blocks), FEW_ROWS) * FEW_ROWS;
  c.num_row_blocks = ceil_div(num_rows, c.num_rows);
  const int64_t unit = num_rows > TILE_HEIGHT ? 2 : 4;
  for (int64_t turns = 1; c.width == 0 || c.width > TILE_ITEM_PANELS; turns++) {
    c.width = ceil_div(ceil_div(num_panels, num_threads * turns), unit) * unit;
    c.num_widths = ceil_div(num_panels, c.width);
  }
  return c;
}

// As linear_share, by tiles.
template <class T, class Finish>
static void linear_share_by_tiles(PwPool* pool, int phase, int thread, const PwLinear& linear,
                                  Rows x, int64_t num_rows, const Finish& finish) {
  typedef typename T::Element Element;
  const int64_t panel_size = panel_bytes(linear) / (int64_t)sizeof(Element);
  const Cut c = cut_for_tiles(linear.num_outputs / PANEL, num_rows, pool->num_threads);
  Tiles tiles;
  for (int64_t number; (number = pool->next(phase, thread, c.num_items())) < c.num_items();) {
    // The rows stay in the cache while the thread takes adjacent items.
    const int64_t begin = number / c.num_widths * c.num_rows;
    const int64_t first_panel = number % c.num_widths * c.width;
    const bool is_last = first_panel + c.width >= c.num_panels;
    Item<T> item = {{},
                    first_panel,
                    (int)least(c.width, c.num_panels - first_panel),
                    begin,
                    least(begin + c.num_rows, num_rows),
                    is_last ? -first_panel * panel_size : c.width * panel_size};
    for (int n = 0; n < item.num_panels; n++)
      item.panels[n] = (const Element*)linear.weight + (first_panel + n) * panel_size;
    if (item.end - item.begin > TILE_HEIGHT)
      multiply_by_tiles<T, true>(pool, thread, tiles, linear, x, item, finish);
    else
      multiply_by_tiles<T, false>(pool, thread, tiles, linear, x, item, finish);
  }
}

}  // namespace PW_ISA
