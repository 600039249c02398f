// Packs weights for the products: panels of 16 outputs, [inputs / STEP][16 outputs][STEP], or as
// described in quantized.h.
#pragma once

namespace PW_ISA {

static inline float element(const void* p, int64_t index, int32_t type) {
  if (type == PW_FLOAT32) return ((const float*)p)[index];
  uint32_t bits = (uint32_t)((const uint16_t*)p)[index] << 16;
  float x;
  __builtin_memcpy(&x, &bits, 4);
  return x;
}

// The 16 rows of a panel; some may lie behind the end of the matrix.
struct PanelSource {
  const PackArguments& a;
  int64_t first_row;

  int64_t size() const { return a.linear->num_inputs; }
  bool is_whole() const { return first_row + PANEL <= a.num_rows; }
  float at(int lane, int64_t k) const {
    int64_t row = first_row + lane;
    return row < a.num_rows ? element(a.source, row * size() + k, a.source_type) : 0.0f;
  }
};

// Rows of bfloat16, two inputs at a time.
static inline void pack_pairs(const PanelSource& rows, uint32_t* out) {
  const uint16_t* source = (const uint16_t*)rows.a.source + rows.first_row * rows.size();
  for (int64_t k = 0; k < rows.size(); k += 2)
    for (int lane = 0; lane < PANEL; lane++)
      __builtin_memcpy(out + k / 2 * PANEL + lane, source + lane * rows.size() + k, 4);
}

template <class T>
static inline void pack_elements(const PanelSource& rows, typename T::Element* out) {
  for (int64_t k = 0; k < rows.size(); k++)
    for (int lane = 0; lane < PANEL; lane++)
      store_element<T>(out + k / T::STEP * PANEL * T::STEP + lane * T::STEP + k % T::STEP,
                       rows.at(lane, k));
}

// Copy one row to floats; a row behind the end of the matrix is zeros.
static inline const float* widen_row(const PanelSource& rows, int lane, float* memory) {
  const int64_t row = rows.first_row + lane, size = rows.size();
  for (int64_t k = 0; k < size; k += PANEL) {
    V x = zero();
    if (row < rows.a.num_rows) {
      int64_t index = row * size + k;
      x = rows.a.source_type == PW_FLOAT32 ? load((const float*)rows.a.source + index)
                                           : load((const Bf16*)rows.a.source + index);
    }
    store(memory + k, x);
  }
  return memory;
}

// A value that is not finite makes the scale NaN, because no byte can represent it.
static inline void pack_int8(const PanelSource& rows, uint8_t* out, float* scales, float* memory) {
  for (int lane = 0; lane < PANEL; lane++) {
    const float* x = widen_row(rows, lane, memory);
    V high = set1(LEAST_LARGEST), strange = zero();
    for (int64_t k = 0; k < rows.size(); k += PANEL) {
      strange = fma(load(x + k), zero(), strange);
      high = max(high, max(load(x + k), sub(zero(), load(x + k))));
    }
    float greatest = greatest_of(high);
    scales[lane] = greatest / 127.0f + sum_of(strange);
    V factor = set1(127.0f / greatest), offset = set1(Int8::OFFSET);
    alignas(64) float q[PANEL];
    for (int64_t k = 0; k < rows.size(); k += PANEL) {
      V wide = add(round_even(mul(load(x + k), factor)), offset);
      store(q, max(min(wide, set1(255.0f)), zero()));
      for (int i = 0; i < PANEL; i++)
        out[(k + i) / 4 * PANEL * 4 + lane * 4 + i % 4] = (uint8_t)q[i];
    }
  }
}

// The value furthest from zero becomes -8, the longer end of the range. Returns NaN if a value is not
// finite.
static inline float int4_scale(const float* x, int64_t group) {
  float low = 0.0f, high = 0.0f, strange = 0.0f;
  for (int64_t i = 0; i < group; i++) {
    strange += x[i] * 0.0f;
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
  }
  return (high > -low ? high : low) / -8.0f + strange;
}

static inline void pack_int4(const PanelSource& rows, int64_t group, uint8_t* out, float* memory) {
  const int64_t group_bytes = GROUP_SCALES + group * PANEL / 2;
  for (int lane = 0; lane < PANEL; lane++) {
    const float* x = widen_row(rows, lane, memory);
    for (int64_t g = 0; g < rows.size() / group; g++) {
      float scale = int4_scale(x + g * group, group);
      // The reciprocal of a smaller scale would be infinite: such a group is stored as zeros.
      bool is_tiny = scale < LEAST_LARGEST && scale > -LEAST_LARGEST;
      V factor = set1(is_tiny ? 0.0f : 1.0f / scale), offset = set1(Int4::OFFSET);
      ((float*)(out + g * group_bytes))[lane] = scale;
      uint8_t* bytes = out + g * group_bytes + GROUP_SCALES + lane * 4;
      alignas(64) float q[PANEL];
      for (int64_t k = 0; k < group; k += PANEL) {
        V wide = add(round_even(mul(load(x + g * group + k), factor)), offset);
        store(q, max(min(wide, set1(15.0f)), zero()));
        for (int i = 0; i < PANEL; i += 8)
          for (int j = 0; j < 4; j++)
            bytes[(k + i) / 8 * PANEL * 4 + j] = (uint8_t)((int)q[i + j] | (int)q[i + j + 4] << 4);
      }
    }
  }
}

static void pack_job(PwPool* pool, const void* arguments, int thread) {
  const PackArguments& a = *(const PackArguments*)arguments;
  const PwLinear& linear = *a.linear;
  const int64_t num_panels = ceil_div(a.num_rows, PANEL);
  float* memory = (float*)pool->memory(thread, (size_t)linear.num_inputs * sizeof(float), JOB);
  for (int64_t panel; (panel = pool->next(0, thread, num_panels)) < num_panels;) {
    PanelSource rows = {a, panel * PANEL};
    int64_t place = a.first_panel + panel * a.panel_step;
    char* out = (char*)linear.weight + place * panel_bytes(linear);
    bool are_pairs = a.source_type == PW_BFLOAT16 && rows.is_whole();
    // The rows of a matrix of codes come through pack_codes_job.
    if (linear.kind == PW_INT4)
      pack_int4(rows, linear.group, (uint8_t*)out, memory);
    else if (linear.kind == PW_INT8)
      pack_int8(rows, (uint8_t*)out, (float*)linear.scales + place * PANEL, memory);
    else if (linear.kind == PW_BFLOAT16 && are_pairs)
      pack_pairs(rows, (uint32_t*)out);
    else if (linear.kind == PW_BFLOAT16)
      pack_elements<BFloat16>(rows, (Bf16*)out);
    else
      pack_elements<Float32>(rows, (float*)out);
  }
}

// Read one row of a packed matrix.
static inline void read_row(const PwLinear& matrix, int64_t row, float* out) {
  const int64_t lane = row % PANEL;
  const char* panel = (const char*)matrix.weight + row / PANEL * panel_bytes(matrix);
  const int64_t group_bytes = GROUP_SCALES + matrix.group * PANEL / 2;
  for (int64_t k = 0; k < matrix.num_inputs; k++) {
    if (matrix.kind == PW_FLOAT32) {
      out[k] = ((const float*)panel)[k * PANEL + lane];
    } else if (matrix.kind == PW_BFLOAT16) {
      out[k] = element(panel, k / 2 * PANEL * 2 + lane * 2 + k % 2, PW_BFLOAT16);
    } else if (matrix.kind == PW_INT8) {
      int q = ((const uint8_t*)panel)[k / 4 * PANEL * 4 + lane * 4 + k % 4];
      out[k] = (float)(q - Int8::OFFSET) * matrix.scales[row];
    } else if (matrix.kind >= PW_CODES8) {
      out[k] = coded_weight(matrix, (const uint8_t*)panel, lane, k);
    } else {
      const char* group = panel + k / matrix.group * group_bytes;
      int64_t i = k % matrix.group;
      int byte = ((const uint8_t*)group)[GROUP_SCALES + i / 8 * PANEL * 4 + lane * 4 + i % 4];
      int q = i % 8 < 4 ? byte & 15 : byte >> 4;
      out[k] = (float)(q - Int4::OFFSET) * ((const float*)group)[lane];
    }
  }
}

}  // namespace PW_ISA
