// The functions of abi.h: they select kernels, and cut a batch into tiles.
#include "abi.h"
#include "kernels.h"
#include "sampling/largest.h"
#include "sets/sets.h"

#ifndef PW_SOURCE_HASH
#define PW_SOURCE_HASH "unknown"
#endif

const char* pw_isa_name(int32_t isa) {
  return isa < NUM_INSTRUCTION_SETS ? INSTRUCTION_SETS[isa].name : nullptr;
}

int32_t pw_isa_runs(int32_t isa) { return INSTRUCTION_SETS[isa].runs(); }

const char* pw_source_hash(void) { return PW_SOURCE_HASH; }

PwPool* pw_pool_new(int32_t isa, int32_t num_threads) {
  return new_pool(INSTRUCTION_SETS[isa].kernels, num_threads);
}

void pw_pool_free(PwPool* pool) { free_pool(pool); }

void pw_pack(PwPool* pool, const PwLinear* linear, int32_t source_type, const void* source,
             int64_t num_rows, int64_t first_panel, int64_t panel_step) {
  PackArguments arguments = {linear, source_type, source, num_rows, first_panel, panel_step};
  pool->run(pool->kernels->pack, &arguments, 1, num_rows * linear->num_inputs > 100 * 1000);
}

void pw_pack_codes(PwPool* pool, const PwLinear* linear, const PwCodes* codes, int64_t num_rows,
                   int64_t first_panel, int64_t panel_step) {
  PackCodesArguments arguments = {linear, codes, num_rows, first_panel, panel_step};
  pool->run(pool->kernels->pack_codes, &arguments, 1, num_rows * linear->num_inputs > 100 * 1000);
}

int64_t pw_weight_bytes(const PwLinear* linear) {
  return linear->num_outputs / PANEL * panel_bytes(*linear);
}

int64_t pw_prepared_row_bytes(const PwLinear* linear) {
  return prepared_row_bytes(*linear);
}

// Whether work is worth the barriers between threads. A barrier takes a time slice if a thread has to
// wait for its core. Work of some 20 microseconds for one thread is not worth it.
static bool is_worth_sharing(int64_t num_bytes, int64_t num_products) {
  return num_bytes > 400 * 1000 || num_products > 3 * 1000 * 1000;
}

// A product of `num_rows` rows with each of `copies` matrices.
static bool is_worth_sharing(const PwLinear& linear, int64_t num_rows, int64_t copies = 1) {
  int64_t weights = (int64_t)linear.num_outputs * linear.num_inputs;
  return is_worth_sharing(pw_weight_bytes(&linear) * copies, weights * num_rows * copies);
}

static bool is_worth_sharing(const PwModel& model, const PwBatch& batch) {
  const PwLayer& layer = model.layers[0];
  for (int64_t i = 0; i < layer.num_operations; i++) {
    const PwOperation& operation = layer.operations[i];
    const int64_t copies = operation.router == nullptr ? 1 : operation.router->num_chosen;
    if (operation.linear != nullptr &&
        is_worth_sharing(*operation.linear, batch.num_tokens, copies * operation.num_slices))
      return true;
  }
  int64_t num_seen = 0, width = (int64_t)model.num_heads * model.head_dim;
  for (int64_t seq = 0; seq < batch.num_seqs; seq++)
    num_seen += batch.seq_lens[seq] * (batch.query_starts[seq + 1] - batch.query_starts[seq]);
  return is_worth_sharing(0, 2 * num_seen * width);
}

// Cut the tokens of a batch into tiles; they live as long as the job.
struct Tiles {
  AttentionTile* tiles;
  int64_t count;

  Tiles(PwPool* pool, const PwModel& model, const PwBatch& batch) : count(0) {
    // While no thread runs: they look at each other's.
    for (int thread = 0; thread < pool->most_threads; thread++)
      pool->memory(thread, (size_t)merge_bytes(model), MERGE);
    int64_t length = TILE_QUERIES / tile_heads(model);
    tiles = new AttentionTile[(size_t)(batch.num_tokens / length + batch.num_seqs)];
    for (int64_t seq = 0; seq < batch.num_seqs; seq++) {
      int64_t end = batch.query_starts[seq + 1];
      for (int64_t token = batch.query_starts[seq]; token < end; token += length)
        tiles[count++] = {seq, token, least(length, end - token)};
    }
  }
  ~Tiles() { delete[] tiles; }
  Tiles(const Tiles&) = delete;
};

void pw_step(PwPool* pool, const PwModel* model, const PwBatch* batch, const PwScratch* scratch,
             int32_t first_layer, int32_t last_layer, void* states) {
  Tiles tiles(pool, *model, *batch);
  StepArguments arguments = {model,  batch,       scratch,    first_layer, last_layer,
                             states, tiles.tiles, tiles.count};
  int64_t num_operations = 0;
  for (int32_t index = first_layer; index < last_layer; index++)
    num_operations += model->layers[index].num_operations;
  pool->run(pool->kernels->step[model->type], &arguments, (int)num_operations,
            is_worth_sharing(*model, *batch));
}

static void run_attention(PwPool* pool, PoolJob job, const PwModel* model, const PwBatch* batch,
                          const PwScratch* scratch, const PwAttention* attention) {
  Tiles tiles(pool, *model, *batch);
  StepArguments step = {model, batch, scratch, 0, 0, nullptr, tiles.tiles, tiles.count};
  AttentionArguments arguments = {&step, attention};
  pool->run(job, &arguments, 1, true);
}

