// What the interface hands to the jobs: plain data, the same for every instruction set.
#pragma once
#include "abi.h"
#include "types.h"

static constexpr int64_t TILE_QUERIES = 64;  // most rows (tokens times heads of a KV head) of a tile

static constexpr int PHASES_PER_LAYER = 5;  // whose items the threads share

// Tokens of one sequence whose attention is computed together.
struct AttentionTile {
  int64_t seq;
  int64_t first_token;  // in the batch
  int64_t num_tokens;
};

struct PackArguments {
  int32_t source_type;
  const void* source;
  int64_t num_rows, num_inputs;
  void* packed;
  int64_t first_panel, panel_step;
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

struct LinearArguments {
  const PwLinear* linear;
  const void* x;
  int64_t num_rows;
  void* y;
  int64_t stride;  // of y; for argmax the columns that count
};

struct NormArguments {
  const float *x, *weight;
  float epsilon;
  int64_t num_rows, size;
  void* y;
};
