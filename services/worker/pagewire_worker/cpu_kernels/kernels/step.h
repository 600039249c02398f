// Some layers of one step, in one job of the pool.
#pragma once

namespace PW_ISA {

template <class T>
static void norm_share(PwPool* pool, int thread, const float* x, const float* weight, float epsilon,
                       int64_t num_rows, int64_t size, void* y) {
  Share rows = share(pool, thread, num_rows);
  for (int64_t row = rows.first; row < rows.last; row++)
    normalise(x + row * size, weight, epsilon, size, (typename T::Element*)y + row * size);
}

template <class T>
static void layer_share(PwPool* pool, int thread, const StepArguments& a, int index) {
  const PwModel& model = *a.model;
  const PwBatch& batch = *a.batch;
  const PwScratch& s = *a.scratch;
  const PwLayer& layer = model.layers[index];
  const int64_t num_tokens = batch.num_tokens;
  const int phase = (index - a.first_layer) * PHASES_PER_LAYER;
  Share tokens = share(pool, thread, num_tokens);
  norm_share<T>(pool, thread, s.residual, layer.attention_norm, model.norm_epsilon, num_tokens,
                model.hidden, s.normed);
  prepare_share<T>(pool, thread, layer.qkv, s.normed, num_tokens, s.prepared);
  pool->barrier();
  store_linear<T>(pool, phase, thread, layer.qkv, {s.normed, s.prepared}, num_tokens, s.qkv,
                  layer.qkv.num_outputs);
  pool->barrier();
  rotate_share<T>(model, layer, batch, s, tokens.first, tokens.last);
  pool->barrier();
  attend_share<T>(pool, phase + 1, thread, model, layer, batch, s, a.tiles, a.num_tiles);
  pool->barrier();
  if (is_prepared(layer.output)) {
    prepare_share<T>(pool, thread, layer.output, s.attended, num_tokens, s.prepared);
    pool->barrier();
  }
  add_linear<T>(pool, phase + 2, thread, layer.output, {s.attended, s.prepared}, num_tokens,
                s.residual);
  pool->barrier();
  norm_share<T>(pool, thread, s.residual, layer.mlp_norm, model.norm_epsilon, num_tokens,
                model.hidden, s.normed);
  prepare_share<T>(pool, thread, layer.gate_up, s.normed, num_tokens, s.prepared);
  pool->barrier();
  gate_up_linear<T>(pool, phase + 3, thread, layer.gate_up, {s.normed, s.prepared}, num_tokens,
                    s.activated);
  pool->barrier();
  if (is_prepared(layer.down)) {
    prepare_share<T>(pool, thread, layer.down, s.activated, num_tokens, s.prepared);
    pool->barrier();
  }
  add_linear<T>(pool, phase + 4, thread, layer.down, {s.activated, s.prepared}, num_tokens,
                s.residual);
  pool->barrier();
}

template <class T>
static void step_job(PwPool* pool, const void* arguments, int thread) {
  const StepArguments& a = *(const StepArguments*)arguments;
  const PwModel& model = *a.model;
  if (a.first_layer == 0) {
    Share tokens = share(pool, thread, a.batch->num_tokens);
    for (int64_t token = tokens.first; token < tokens.last; token++)
      read_row(model.embedding, a.batch->token_ids[token],
                    a.scratch->residual + token * model.hidden);
    pool->barrier();
  }
  for (int index = a.first_layer; index < a.last_layer; index++)
    layer_share<T>(pool, thread, a, index);
  if (a.last_layer == model.num_layers) {
    Share rows = share(pool, thread, a.batch->num_outputs);
    for (int64_t row = rows.first; row < rows.last; row++)
      normalise(a.scratch->residual + a.batch->output_rows[row] * model.hidden, model.norm,
                model.norm_epsilon, model.hidden,
                (typename T::Element*)a.states + row * model.hidden);
  }
}

// Prepare the input of a single product.
template <class T>
static Rows prepare_rows(PwPool* pool, int thread, const LinearArguments& a) {
  prepare_share<T>(pool, thread, *a.linear, a.x, a.num_rows, a.prepared);
  if (is_prepared(*a.linear)) pool->barrier();
  return {a.x, a.prepared};
}

template <class T>
static void linear_job(PwPool* pool, const void* arguments, int thread) {
  const LinearArguments& a = *(const LinearArguments*)arguments;
  Rows x = prepare_rows<T>(pool, thread, a);
  store_linear<T>(pool, 0, thread, *a.linear, x, a.num_rows, (float*)a.y, a.stride);
}

template <class T>
static void gate_up_job(PwPool* pool, const void* arguments, int thread) {
  const LinearArguments& a = *(const LinearArguments*)arguments;
  Rows x = prepare_rows<T>(pool, thread, a);
  gate_up_linear<T>(pool, 0, thread, *a.linear, x, a.num_rows, a.y);
}

template <class T>
static void rotate_job(PwPool* pool, const void* arguments, int thread) {
  const StepArguments& a = *(const StepArguments*)arguments;
  Share tokens = share(pool, thread, a.batch->num_tokens);
  rotate_share<T>(*a.model, a.model->layers[a.first_layer], *a.batch, *a.scratch, tokens.first,
                  tokens.last);
}

template <class T>
static void attend_job(PwPool* pool, const void* arguments, int thread) {
  const StepArguments& a = *(const StepArguments*)arguments;
  attend_share<T>(pool, 0, thread, *a.model, a.model->layers[a.first_layer], *a.batch, *a.scratch,
                  a.tiles, a.num_tiles);
}

template <class T>
static void norm_job(PwPool* pool, const void* arguments, int thread) {
  const NormArguments& a = *(const NormArguments*)arguments;
  norm_share<T>(pool, thread, a.x, a.weight, a.epsilon, a.num_rows, a.size, a.y);
}

}  // namespace PW_ISA
