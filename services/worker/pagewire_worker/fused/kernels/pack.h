// Weights as the products read them: panels of 16 outputs, [inputs / STEP][16 outputs][STEP].
#pragma once

namespace PW_ISA {

static inline float element(const void* p, int64_t index, int32_t type) {
  if (type == PW_FLOAT32) return ((const float*)p)[index];
  uint32_t bits = (uint32_t)((const uint16_t*)p)[index] << 16;
  float x;
  __builtin_memcpy(&x, &bits, 4);
  return x;
}

// Rows of bfloat16, two inputs at a time.
static inline void pack_pairs(const uint16_t* const* rows, int64_t num_inputs, uint32_t* out) {
  for (int64_t k = 0; k < num_inputs; k += 2)
    for (int lane = 0; lane < PANEL; lane++)
      __builtin_memcpy(out + k / 2 * PANEL + lane, rows[lane] + k, 4);
}

template <class T>
static void pack_panel(const PackArguments& a, int64_t panel) {
  typedef typename T::Element Element;
  const int64_t size = a.num_inputs;
  Element* out = (Element*)a.packed + (a.first_panel + panel * a.panel_step) * PANEL * size;
  const int64_t first_row = panel * PANEL;
  bool is_whole = first_row + PANEL <= a.num_rows;
  if (T::STEP == 2 && a.source_type == PW_BFLOAT16 && is_whole) {
    const uint16_t* rows[PANEL];
    for (int lane = 0; lane < PANEL; lane++)
      rows[lane] = (const uint16_t*)a.source + (first_row + lane) * size;
    pack_pairs(rows, size, (uint32_t*)out);
    return;
  }
  for (int64_t k = 0; k < size; k++)
    for (int64_t lane = 0; lane < PANEL; lane++) {
      int64_t row = first_row + lane;
      float x = row < a.num_rows ? element(a.source, row * size + k, a.source_type) : 0.0f;
      store_element<T>(out + k / T::STEP * PANEL * T::STEP + lane * T::STEP + k % T::STEP, x);
    }
}

template <class T>
static void pack_job(PwPool* pool, const void* arguments, int thread) {
  const PackArguments& a = *(const PackArguments*)arguments;
  const int64_t num_panels = ceil_div(a.num_rows, PANEL);
  for (int64_t panel; (panel = pool->next(0, thread, num_panels)) < num_panels;)
    pack_panel<T>(a, panel);
}

// Read one row of a packed matrix.
template <class T>
static inline void unpack_row(const PwLinear& matrix, int64_t row, float* out) {
  typedef typename T::Element Element;
  constexpr int STEP = T::STEP;
  const Element* p = (const Element*)matrix.weight + row / PANEL * PANEL * matrix.num_inputs +
                     row % PANEL * STEP;
  for (int64_t k = 0; k < matrix.num_inputs; k++)
    out[k] = element(p, k / STEP * PANEL * STEP + k % STEP, STEP == 1 ? PW_FLOAT32 : PW_BFLOAT16);
}

}  // namespace PW_ISA
