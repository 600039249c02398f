// Weights as the products read them: panels of 16 outputs, [inputs / STEP][16 outputs][STEP], or as
// quantized.h says.
#pragma once

namespace PW_ISA {

static inline float element(const void* p, int64_t index, int32_t type) {
  if (type == PW_FLOAT32) return ((const float*)p)[index];
  uint32_t bits = (uint32_t)((const uint16_t*)p)[index] << 16;
  float x;
  __builtin_memcpy(&x, &bits, 4);
  return x;
}

// The 16 rows of a panel, which may lie behind the end of the matrix.
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

static inline void pack_int8(const PanelSource& rows, uint8_t* out, float* scales) {
  for (int lane = 0; lane < PANEL; lane++) {
    float greatest = 0.0f;
    for (int64_t k = 0; k < rows.size(); k++) {
      float x = __builtin_fabsf(rows.at(lane, k));
      greatest = x > greatest ? x : greatest;
    }
    scales[lane] = greatest / 127.0f;
    float factor = greatest > 0.0f ? 127.0f / greatest : 0.0f;
    for (int64_t k = 0; k < rows.size(); k++)
      out[k / 4 * PANEL * 4 + lane * 4 + k % 4] =
          (uint8_t)(Int8::OFFSET + (int)__builtin_rintf(rows.at(lane, k) * factor));
  }
}

static inline void pack_int4(const PanelSource& rows, int64_t group, uint8_t* out) {
  const int64_t group_bytes = GROUP_SCALES + group * PANEL / 2;
  for (int64_t g = 0; g < rows.size() / group; g++, out += group_bytes) {
    for (int lane = 0; lane < PANEL; lane++) {
      // The value furthest from zero becomes -8, the end of the range that has one more.
      float extreme = 0.0f;
      for (int64_t k = g * group; k < (g + 1) * group; k++) {
        float x = rows.at(lane, k);
        if (__builtin_fabsf(x) > __builtin_fabsf(extreme)) extreme = x;
      }
      float scale = extreme / -8.0f, factor = scale != 0.0f ? 1.0f / scale : 0.0f;
      ((float*)out)[lane] = scale;
      for (int64_t k = 0; k < group; k++) {
        int q = Int4::OFFSET + (int)__builtin_rintf(rows.at(lane, g * group + k) * factor);
        q = q < 0 ? 0 : q > 15 ? 15 : q;
        uint8_t* byte = out + GROUP_SCALES + k / 8 * PANEL * 4 + lane * 4 + k % 4;
        *byte = k % 8 < 4 ? (uint8_t)q : (uint8_t)(*byte | q << 4);
      }
    }
  }
}

static void pack_job(PwPool* pool, const void* arguments, int thread) {
  const PackArguments& a = *(const PackArguments*)arguments;
  const PwLinear& linear = *a.linear;
  const int64_t num_panels = ceil_div(a.num_rows, PANEL);
  for (int64_t panel; (panel = pool->next(0, thread, num_panels)) < num_panels;) {
    PanelSource rows = {a, panel * PANEL};
    int64_t place = a.first_panel + panel * a.panel_step;
    char* out = (char*)linear.weight + place * panel_bytes(linear);
    bool are_pairs = a.source_type == PW_BFLOAT16 && rows.is_whole();
    if (linear.kind == PW_INT4)
      pack_int4(rows, linear.group, (uint8_t*)out);
    else if (linear.kind == PW_INT8)
      pack_int8(rows, (uint8_t*)out, (float*)linear.scales + place * PANEL);
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
