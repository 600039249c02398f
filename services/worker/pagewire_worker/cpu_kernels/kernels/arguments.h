// Arguments that the interface passes to the jobs, the same for every instruction set.
#pragma once
#include "abi.h"
#include "types.h"

static constexpr int64_t TILE_QUERIES = 64;  // most rows (tokens times heads of a KV head) of a tile

// Bytes before the weights of each group of an int4 matrix: the scales of its 16 rows.
static constexpr int64_t GROUP_SCALES = PANEL * 4;

// Bytes of a panel of a matrix.
static inline int64_t panel_bytes(const PwLinear& linear) {
  const int64_t size = linear.num_inputs;
  switch (linear.kind) {
    case PW_FLOAT32: return size * PANEL * 4;
    case PW_BFLOAT16: return size * PANEL * 2;
    case PW_INT8: return size * PANEL;
    default: return size / linear.group * (GROUP_SCALES + linear.group * PANEL / 2);
  }
}

static inline bool is_quantized(const PwLinear& linear) { return linear.kind >= PW_INT8; }

// Bytes of a quantized row of `size` inputs: int8 values, one scale, and the sum of each group.
static inline int64_t quantized_row_bytes(int64_t size, int64_t group) {
  return ceil_div(size + 4 + size / group * 4, 64) * 64;
}

// Tokens of one sequence whose attention is computed together.
struct AttentionTile {
  int64_t seq;
  int64_t first_token;  // in the batch
  int64_t num_tokens;
};

struct PackArguments {
  const PwLinear* linear;
  int32_t source_type;
  const void* source;
  int64_t num_rows, first_panel, panel_step;
};

struct StepArguments {
  const PwModel* model;
  const PwBatch* batch;
  const PwScratch* scratch;
  int32_t first_layer, last_layer;
  void* states;
  const AttentionTile* tiles;
  int64_t num_tiles;
};

// One operation of attention by itself.
struct AttentionArguments {
  const StepArguments* step;
  const PwAttention* attention;
};

struct LinearArguments {
  const PwLinear* linear;
  const void* x;
  int64_t num_rows;
  void* quantized;
  void* y;
  int64_t stride;  // of y; for argmax the number of columns
};

struct ActivateArguments {
  LinearArguments linear;
  int32_t activation, is_gated;
};

struct LogitsArguments {
  float* x;
  int64_t count;
  float divisor, softcap;
};

struct NormArguments {
  const float* x;
  const PwNorm* norm;
  int64_t num_rows;
  void* y;
};
