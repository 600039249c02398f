// Arguments that the interface passes to the jobs, the same for every instruction set.
#pragma once
#include "abi.h"
#include "types.h"

static constexpr int64_t TILE_QUERIES = 64;  // most rows (tokens times heads of a KV head) of a tile

// Numbers of a value.
static inline int64_t value_dim(const PwModel& model) {
  return model.latent_dim ? model.latent_dim : model.head_dim;
}

// Query heads that share a tile: those of a KV head, or a part of them if they are more than its rows.
static inline int64_t tile_heads(const PwModel& model) {
  int64_t heads = model.num_heads / model.num_kv_heads, size = least(heads, TILE_QUERIES);
  while (heads % size) size--;
  return size;
}

// Parts of tiles (attention/splits.h) whose splits threads may share, per thread.
static constexpr int64_t PARTS_PER_THREAD = 4;
static constexpr int64_t TOTALS_BYTES = 3 * TILE_QUERIES * 4;

// Bytes of the sums and totals of a part.
static inline int64_t merged_part_bytes(const PwModel& model) {
  return TOTALS_BYTES + TILE_QUERIES * value_dim(model) * 4;
}

// Bytes of a thread for parts that threads share: their counters first.
static inline int64_t merge_bytes(const PwModel& model) {
  return PARTS_PER_THREAD * (64 + merged_part_bytes(model));
}

// Bytes before the weights of each group of an int4 matrix: the scales of its 16 rows.
static constexpr int64_t GROUP_SCALES = PANEL * 4;

// Bytes of a scale of a matrix of codes.
static inline int64_t scale_bytes(const PwLinear& linear) {
  if (linear.scale_type == PW_SCALE_INT8) return 1;
  return linear.scale_type == PW_SCALE_FLOAT32 ? 4 : 2;
}

// Bytes before the groups that share a factor: the factors of the scales of 16 rows, and of their offsets.
static inline int64_t factor_bytes(const PwLinear& linear) {
  if (linear.factor_groups == 0) return 0;
  return PANEL * 2 * (linear.offset_kind == PW_NO_OFFSETS ? 1 : 2);
}

// Goes along the groups of a panel of codes, of `bytes` each.
struct GroupPlace {
  int64_t factors, head;  // bytes from the start of the panel

  GroupPlace(const PwLinear& linear, int64_t bytes, int64_t group)
      : factors(0), head(group * bytes), bytes_(bytes), count_(linear.factor_groups) {
    if (count_ == 0) return;
    factor_bytes_ = factor_bytes(linear);
    factors = group / count_ * (factor_bytes_ + count_ * bytes);
    left_ = count_ - group % count_;
    head += (group / count_ + 1) * factor_bytes_;
  }
  void next() {
    head += bytes_;
    if (count_ == 0 || --left_ > 0) return;
    factors = head;
    head += factor_bytes_;
    left_ = count_;
  }

 private:
  int64_t bytes_, count_, factor_bytes_ = 0, left_ = 0;
};

// Bytes before the codes of each group: the scales of its 16 rows, and their offsets if there are any.
static inline int64_t coded_head_bytes(const PwLinear& linear) {
  return PANEL * scale_bytes(linear) * (linear.offset_kind == PW_NO_OFFSETS ? 1 : 2);
}

// Bytes of a group of a panel of codes.
static inline int64_t coded_group_bytes(const PwLinear& linear) {
  const int64_t bits = linear.kind == PW_CODES4 ? 4 : 8;
  return coded_head_bytes(linear) + linear.group * PANEL * bits / 8;
}

// Bytes of a panel of a matrix.
static inline int64_t panel_bytes(const PwLinear& linear) {
  const int64_t size = linear.num_inputs;
  switch (linear.kind) {
    case PW_FLOAT32: return size * PANEL * 4;
    case PW_BFLOAT16: return size * PANEL * 2;
    case PW_INT8: return size * PANEL;
    case PW_FLOATS8:
    case PW_CODES8:
    case PW_CODES4:
      return GroupPlace(linear, coded_group_bytes(linear), size / linear.group).head -
             factor_bytes(linear);
    default: return size / linear.group * (GROUP_SCALES + linear.group * PANEL / 2);
  }
}

