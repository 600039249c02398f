// Items of a product: some rows times some panels, which one thread computes.
#pragma once

namespace PW_ISA {

static constexpr int MAX_ITEM_PANELS = 6, MOST_ITEM_PANELS = 16;  // the latter in blocks
static constexpr int WIDE_ITEM_PANELS = 4;  // of an item with many rows: as in a wide tile
static constexpr int64_t MOST_ITEM_ROWS = 256, LEAST_ITEM_ROWS = 32;
// Most rows of an item whose K is cut into blocks, and what they are a multiple of.
static constexpr int64_t BLOCK_ITEM_ROWS = 256, BLOCK_ROW_STEP = 2 * TILE_HEIGHT;
static constexpr int64_t AHEAD_BYTES = 2048;

// Cut of a product into items that threads take one after the other.
struct Cut {
  int64_t num_panels;  // of the matrix
  int64_t width;       // panels of an item, at most MAX_ITEM_PANELS
  int64_t num_widths;
  int64_t num_rows;  // of an item
  int64_t num_row_blocks;

  int64_t num_items() const { return num_widths * num_row_blocks; }
};

// Return the greatest width that gives the least work to the busiest thread.
static inline Cut cut(int64_t num_panels, int64_t num_rows, int num_threads, bool is_even) {
  static const int64_t WIDTHS[] = {6, 4, 3, 2, 1};
  int64_t rows = MOST_ITEM_ROWS;
  while (rows > LEAST_ITEM_ROWS &&
         ceil_div(num_panels, MAX_ITEM_PANELS) * ceil_div(num_rows, rows) < 8 * num_threads)
    rows /= 2;
  Cut best = {num_panels, 0, 0, rows, ceil_div(num_rows, rows)};
  int64_t least_load = 0;
  for (int64_t width : WIDTHS) {
    if ((is_even && width % 2) || (num_rows > MANY_ROWS && width > WIDE_ITEM_PANELS)) continue;
    int64_t num_widths = ceil_div(num_panels, width);
    int64_t load = ceil_div(num_widths * best.num_row_blocks, num_threads) * width;
    if (best.width == 0 || load * 100 < least_load * 97) {
      best.width = width;
      best.num_widths = num_widths;
      least_load = load;
    }
  }
  return best;
}

// Return the prefetches of tile `index` of `count` tiles over the same panels [size each]. The panels
// that come next are `next` elements away. A single tile prefetches a little ahead in its own panels
// and then the next ones. One of several tiles prefetches its share of the next panels. `ahead` and
// `later` hold the addresses.
template <class T>
static inline Prefetch<T> read_ahead(int64_t index, int64_t count, int64_t size, int64_t next,
                                     const typename T::Element* const* panels, int num_panels,
                                     const typename T::Element** ahead,
                                     const typename T::Element** later) {
  if (count > 1) {
    int shift = 0;
    while ((int64_t)1 << shift < count) shift++;
    int64_t offset = next + (index * size >> shift) * PANEL;
    for (int n = 0; n < num_panels; n++) ahead[n] = panels[n] + offset;
    return {ahead, shift, ahead, size};
  }
  constexpr int64_t AHEAD = AHEAD_BYTES / (PANEL * (int64_t)sizeof(typename T::Element));
  const int64_t turn = most(0, size - AHEAD);
  for (int n = 0; n < num_panels; n++) {
    ahead[n] = panels[n] + AHEAD * PANEL;
    later[n] = panels[n] + next - (T::HAS_GROUPS ? 0 : turn * PANEL);
  }
  return {ahead, 0, later, turn};
}

// Distance of the input rows of a product, in elements.
template <class T>
static inline int64_t row_stride(const PwLinear& linear) {
  if constexpr (sizeof(typename T::Input) == 1)
    return quantized_row_bytes(linear.num_inputs, linear.group);
  else
    return linear.num_inputs;
}

// Turn the sums of a tile for one row into the product: in place, 16 floats per panel.
template <class T>
static inline void rescale(const PwLinear& linear, const typename T::Input* row,
                           int64_t first_panel, int num_panels, float* sums) {
  if constexpr (T::STEP == 4) {
    V scale = set1(scale_of(row, linear.num_inputs));
    VI offset = integers(COLUMN_OFFSET * sums_of(row, linear.num_inputs)[0]);
    for (int n = 0; n < num_panels; n++) {
      V whole = to_floats(subtract(load_integers(sums + n * PANEL), offset));
      V scales = mul(load(linear.scales + (first_panel + n) * PANEL), scale);
      store(sums + n * PANEL, mul(whole, scales));
    }
  } else if constexpr (T::HAS_GROUPS && sizeof(typename T::Input) == 1) {
    V scale = set1(scale_of(row, linear.num_inputs));
    for (int n = 0; n < num_panels; n++)
      store(sums + n * PANEL, mul(load(sums + n * PANEL), scale));
  }
}

// Input of a product: rows of T, and what prepare_share made of them.
struct Rows {
  const void* plain;
  const void* prepared;
};

// Rows of an item from which on its codes are widened once, not once per tile.
static constexpr int64_t WIDENING_ROWS = 48;

// Whether a product of type T reads codes, and where to they are widened.
template <class T>
struct Widening {
  static constexpr bool IS_CODES = false;
};
template <class T, int BITS>
struct Widening<Codes<T, BITS>> {
  static constexpr bool IS_CODES = true;
  typedef Codes<T, WIDENED> Target;
  static inline void widen(const PwLinear& linear, const uint8_t* panel, uint8_t* out) {
    widen_panel<T, BITS>(linear, panel, out);
  }
};

// The panels of an item of a product, and its rows.
template <class T>
struct Item {
  const typename T::Element* panels[MOST_ITEM_PANELS];
  int64_t first_panel;  // in the matrix
  int num_panels;
  int64_t begin, end;  // rows
  int64_t next;        // distance of the panels that the thread probably takes next, in elements
};

// Call finish(row, first_panel, num_panels, sums) for each row of an item.
template <class T, class Finish>
static inline void multiply_item(const PwLinear& linear, Rows x, const Item<T>& item,
                                 const Finish& finish) {
  typedef typename T::Input Input;
  const int64_t size = linear.num_inputs, stride = row_stride<T>(linear);
  const int64_t num_groups = size / linear.group, num_rows = item.end - item.begin;
  const Input* whole = (const Input*)(sizeof(Input) == 1 ? x.prepared : x.plain);
  const typename T::Element *ahead[MAX_ITEM_PANELS], *later[MAX_ITEM_PANELS];
  alignas(64) float sums[MAX_TILE_ROWS][MAX_ITEM_PANELS * PANEL];
  int64_t most_rows = tile_rows(num_rows), num_tiles = ceil_div(num_rows, most_rows);
  for (int64_t t = 0, row = item.begin; row < item.end; t++, row += most_rows) {
    int64_t rows = least(most_rows, item.end - row);
    const Input* first = whole + row * stride;
    const float* totals = T::HAS_GROUPS ? (const float*)x.prepared + row * num_groups : nullptr;
    multiply_rows<T>(first, stride, (int)rows, size, {&linear, totals}, item.panels,
                     item.num_panels, sums[0], MAX_ITEM_PANELS * PANEL,
                     read_ahead<T>(t, num_tiles, size, item.next, item.panels, item.num_panels,
                                   ahead, later));
    for (int64_t m = 0; m < rows; m++) {
      rescale<T>(linear, first + m * stride, item.first_panel, item.num_panels, sums[m]);
      finish(row + m, item.first_panel, item.num_panels, sums[m]);
    }
  }
}

// The same, with the codes of the item widened before.
template <class T, class Finish>
static inline void widen_and_multiply(PwPool* pool, int thread, const PwLinear& linear, Rows x,
                                      const Item<T>& item, const Finish& finish) {
  typedef typename Widening<T>::Target Target;
  const PwLinear wide = widened(linear);
  const int64_t bytes = linear.num_inputs / linear.group * Target::group_bytes(wide);
  uint8_t* memory = (uint8_t*)pool->memory(thread, (size_t)(bytes * MAX_ITEM_PANELS), PRODUCT);
  Item<Target> target = {{}, item.first_panel, item.num_panels, item.begin, item.end, 0};
  for (int n = 0; n < item.num_panels; n++) {
    target.panels[n] = memory + n * bytes;
    Widening<T>::widen(linear, item.panels[n], memory + n * bytes);
  }
  multiply_item<Target>(wide, x, target, finish);
}

// Cut a product whose K is cut into blocks, so that the busiest thread has the least work.
static inline Cut cut_for_blocks(int64_t num_panels, int64_t num_rows, int num_threads) {
  const int64_t num_blocks = ceil_div(num_rows, BLOCK_ITEM_ROWS);
  const int64_t rows = ceil_div(ceil_div(num_rows, num_blocks), BLOCK_ROW_STEP) * BLOCK_ROW_STEP;
  Cut best = {num_panels, 0, 0, rows, ceil_div(num_rows, rows)};
  const int64_t unit = num_rows > TILE_HEIGHT ? 2 : 4;
  int64_t least_load = 0;
  for (int64_t width = MOST_ITEM_PANELS; width > 0; width -= unit) {
    const int64_t num_widths = ceil_div(num_panels, width);
    const int64_t load = ceil_div(num_widths * best.num_row_blocks, num_threads) * width;
    if (best.width == 0 || load * 100 < least_load * 97) {
      best.width = width;
      best.num_widths = num_widths;
      least_load = load;
    }
  }
  return best;
}

// Return item `number` of a product that is cut by cut_for_blocks, of rows first_row to end_row.
template <class T>
static inline Item<T> block_item(const PwLinear& linear, const Cut& c, int64_t number,
                                 int64_t first_row, int64_t end_row) {
  typedef typename T::Element Element;
  const int64_t panel_size = panel_bytes(linear) / (int64_t)sizeof(Element);
  // The rows stay in the cache while the thread takes adjacent items.
  const int64_t begin = first_row + number / c.num_widths * c.num_rows;
  const int64_t first_panel = number % c.num_widths * c.width;
  const bool is_last = first_panel + c.width >= c.num_panels;
  Item<T> item = {{},
                  first_panel,
                  (int)least(c.width, c.num_panels - first_panel),
                  begin,
                  least(begin + c.num_rows, end_row),
                  is_last ? -first_panel * panel_size : c.width * panel_size};
  for (int n = 0; n < item.num_panels; n++)
    item.panels[n] = (const Element*)linear.weight + (first_panel + n) * panel_size;
  return item;
}

}  // namespace PW_ISA
