// Linear layers over packed weights: the distribution to threads, and the use of the sums.
#pragma once

namespace PW_ISA {

static constexpr int MAX_ITEM_PANELS = 6;
static constexpr int WIDE_ITEM_PANELS = 4;  // of an item with many rows: as in a wide tile
static constexpr int64_t MOST_ITEM_ROWS = 256, LEAST_ITEM_ROWS = 32;
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
    later[n] = panels[n] + next - (T::STEP < 8 ? turn * PANEL : 0);
  }
  return {ahead, 0, later, turn};
}

// Distance of the input rows of a product, in elements.
template <class T>
static inline int64_t row_stride(const PwLinear& linear) {
  if constexpr (T::STEP >= 4)
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
    VI offset = integers(Int8::OFFSET * sums_of(row, linear.num_inputs)[0]);
    for (int n = 0; n < num_panels; n++) {
      V whole = to_floats(subtract(load_integers(sums + n * PANEL), offset));
      V scales = mul(load(linear.scales + (first_panel + n) * PANEL), scale);
      store(sums + n * PANEL, mul(whole, scales));
    }
  } else if constexpr (T::STEP == 8) {
    V scale = set1(scale_of(row, linear.num_inputs));
    for (int n = 0; n < num_panels; n++)
      store(sums + n * PANEL, mul(load(sums + n * PANEL), scale));
  }
}

// Call finish(row, first_panel, num_panels, sums) for each row of this thread's share of x W^T. The
// sums are 16 floats per panel and may be overwritten.
template <class T, class Finish>
static void linear_share(PwPool* pool, int phase, int thread, const PwLinear& linear, const void* x,
                         int64_t num_rows, bool is_even, const Finish& finish) {
  typedef typename T::Element Element;
  typedef typename T::Input Input;
  const int64_t size = linear.num_inputs, stride = row_stride<T>(linear);
  const int64_t panel_size = panel_bytes(linear) / (int64_t)sizeof(Element);
  const Cut c = cut(linear.num_outputs / PANEL, num_rows, pool->num_threads, is_even);
  alignas(64) float sums[MAX_TILE_ROWS][MAX_ITEM_PANELS * PANEL];
  for (int64_t item; (item = pool->next(phase, thread, c.num_items())) < c.num_items();) {
    int64_t first_panel = item / c.num_row_blocks * c.width;
    int num_panels = (int)least(c.width, c.num_panels - first_panel);
    const Element *panels[MAX_ITEM_PANELS], *ahead[MAX_ITEM_PANELS], *later[MAX_ITEM_PANELS];
    for (int n = 0; n < num_panels; n++)
      panels[n] = (const Element*)linear.weight + (first_panel + n) * panel_size;
    int64_t block = item % c.num_row_blocks, begin = block * c.num_rows;
    int64_t end = least(begin + c.num_rows, num_rows);
    int64_t most_rows = tile_rows(end - begin), num_tiles = ceil_div(end - begin, most_rows);
    // The guess is that the thread takes adjacent items.
    bool is_last = first_panel + c.width >= c.num_panels || block + 1 < c.num_row_blocks;
    int64_t next = is_last ? 0 : c.width * panel_size;
    for (int64_t t = 0, row = begin; row < end; t++, row += most_rows) {
      int64_t rows = least(most_rows, end - row);
      const Input* first = (const Input*)x + row * stride;
      multiply_rows<T>(first, stride, (int)rows, size, linear.group, panels, num_panels, sums[0],
                       MAX_ITEM_PANELS * PANEL,
                       read_ahead<T>(t, num_tiles, size, next, panels, num_panels, ahead, later));
      for (int64_t m = 0; m < rows; m++) {
        rescale<T>(linear, first + m * stride, first_panel, num_panels, sums[m]);
        finish(row + m, first_panel, num_panels, sums[m]);
      }
    }
  }
}

// y [num_rows, stride] = x W^T + bias
template <class T>
static void store_share(PwPool* pool, int phase, int thread, const PwLinear& linear,
                        const void* x,
                        int64_t num_rows, float* y, int64_t stride) {
  const float* bias = linear.bias;
  linear_share<T>(pool, phase, thread, linear, x, num_rows, false,
                  [=](int64_t row, int64_t panel, int num_panels, float* sums) {
                    for (int n = 0; n < num_panels; n++) {
                      V sum = load(sums + n * PANEL);
                      int64_t column = (panel + n) * PANEL;
                      if (bias != nullptr) sum = add(sum, load(bias + column));
                      store(y + row * stride + column, sum);
                    }
                  });
}

// y [num_rows, outputs] += factor * (x W^T + bias)
template <class T>
static void add_share(PwPool* pool, int phase, int thread, const PwLinear& linear,
                        const void* x,
                      int64_t num_rows, float factor, float* y) {
  const float* bias = linear.bias;
  const int64_t stride = linear.num_outputs;
  linear_share<T>(pool, phase, thread, linear, x, num_rows, false,
                  [=](int64_t row, int64_t panel, int num_panels, float* sums) {
                    for (int n = 0; n < num_panels; n++) {
                      V sum = load(sums + n * PANEL);
                      int64_t column = (panel + n) * PANEL;
                      if (bias != nullptr) sum = add(sum, load(bias + column));
                      float* out = y + row * stride + column;
                      store(out, add(load(out), mul(sum, set1(factor))));
                    }
                  });
}