// Whether a product quantizes its input.
static inline bool is_quantized(const PwLinear& linear) {
  return linear.kind == PW_INT8 || linear.kind == PW_INT4;
}

// Whether a product needs the sums of the input's groups, because offsets are multiplied with them.
static inline bool has_offsets(const PwLinear& linear) {
  return linear.kind >= PW_CODES8 && linear.offset_kind != PW_NO_OFFSETS;
}

// Whether rows of the input are prepared before a product: quantized, put in order, or summed in groups.
static inline bool is_prepared(const PwLinear& linear) {
  return is_quantized(linear) || has_offsets(linear) || linear.order != nullptr;
}

// Bytes of a quantized row of `size` inputs: int8 values, one scale, and the sum of each group.
static inline int64_t quantized_row_bytes(int64_t size, int64_t group) {
  return ceil_div(size + 4 + size / group * 4, 64) * 64;
}

// Bytes of a row that is prepared for a product; 0 if none is.
static inline int64_t prepared_row_bytes(const PwLinear& linear) {
  if (is_quantized(linear)) return quantized_row_bytes(linear.num_inputs, linear.group);
  const int64_t sums = has_offsets(linear) ? linear.num_inputs / linear.group * 4 : 0;
  // As many as float32 takes: the type of the input is not known here.
  const int64_t ordered = linear.order == nullptr ? 0 : linear.num_inputs * 4;
  return ceil_div(sums + ordered, 64) * 64;
}

// Where prepared rows that were put in order lie: behind the sums of all rows.
static inline void* ordered_rows(const PwLinear& linear, void* prepared, int64_t num_rows) {
  const int64_t sums = has_offsets(linear) ? linear.num_inputs / linear.group * 4 : 0;
  return (char*)prepared + ceil_div(num_rows * sums, 64) * 64;
}

// Distance of the prepared rows, in bytes.
static inline int64_t prepared_stride(const PwLinear& linear) {
  return is_quantized(linear) ? prepared_row_bytes(linear) : linear.num_inputs / linear.group * 4;
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

struct PackCodesArguments {
  const PwLinear* linear;
  const PwCodes* codes;
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
  void* prepared;
  void* y;
  int64_t stride;  // of y; for argmax the number of columns
  const PwRowAdapters* adapters;  // null for none
};

struct ActivateArguments {
  LinearArguments linear;
  PwActivation activation;
  int32_t is_gated;
};

// The best token that was found in a part of a row.
struct PwBest {
  float sum;
  int64_t token;
};

struct ChooseArguments {
  const PwChoice* choices;  // [num_rows]
  int64_t num_rows;
  const float* logits;  // [rows, stride]
  int64_t vocab_size, stride;
  int64_t num_parts;  // of a row, which threads search
  PwBest* best;  // [num_rows, num_parts]
};

static constexpr int64_t SPAN = 1024;  // columns of a partial sum, as in ../../sampling/row_sums.py

struct SpanArguments {
  const PwChoice* choices;
  int64_t num_rows;
  const float* logits;  // [rows, stride]
  int64_t vocab_size, stride;
  uint8_t* marks;  // [num_rows, spans]
  const float* shifts;  // [num_rows]
  const int64_t* places;  // [count]
  int64_t count;
  float* y;  // [count, SPAN]
};

struct NoiseArguments {
  const uint32_t* words;
  int64_t count;
  float *exact, *brief;
};

struct LargestArguments {
  const float* x;  // [num_rows, stride]
  int64_t num_rows, size, stride, wanted;
  float* y;  // [num_rows, wanted]
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