void pw_rotate_and_store(PwPool* pool, const PwModel* model, const PwBatch* batch,
                         const PwScratch* scratch, const PwAttention* attention) {
  run_attention(pool, pool->kernels->rotate[model->type], model, batch, scratch, attention);
}

void pw_attend(PwPool* pool, const PwModel* model, const PwBatch* batch, const PwScratch* scratch,
               const PwAttention* attention) {
  run_attention(pool, pool->kernels->attend[model->type], model, batch, scratch, attention);
}

void pw_adapted_linear(PwPool* pool, int32_t type, const PwLinear* linear, const void* x,
                       int64_t num_rows, void* prepared, float* y, int64_t stride,
                       const PwRowAdapters* adapters) {
  LinearArguments arguments = {linear, x, num_rows, prepared, y, stride, adapters};
  pool->run(pool->kernels->linear[type], &arguments, 1, is_worth_sharing(*linear, num_rows));
}

void pw_linear(PwPool* pool, int32_t type, const PwLinear* linear, const void* x, int64_t num_rows,
               void* prepared, float* y, int64_t stride) {
  pw_adapted_linear(pool, type, linear, x, num_rows, prepared, y, stride, nullptr);
}

void pw_adapted_argmax(PwPool* pool, int32_t type, const PwLinear* linear, const void* x,
                       int64_t num_rows, void* prepared, int64_t num_outputs, int64_t* y,
                       const PwRowAdapters* adapters) {
  LinearArguments arguments = {linear, x, num_rows, prepared, y, num_outputs, adapters};
  pool->run(pool->kernels->argmax[type], &arguments, 1, is_worth_sharing(*linear, num_rows));
}

void pw_argmax(PwPool* pool, int32_t type, const PwLinear* linear, const void* x, int64_t num_rows,
               void* prepared, int64_t num_outputs, int64_t* y) {
  pw_adapted_argmax(pool, type, linear, x, num_rows, prepared, num_outputs, y, nullptr);
}

void pw_activate(PwPool* pool, int32_t type, const PwLinear* linear, const PwActivation* activation,
                 int32_t is_gated, const void* x, int64_t num_rows, void* prepared, void* y) {
  ActivateArguments arguments = {{linear, x, num_rows, prepared, y, 0, nullptr}, *activation, is_gated};
  pool->run(pool->kernels->activate[type], &arguments, 1, is_worth_sharing(*linear, num_rows));
}

void pw_norm(PwPool* pool, int32_t type, const float* x, const PwNorm* norm, int64_t num_rows,
             void* y) {
  NormArguments arguments = {x, norm, num_rows, y};
  pool->run(pool->kernels->norm[type], &arguments, 1, num_rows > 1);
}

void pw_finish_logits(PwPool* pool, float* x, int64_t count, float divisor, float softcap) {
  LogitsArguments arguments = {x, count, divisor, softcap};
  pool->run(pool->kernels->finish_logits, &arguments, 1, count > 100 * 1000);
}

// Parts of a row that threads search: at least one for each thread.
static int64_t num_parts(const PwPool* pool, int64_t num_rows) {
  return num_rows == 0 ? 1 : ceil_div(pool->most_threads, num_rows);
}

void pw_choose(PwPool* pool, PwChoice* choices, int64_t num_rows, const float* logits,
               int64_t vocab_size, int64_t stride) {
  const int64_t parts = num_parts(pool, num_rows);
  PwBest* best = new PwBest[(size_t)(num_rows * parts)];
  ChooseArguments arguments = {choices, num_rows, logits, vocab_size, stride, parts, best};
  pool->run(pool->kernels->choose, &arguments, 1, num_rows * vocab_size > 32 * 1000);
  for (int64_t row = 0; row < num_rows; row++) {
    PwBest won = best[row * parts];
    for (int64_t part = 1; part < parts; part++) {
      const PwBest& other = best[row * parts + part];
      if (other.sum > won.sum || (other.sum == won.sum && other.token < won.token)) won = other;
    }
    choices[row].token = won.token;
  }
  delete[] best;
}

void pw_mark_spans(PwPool* pool, const PwChoice* choices, int64_t num_rows, const float* logits,
                   int64_t vocab_size, int64_t stride, uint8_t* marks) {
  SpanArguments arguments = {choices, num_rows, logits, vocab_size, stride, marks, nullptr, nullptr, 0, nullptr};
  pool->run(pool->kernels->mark_spans, &arguments, 1, num_rows * vocab_size > 32 * 1000);
}

void pw_scale_spans(PwPool* pool, const PwChoice* choices, const float* logits, int64_t vocab_size,
                    int64_t stride, const float* shifts, const int64_t* places, int64_t count, float* y) {
  SpanArguments arguments = {choices, 0, logits, vocab_size, stride, nullptr, shifts, places, count, y};
  pool->run(pool->kernels->scale_spans, &arguments, 1, count * SPAN > 32 * 1000);
}

void pw_noise(PwPool* pool, const uint32_t* words, int64_t count, float* exact, float* brief) {
  NoiseArguments arguments = {words, count, exact, brief};
  pool->run(pool->kernels->noise, &arguments, 1, true);
}

void pw_largest(PwPool* pool, const float* x, int64_t num_rows, int64_t size, int64_t stride,
                int64_t wanted, float* y) {
  LargestArguments arguments = {x, num_rows, size, stride, wanted, y};
  pool->run(largest_job, &arguments, 1, num_rows > 1 && num_rows * size > 32 * 1000);
}
