// Linear layers over packed weights: the distribution to threads, and the use of the sums.
#pragma once

namespace PW_ISA {

// Matrices of the same shape and storage with the rows that each is multiplied with: those of matrix i
// are starts[i] to starts[i + 1] of the input.
struct Group {
  const PwLinear* linears;
  const int64_t* starts;
  int64_t count;
  const LowRank* low = nullptr;  // adapters of the rows, those of each matrix; null for none

  int64_t num_rows(int64_t i) const { return starts[i + 1] - starts[i]; }
};

// The rows of a single matrix, or of the slices of one.
struct AllRows {
  int64_t starts[PW_MOST_SLICES + 1];

  explicit AllRows(int64_t num_rows, int32_t num_slices = 1) {
    for (int32_t i = 0; i <= num_slices; i++) starts[i] = i * num_rows;
  }
  Group of(const PwLinear& linear, const LowRank* low = nullptr) const {
    return {&linear, starts, 1, low};
  }
};

// The items of a product: those of each matrix, one matrix after the other.
template <class T>
class Items {
 public:
  Items(const Group& group, int num_threads, bool is_even)
      : group_(group), num_threads_(num_threads), is_even_(is_even) {
    count_ = 0;
    for (int64_t i = 0; i < group.count; i++) {
      first_[i] = count_;
      if (group.num_rows(i) > 0) count_ += cut_of(i).num_items();
    }
    first_[group.count] = count_;
    if (count_ > 0) enter(0);
  }
  int64_t count() const { return count_; }
  // The matrix of an item, and how it is cut.
  void find(int64_t item) {
    while (item < first_[matrix_]) enter(matrix_ - 1);
    while (item >= first_[matrix_ + 1]) enter(matrix_ + 1);
  }
  int64_t matrix() const { return matrix_; }
  int64_t number(int64_t item) const { return item - first_[matrix_]; }
  const Cut& cut() const { return cut_; }
  bool in_blocks() const { return in_blocks(matrix_); }
  // The weights behind those of this matrix, or null.
  const typename T::Element* next_weights() const {
    for (int64_t i = matrix_ + 1; i < group_.count; i++)
      if (group_.num_rows(i) > 0) return (const typename T::Element*)group_.linears[i].weight;
    return nullptr;
  }

 private:
  bool in_blocks(int64_t i) const {
    if constexpr (TileStorage<T>::EXISTS) return group_.num_rows(i) >= TileStorage<T>::LEAST_ROWS;
    if constexpr (Wide<T>::EXISTS)
      return group_.num_rows(i) >= Wide<T>::LEAST_ROWS && fits_block<T>(group_.linears[i]);
    return false;
  }
  Cut cut_of(int64_t i) const {
    const int64_t num_panels = group_.linears[i].num_outputs / PANEL, num_rows = group_.num_rows(i);
    if (in_blocks(i)) return cut_for_blocks(num_panels, num_rows, num_threads_);
    return PW_ISA::cut(num_panels, num_rows, num_threads_, is_even_);
  }
  void enter(int64_t i) {
    matrix_ = i;
    if (group_.num_rows(i) > 0) cut_ = cut_of(i);
  }

