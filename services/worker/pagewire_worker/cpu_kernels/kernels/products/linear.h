// Linear layers over packed weights: the distribution to threads, and the use of the sums.
#pragma once

namespace PW_ISA {

// Call finish(row, first_panel, num_panels, sums) for each row of this thread's share of x W^T. The
// sums are 16 floats per panel and may be overwritten.
template <class T, class Finish>
static void linear_share(PwPool* pool, int phase, int thread, const PwLinear& linear, Rows x,
                         int64_t num_rows, bool is_even, const Finish& finish) {
  if constexpr (TileStorage<T>::EXISTS) {
    if (num_rows >= TileStorage<T>::LEAST_ROWS)
      return linear_share_by_tiles<T>(pool, phase, thread, linear, x, num_rows, finish);
  }
  typedef typename T::Element Element;
  const int64_t panel_size = panel_bytes(linear) / (int64_t)sizeof(Element);
  const Cut c = cut(linear.num_outputs / PANEL, num_rows, pool->num_threads, is_even);
  for (int64_t number; (number = pool->next(phase, thread, c.num_items())) < c.num_items();) {
    int64_t first_panel = number / c.num_row_blocks * c.width;
    int64_t block = number % c.num_row_blocks, begin = block * c.num_rows;
    // The guess is that the thread takes adjacent items.
    bool is_last = first_panel + c.width >= c.num_panels || block + 1 < c.num_row_blocks;
    Item<T> item = {{},
                    first_panel,
                    (int)least(c.width, c.num_panels - first_panel),
                    begin,
                    least(begin + c.num_rows, num_rows),
                    is_last ? 0 : c.width * panel_size};
    for (int n = 0; n < item.num_panels; n++)
      item.panels[n] = (const Element*)linear.weight + (first_panel + n) * panel_size;
    if constexpr (Widening<T>::IS_CODES) {
      if (item.end - item.begin >= WIDENING_ROWS) {
        widen_and_multiply(pool, thread, linear, x, item, finish);
        continue;
      }
    }
    multiply_item(linear, x, item, finish);
  }
}

// y [num_rows, stride] = x W^T + bias
template <class T>
static void store_share(PwPool* pool, int phase, int thread, const PwLinear& linear,
                        Rows x, int64_t num_rows, float* y, int64_t stride) {
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
                      Rows x, int64_t num_rows, float factor, float* y) {
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
                      Rows x, int64_t num_rows, int function, void* y) {
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
                           Rows x, int64_t num_rows, int function, void* y) {
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
#define PW_BY_KIND(linear, call)            \
  switch ((linear).kind) {                  \
    case PW_INT8: call(Int8); break;        \
    case PW_INT4: call(Int4); break;        \
    case PW_CODES8: call(Codes8<T>); break; \
    case PW_CODES4: call(Codes4<T>); break; \
    default: call(T);                       \
  }

template <class T>
static void store_linear(PwPool* pool, int phase, int thread, const PwLinear& linear, Rows x,
                         int64_t num_rows, float* y, int64_t stride) {
#define PW_CALL(K) store_share<K>(pool, phase, thread, linear, x, num_rows, y, stride)
  PW_BY_KIND(linear, PW_CALL)
#undef PW_CALL
}

template <class T>
static void add_linear(PwPool* pool, int phase, int thread, const PwLinear& linear, Rows x,
                       int64_t num_rows, float factor, float* y) {
#define PW_CALL(K) add_share<K>(pool, phase, thread, linear, x, num_rows, factor, y)
  PW_BY_KIND(linear, PW_CALL)
#undef PW_CALL
}

template <class T>
static void gate_up_linear(PwPool* pool, int phase, int thread, const PwLinear& linear, Rows x,
                           int64_t num_rows, int function, void* y) {
#define PW_CALL(K)                                                                           \
  gate_up_share<K, typename T::Element>(pool, phase, thread, linear, x, num_rows, \
                                        function, y)
  PW_BY_KIND(linear, PW_CALL)
#undef PW_CALL
}

template <class T>
static void activate_linear(PwPool* pool, int phase, int thread, const PwLinear& linear, Rows x,
                            int64_t num_rows, int function, void* y) {
#define PW_CALL(K)                                                                            \
  activate_share<K, typename T::Element>(pool, phase, thread, linear, x, num_rows, \
                                         function, y)
  PW_BY_KIND(linear, PW_CALL)
#undef PW_CALL
}

// Quantize this thread's share of the rows of `x`, or sum up their groups, if the matrix needs that.
// Other threads may read the results only after a barrier.
template <class T>
static void prepare_share(PwPool* pool, int thread, const PwLinear& linear, const void* x,
                          int64_t num_rows, void* prepared) {
  if (!is_prepared(linear)) return;
  const int64_t size = linear.num_inputs, group = linear.group, stride = prepared_row_bytes(linear);
  Share rows = share(pool, thread, num_rows);
  for (int64_t row = rows.first; row < rows.last; row++) {
    const typename T::Element* from = (const typename T::Element*)x + row * size;
    if (is_quantized(linear))
      quantize_row(from, size, group, (int8_t*)prepared + row * stride);
    else
      for (int64_t g = 0; g < size / group; g++)
        ((float*)prepared)[row * (size / group) + g] = sum_of_group(from + g * group, group);
  }
}

}  // namespace PW_ISA