// y [num_rows, outputs / 2] = function(gate) * up; panels of gate and up alternate in the matrix.
template <class T, class Out>
static void gate_up_share(PwPool* pool, int phase, int thread, const PwLinear& linear,
                        const void* x,
                          int64_t num_rows, int function, void* y) {
  const float* bias = linear.bias;
  const int64_t stride = linear.num_outputs / 2;
  linear_share<T>(pool, phase, thread, linear, x, num_rows, true,
                  [=](int64_t row, int64_t panel, int num_panels, float* sums) {
                    for (int n = 0; n < num_panels; n += 2) {
                      V gate = load(sums + n * PANEL), up = load(sums + (n + 1) * PANEL);
                      if (bias != nullptr) {
                        gate = add(gate, load(bias + (panel + n) * PANEL));
                        up = add(up, load(bias + (panel + n + 1) * PANEL));
                      }
                      store((Out*)y + row * stride + (panel + n) / 2 * PANEL,
                            mul(activate(function, gate), up));
                    }
                  });
}

// y [num_rows, outputs] = function(x W^T + bias)
template <class T, class Out>
static void activate_share(PwPool* pool, int phase, int thread, const PwLinear& linear,
                           const void* x, int64_t num_rows, int function, void* y) {
  const float* bias = linear.bias;
  const int64_t stride = linear.num_outputs;
  linear_share<T>(pool, phase, thread, linear, x, num_rows, false,
                  [=](int64_t row, int64_t panel, int num_panels, float* sums) {
                    for (int n = 0; n < num_panels; n++) {
                      V sum = load(sums + n * PANEL);
                      int64_t column = (panel + n) * PANEL;
                      if (bias != nullptr) sum = add(sum, load(bias + column));
                      store((Out*)y + row * stride + column, activate(function, sum));
                    }
                  });
}

// Select the type of a product: T itself, or quantized activations.
#define PW_BY_KIND(linear, call)      \
  switch ((linear).kind) {            \
    case PW_INT8: call(Int8); break;  \
    case PW_INT4: call(Int4); break;  \
    default: call(T);                 \
  }

// Input of a product: rows of T, and the same rows quantized if the matrix needs that.
struct Rows {
  const void* plain;
  const void* quantized;

  const void* of(const PwLinear& linear) const { return is_quantized(linear) ? quantized : plain; }
};

template <class T>
static void store_linear(PwPool* pool, int phase, int thread, const PwLinear& linear, Rows x,
                         int64_t num_rows, float* y, int64_t stride) {
#define PW_CALL(K) store_share<K>(pool, phase, thread, linear, x.of(linear), num_rows, y, stride)
  PW_BY_KIND(linear, PW_CALL)
#undef PW_CALL
}

template <class T>
static void add_linear(PwPool* pool, int phase, int thread, const PwLinear& linear, Rows x,
                       int64_t num_rows, float factor, float* y) {
#define PW_CALL(K) add_share<K>(pool, phase, thread, linear, x.of(linear), num_rows, factor, y)
  PW_BY_KIND(linear, PW_CALL)
#undef PW_CALL
}

template <class T>
static void gate_up_linear(PwPool* pool, int phase, int thread, const PwLinear& linear, Rows x,
                           int64_t num_rows, int function, void* y) {
#define PW_CALL(K)                                                                           \
  gate_up_share<K, typename T::Element>(pool, phase, thread, linear, x.of(linear), num_rows, \
                                        function, y)
  PW_BY_KIND(linear, PW_CALL)
#undef PW_CALL
}

template <class T>
static void activate_linear(PwPool* pool, int phase, int thread, const PwLinear& linear, Rows x,
                            int64_t num_rows, int function, void* y) {
#define PW_CALL(K)                                                                            \
  activate_share<K, typename T::Element>(pool, phase, thread, linear, x.of(linear), num_rows, \
                                         function, y)
  PW_BY_KIND(linear, PW_CALL)
#undef PW_CALL
}

// Quantize this thread's share of the rows of `x` if the matrix needs that. Other threads may read
// them only after a barrier.
template <class T>
static void quantize_share(PwPool* pool, int thread, const PwLinear& linear, const void* x,
                           int64_t num_rows, void* quantized) {
  if (!is_quantized(linear)) return;
  const int64_t size = linear.num_inputs, stride = quantized_row_bytes(size, linear.group);
  Share rows = share(pool, thread, num_rows);
  for (int64_t row = rows.first; row < rows.last; row++)
    quantize_row((const typename T::Element*)x + row * size, size, linear.group,
                 (int8_t*)quantized + row * stride);
}

}  // namespace PW_ISA