  const Group& group_;
  const int num_threads_;
  const bool is_even_;
  int64_t count_, matrix_ = 0;
  Cut cut_ = {};
  int64_t first_[PW_MOST_EXPERTS + 1];
};

// Compute one item with vector instructions.
template <class T, class Finish>
static inline void compute_item(PwPool* pool, int thread, const PwLinear& linear, Rows x,
                                const Items<T>& items, int64_t number, int64_t first_row,
                                int64_t end_row, const Finish& finish) {
  typedef typename T::Element Element;
  const int64_t panel_size = panel_bytes(linear) / (int64_t)sizeof(Element);
  const Cut& c = items.cut();
  int64_t first_panel = number / c.num_row_blocks * c.width;
  int64_t block = number % c.num_row_blocks, begin = first_row + block * c.num_rows;
  Item<T> item = {{},
                  first_panel,
                  (int)least(c.width, c.num_panels - first_panel),
                  begin,
                  least(begin + c.num_rows, end_row),
                  c.width * panel_size};
  for (int n = 0; n < item.num_panels; n++)
    item.panels[n] = (const Element*)linear.weight + (first_panel + n) * panel_size;
  // The guess is that the thread takes adjacent items.
  if (block + 1 < c.num_row_blocks) {
    item.next = 0;
  } else if (first_panel + c.width >= c.num_panels) {
    const Element* next = items.next_weights();
    item.next = next == nullptr ? 0 : next - item.panels[0];
  }
  if constexpr (Widening<T>::IS_CODES) {
    if (item.end - item.begin >= WIDENING_ROWS)
      return widen_and_multiply(pool, thread, linear, x, item, finish);
  }
  multiply_item(linear, x, item, finish);
}

// The rows of a product, x or what was prepared of it.
static inline Rows rows_for(const PwLinear& linear, const void* x, void* prepared,
                            int64_t num_rows) {
  if (linear.order != nullptr) x = ordered_rows(linear, prepared, num_rows);
  return {x, prepared};
}

// Call finish(row, first_panel, num_panels, sums) for each row of this thread's share of x W^T, where
// `finish` is finish_of(matrix). The sums are 16 floats per panel and may be overwritten.
template <class T, class FinishOf>
static void linear_share(PwPool* pool, int phase, int thread, const Group& group, Rows x,
                         bool is_even, const FinishOf& finish_of) {
  Items<T> items(group, pool->num_threads, is_even);
  [[maybe_unused]] Tiles tiles;
  for (int64_t item; (item = pool->next(phase, thread, items.count())) < items.count();) {
    items.find(item);
    const int64_t matrix = items.matrix(), number = items.number(item);
    const PwLinear& linear = group.linears[matrix];
    const int64_t first_row = group.starts[matrix], end_row = group.starts[matrix + 1];
    const auto finish_sums = finish_of(linear);
    const auto finish = [&](int64_t row, int64_t panel, int num_panels, float* sums) {
      if (__builtin_expect(group.low != nullptr, 0))
        add_low_rank(*group.low, matrix, row, end_row, panel, num_panels, sums);
      finish_sums(row, panel, num_panels, sums);
    };
    if constexpr (TileStorage<T>::EXISTS || Wide<T>::EXISTS) {
      if (items.in_blocks()) {
        const Item<T> one = block_item<T>(linear, items.cut(), number, first_row, end_row);
        if constexpr (TileStorage<T>::EXISTS)
          multiply_by_tiles(pool, thread, tiles, linear, x, one, finish);
        else
          BlockItem<T>(pool, thread, linear, x, one).multiply(finish);
        continue;
      }
    }
    compute_item<T>(pool, thread, linear, x, items, number, first_row, end_row, finish);
  }
}

// y [num_rows, stride] = x W^T + bias
template <class T>
static void store_share(PwPool* pool, int phase, int thread, const Group& group, Rows x, float* y,
                        int64_t stride) {
  linear_share<T>(pool, phase, thread, group, x, false, [=](const PwLinear& linear) {
    const float* bias = linear.bias;
    return [=](int64_t row, int64_t panel, int num_panels, float* sums) {
      for (int n = 0; n < num_panels; n++) {
        V sum = load(sums + n * PANEL);
        int64_t column = (panel + n) * PANEL;
        if (bias != nullptr) sum = add(sum, load(bias + column));
        store(y + row * stride + column, sum);
      }
    };
  });
}

// y [num_rows, outputs] += factor * (x W^T + bias)
template <class T>
static void add_share(PwPool* pool, int phase, int thread, const Group& group, Rows x,
                      float factor, float* y) {
  linear_share<T>(pool, phase, thread, group, x, false, [=](const PwLinear& linear) {
    const float* bias = linear.bias;
    const int64_t stride = linear.num_outputs;
    return [=](int64_t row, int64_t panel, int num_panels, float* sums) {
      for (int n = 0; n < num_panels; n++) {
        V sum = load(sums + n * PANEL);
        int64_t column = (panel + n) * PANEL;
        if (bias != nullptr) sum = add(sum, load(bias + column));
        float* out = y + row * stride + column;
        store(out, add(load(out), mul(sum, set1(factor))));
      }
    };
  });
}

// Goes along the panels of a row of y [slices, num_rows, outputs of a slice].
template <class Out>
class SlicedRow {
 public:
  SlicedRow(void* y, int64_t num_rows, int64_t size, int64_t row, int64_t column)
      : at_(column), size_(size), next_slice_(num_rows * size), out_((Out*)y + row * size) {
    if (at_ < size) return;
    out_ += at_ / size * next_slice_;
    at_ %= size;
  }
  void store_next(V values) {
    store(out_ + at_, values);
    if ((at_ += PANEL) < size_) return;
    at_ = 0;
    out_ += next_slice_;
  }

