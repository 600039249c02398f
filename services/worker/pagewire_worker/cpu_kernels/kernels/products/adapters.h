// Adapters of low rank: y += scaling * up (down x), each token with its own. Both products are summed in
// float32 in the order of the inputs and of the ranks, whatever else is in the step.
#pragma once

namespace PW_ISA {

// What is added to the sums of a product: the result of PW_LOWER, times `up` of each token's adapter.
struct LowRank {
  const PwAdapters* adapters;  // of the first matrix of the product; those of others follow
  const int64_t* slots;        // of the rows
  const float* low;            // [rows, num_parts, max_rank]
  int32_t type;                // of the model
};

static constexpr int RAISED = 4;  // panels that are summed at once

// Where the adapter of one panel lies, and the result of PW_LOWER that it is multiplied with.
template <class Element>
struct RaisedPanel {
  const Element* up;
  const float* x;
  int32_t rank;

  RaisedPanel() {}
  RaisedPanel(const PwAdapters& adapters, const PwAdapterPart* parts, const float* low,
              int64_t number) {
    const PwAdapterPanel panel = adapters.panels[number];
    const PwAdapterPart& part = parts[panel.part];
    up = (const Element*)part.up + (int64_t)panel.place * part.rank * PANEL;
    x = low + (int64_t)panel.part * adapters.max_rank;
    rank = part.rank;
  }
};

// Several panels of one rank at once: each sum waits for the product before it, others need not.
template <class Element, int COUNT>
static inline void raise_panels(const RaisedPanel<Element>* panels, float* sums) {
  V raised[COUNT];
  for (int k = 0; k < COUNT; k++) raised[k] = zero();
  for (int32_t r = 0; r < panels[0].rank; r++)
    for (int k = 0; k < COUNT; k++)
      raised[k] = fma(load(panels[k].up + r * PANEL), set1(panels[k].x[r]), raised[k]);
  for (int k = 0; k < COUNT; k++) store(sums + k * PANEL, add(load(sums + k * PANEL), raised[k]));
}

template <class Element>
static inline void raise_panels(const PwAdapters& adapters, const PwAdapterPart* parts,
                                const float* low, int64_t first_panel, int num_panels, float* sums) {
  for (int n = 0; n < num_panels;) {
    RaisedPanel<Element> panels[RAISED];
    int count = 0;
    while (count < RAISED && n + count < num_panels) {
      panels[count] = RaisedPanel<Element>(adapters, parts, low, first_panel + n + count);
      if (panels[count].rank != panels[0].rank) break;
      count++;
    }
    float* own = sums + n * PANEL;
    n += count;
    if (panels[0].rank == 0) continue;
    switch (count) {
      case 4: raise_panels<Element, 4>(panels, own); break;
      case 3: raise_panels<Element, 3>(panels, own); break;
      case 2: raise_panels<Element, 2>(panels, own); break;
      default: raise_panels<Element, 1>(panels, own);
    }
  }
}

// Fetch what `raise_panels` reads of the next row, of another adapter, while others are computed.
static inline void prefetch_panels(const PwAdapters& adapters, const PwAdapterPart* parts,
                                   int64_t first_panel, int num_panels, int64_t value_bytes) {
  for (int n = 0; n < num_panels; n++) {
    const PwAdapterPanel panel = adapters.panels[first_panel + n];
    const PwAdapterPart& part = parts[panel.part];
    const int64_t size = part.rank * PANEL * value_bytes;
    const char* up = (const char*)part.up + panel.place * size;
    for (int64_t at = 0; at < size; at += 64) __builtin_prefetch(up + at);
  }
}

// Add the adapter of a row to its sums for matrix `matrix` of the product. Apart from the loops of
// products, which keep their registers. Rows come in order up to `end_row`.
static __attribute__((noinline)) void add_low_rank(const LowRank& low, int64_t matrix, int64_t row,
                                                   int64_t end_row, int64_t first_panel,
                                                   int num_panels, float* sums) {
  const PwAdapters& adapters = low.adapters[matrix];
  if (row + 1 < end_row && low.slots[row + 1] >= 0 && low.slots[row + 1] != low.slots[row])
    prefetch_panels(adapters, adapters.parts + low.slots[row + 1] * adapters.num_parts, first_panel,
                    num_panels, low.type == PW_BFLOAT16 ? 2 : 4);
  if (low.slots[row] < 0) return;
  const PwAdapterPart* parts = adapters.parts + low.slots[row] * adapters.num_parts;
  const float* x = low.low + row * adapters.num_parts * adapters.max_rank;
  if (low.type == PW_BFLOAT16)
    raise_panels<Bf16>(adapters, parts, x, first_panel, num_panels, sums);
  else
    raise_panels<float>(adapters, parts, x, first_panel, num_panels, sums);
}

static constexpr int LOWERED = 4;  // ranks that are summed at once

template <class Element, int COUNT>
static inline void lower_ranks(const Element* x, const Element* down, int64_t size, float scaling,
                               bool has_next, float* y) {
  V sums[COUNT];
  for (int k = 0; k < COUNT; k++) sums[k] = zero();
  for (int64_t i = 0; i < size; i += PANEL) {
    V values = load(x + i);
    // The rows are short: a processor that guesses from what was read finds each too late.
    if (has_next)
      for (int k = 0; k < COUNT; k++) __builtin_prefetch(down + (COUNT + k) * size + i);
    for (int k = 0; k < COUNT; k++) sums[k] = fma(load(down + k * size + i), values, sums[k]);
  }
  for (int k = 0; k < COUNT; k++) y[k] = sum_of(sums[k]) * scaling;
}

// y [rows, num_parts, max_rank] = scaling * (down x) of one row with the adapter of `slot`.
template <class T>
static inline void lower_row(const PwAdapters& adapters, int64_t slot, const void* x, int64_t row,
                             float* y) {
  typedef typename T::Element Element;
  const int64_t size = adapters.num_inputs;
  const Element* from = (const Element*)x + row * size;
  for (int32_t p = 0; p < adapters.num_parts; p++) {
    const PwAdapterPart& part = adapters.parts[slot * adapters.num_parts + p];
    const Element* down = (const Element*)part.down;
    float* to = y + (row * adapters.num_parts + p) * adapters.max_rank;
    int32_t r = 0;
    for (; r + LOWERED <= part.rank; r += LOWERED)
      lower_ranks<Element, LOWERED>(from, down + r * size, size, part.scaling,
                                    r + 2 * LOWERED <= part.rank, to + r);
    for (; r < part.rank; r++)
      lower_ranks<Element, 1>(from, down + r * size, size, part.scaling, false, to + r);
  }
}

// The same for this thread's tokens with an adapter.
template <class T>
static void lower_share(const PwAdapters& adapters, const int64_t* slots, const void* x,
                        Share tokens, float* y) {
  for (int64_t token = tokens.first; token < tokens.last; token++)
    if (slots[token] >= 0) lower_row<T>(adapters, slots[token], x, token, y);
}

static inline bool has_adapter(const PwAdapters& adapters, int64_t slot) {
  if (slot < 0) return false;
  for (int32_t p = 0; p < adapters.num_parts; p++)
    if (adapters.parts[slot * adapters.num_parts + p].rank > 0) return true;
  return false;
}

}  // namespace PW_ISA