 private:
  int64_t at_, size_, next_slice_;
  Out* out_;
};

// y [slices, num_rows, outputs / 2 / slices] = activation(gate) * up; panels of gate and up alternate in the
// matrix.
template <class T, class Out>
static void gate_up_share(PwPool* pool, int phase, int thread, const Group& group, Rows x,
                          const PwActivation& activation, int32_t num_slices, void* y) {
  const int64_t num_rows = group.starts[group.count];
  linear_share<T>(pool, phase, thread, group, x, true, [=](const PwLinear& linear) {
    const float* bias = linear.bias;
    const int64_t size = linear.num_outputs / 2 / num_slices;
    return [=](int64_t row, int64_t panel, int num_panels, float* sums) {
      SlicedRow<Out> out(y, num_rows, size, row, panel / 2 * PANEL);
      for (int n = 0; n < num_panels; n += 2) {
        V gate = load(sums + n * PANEL), up = load(sums + (n + 1) * PANEL);
        if (bias != nullptr) {
          gate = add(gate, load(bias + (panel + n) * PANEL));
          up = add(up, load(bias + (panel + n + 1) * PANEL));
        }
        out.store_next(gated(activation, gate, up));
      }
    };
  });
}

// y [slices, num_rows, outputs / slices] = activation(x W^T + bias)
template <class T, class Out>
static void activate_share(PwPool* pool, int phase, int thread, const Group& group, Rows x,
                           const PwActivation& activation, int32_t num_slices, void* y) {
  const int64_t num_rows = group.starts[group.count];
  linear_share<T>(pool, phase, thread, group, x, false, [=](const PwLinear& linear) {
    const float* bias = linear.bias;
    const int64_t size = linear.num_outputs / num_slices;
    return [=](int64_t row, int64_t panel, int num_panels, float* sums) {
      SlicedRow<Out> out(y, num_rows, size, row, panel * PANEL);
      for (int n = 0; n < num_panels; n++) {
        V sum = load(sums + n * PANEL);
        int64_t column = (panel + n) * PANEL;
        if (bias != nullptr) sum = add(sum, load(bias + column));
        out.store_next(activate(activation, sum));
      }
    };
  });
}

// Select the type of a product: T itself, or quantized activations.
#define PW_BY_KIND(linear, call)            \
  switch ((linear).kind) {                  \
    case PW_INT8: call(Int8); break;        \
    case PW_INT4: call(Int4); break;        \
    case PW_CODES8: call(Codes8<T>); break; \
    case PW_CODES4: call(Codes4<T>); break; \
    case PW_FLOATS8: call(Floats8<T>); break; \
    default: call(T);                       \
  }

template <class T>
static void store_linear(PwPool* pool, int phase, int thread, const Group& group, Rows x, float* y,
                         int64_t stride) {
#define PW_CALL(K) store_share<K>(pool, phase, thread, group, x, y, stride)
  PW_BY_KIND(group.linears[0], PW_CALL)
#undef PW_CALL
}

template <class T>
static void add_linear(PwPool* pool, int phase, int thread, const Group& group, Rows x,
                       float factor, float* y) {
#define PW_CALL(K) add_share<K>(pool, phase, thread, group, x, factor, y)
  PW_BY_KIND(group.linears[0], PW_CALL)
#undef PW_CALL
}

template <class T>
static void gate_up_linear(PwPool* pool, int phase, int thread, const Group& group, Rows x,
                           const PwActivation& activation, int32_t num_slices, void* y) {
#define PW_CALL(K) \
  gate_up_share<K, typename T::Element>(pool, phase, thread, group, x, activation, num_slices, y)
  PW_BY_KIND(group.linears[0], PW_CALL)
#undef PW_CALL
}

template <class T>
static void activate_linear(PwPool* pool, int phase, int thread, const Group& group, Rows x,
                            const PwActivation& activation, int32_t num_slices, void* y) {
#define PW_CALL(K) \
  activate_share<K, typename T::Element>(pool, phase, thread, group, x, activation, num_slices, y)
  PW_BY_KIND(group.linears[0], PW_CALL)
#undef PW_CALL
}

// Quantize this thread's share of the rows of `x`, or put them in order and sum up their groups, if the
// matrix needs that.
// Other threads may read the results only after a barrier.
template <class T>
static void prepare_share(PwPool* pool, int thread, const PwLinear& linear, const void* x,
                          int64_t num_rows, void* prepared) {
  if (!is_prepared(linear)) return;
  const int64_t size = linear.num_inputs, group = linear.group, stride = prepared_row_bytes(linear);
  Share rows = share(pool, thread, num_rows);
  for (int64_t row = rows.first; row < rows.last; row++) {
    const typename T::Element* from = (const typename T::Element*)x + row * size;
    if (linear.order != nullptr) {
      typename T::Element* to =
          (typename T::Element*)ordered_rows(linear, prepared, num_rows) + row * size;
      for (int64_t i = 0; i < size; i++) to[i] = from[linear.order[i]];
      from = to;
    }
    if (is_quantized(linear))
      quantize_row(from, size, group, (int8_t*)prepared + row * stride);
    else if (has_offsets(linear))
      for (int64_t g = 0; g < size / group; g++)
        ((float*)prepared)[row * (size / group) + g] = sum_of_group(from + g * group, group);
  }
}

}  // namespace PW_ISA
