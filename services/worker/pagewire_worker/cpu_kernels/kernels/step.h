// Some layers of one step, in one job of the pool, and single operations.
#pragma once

namespace PW_ISA {

// Add the adapter of a token to its row of the embedding.
static inline void adapt_embedding(const StepArguments& a, int64_t token, float* row) {
  const PwAdapters* adapters = a.model->embedding_adapters;
  const int64_t* slots = a.batch->adapter_slots;
  if (adapters == nullptr || slots == nullptr || slots[token] < 0) return;
  const PwAdapterPart& part = adapters->parts[slots[token]];
  float* low = (float*)a.scratch->buffers[PW_LOW] + token * adapters->max_rank;
  const int64_t first = (a.batch->token_ids[token] - a.model->first_row) * part.rank;
  for (int32_t r = 0; r < part.rank; r++)
    low[r] = element(part.down, first + r, a.model->type) * part.scaling;
  const LowRank ranks = {adapters, slots, (const float*)a.scratch->buffers[PW_LOW], a.model->type};
  add_low_rank(ranks, 0, token, token, 0, a.model->hidden / PANEL, row);
}

template <class T>
static void step_job(PwPool* pool, const void* arguments, int thread) {
  const StepArguments& a = *(const StepArguments*)arguments;
  const PwModel& model = *a.model;
  float* residual = (float*)a.scratch->buffers[PW_RESIDUAL];
  if (a.first_layer == 0 && model.looks_up) {
    Share tokens = share(pool, thread, a.batch->num_tokens);
    V factor = set1(model.embedding_factor);
    for (int64_t token = tokens.first; token < tokens.last; token++) {
      float* row = residual + token * model.hidden;
      const int64_t place = a.batch->token_ids[token] - model.first_row;
      if (model.group != nullptr && (place < 0 || place >= model.num_rows)) {
        for (int64_t i = 0; i < model.hidden; i += PANEL) store(row + i, set1(-0.0f));
        continue;  // another rank has it, and keeps its bits in the sum: -0 + x is x
      }
      read_row(model.embedding, place, row);
      adapt_embedding(a, token, row);
      for (int64_t i = 0; i < model.hidden; i += PANEL) store(row + i, mul(load(row + i), factor));
    }
    pool->barrier();
    if (model.group != nullptr) {
      reduce_share(pool, thread, model.group, residual, a.batch->num_tokens * model.hidden);
      pool->barrier();
    }
  }
  for (int index = a.first_layer, phase = 0; index < a.last_layer; index++) {
    const PwLayer& layer = model.layers[index];
    for (int64_t i = 0; i < layer.num_operations; i++, phase++) {
      if (!is_computed(layer.operations[i], *a.batch)) continue;
      operation_share<T>(pool, phase, thread, a, layer.operations[i]);
      int64_t next = i + 1;
      while (next < layer.num_operations && !is_computed(layer.operations[next], *a.batch)) next++;
      const bool is_last = next == layer.num_operations;
      if (is_last || !goes_by_rows(layer.operations[i]) || !goes_by_rows(layer.operations[next]))
        pool->barrier();
    }
  }
  if (a.last_layer == model.num_layers && model.has_end) {
    Share rows = share(pool, thread, a.batch->num_outputs);
    for (int64_t row = rows.first; row < rows.last; row++)
      normalise(residual + a.batch->output_rows[row] * model.hidden, model.norm,
                (typename T::Element*)a.states + row * model.hidden);
  }
}

// Prepare the input of a single product.
template <class T>
static Rows prepare_rows(PwPool* pool, int thread, const LinearArguments& a) {
  prepare_share<T>(pool, thread, *a.linear, a.x, a.num_rows, a.prepared);
  if (is_prepared(*a.linear)) pool->barrier();
  return rows_for(*a.linear, a.x, a.prepared, a.num_rows);
}

// The adapters of the rows of a single product, in the form that its sums take; `low` lives as long.
// Null for none.
template <class T>
static const LowRank* lower_rows(PwPool* pool, int thread, const LinearArguments& a, LowRank* low) {
  if (a.adapters == nullptr) return nullptr;
  const PwRowAdapters& own = *a.adapters;
  lower_share<T>(*own.adapters, own.slots, a.x, share(pool, thread, a.num_rows), own.low);
  pool->barrier();
  const bool is_narrow = sizeof(typename T::Element) < 4;
  *low = {own.adapters, own.slots, own.low, is_narrow ? PW_BFLOAT16 : PW_FLOAT32};
  return low;
}

template <class T>
static void linear_job(PwPool* pool, const void* arguments, int thread) {
  const LinearArguments& a = *(const LinearArguments*)arguments;
  Rows x = prepare_rows<T>(pool, thread, a);
  const AllRows rows(a.num_rows);
  LowRank low;
  const LowRank* own = lower_rows<T>(pool, thread, a, &low);
  store_linear<T>(pool, 0, thread, rows.of(*a.linear, own), x, (float*)a.y, a.stride);
}

template <class T>
static void activate_job(PwPool* pool, const void* arguments, int thread) {
  const ActivateArguments& b = *(const ActivateArguments*)arguments;
  const LinearArguments& a = b.linear;
  Rows x = prepare_rows<T>(pool, thread, a);
  auto compute = b.is_gated ? gate_up_linear<T> : activate_linear<T>;
  const AllRows rows(a.num_rows);
  compute(pool, 0, thread, rows.of(*a.linear), x, b.activation, 1, a.y);
}

template <class T>
static void rotate_job(PwPool* pool, const void* arguments, int thread) {
  const AttentionArguments& b = *(const AttentionArguments*)arguments;
  const StepArguments& a = *b.step;
  Share tokens = share(pool, thread, a.batch->num_tokens);
  rotate_share<T>(*a.model, *b.attention, *a.batch, (float*)a.scratch->buffers[PW_PRODUCTS],
                  (typename T::Element*)a.scratch->buffers[PW_QUERY], tokens.first, tokens.last);
}

template <class T>
static void attend_job(PwPool* pool, const void* arguments, int thread) {
  const AttentionArguments& b = *(const AttentionArguments*)arguments;
  const StepArguments& a = *b.step;
  attend_share<T>(pool, 0, thread, *a.model, *b.attention, *a.batch, a.scratch->buffers[PW_QUERY],
                  a.scratch->buffers[PW_ATTENDED], a.tiles, a.num_tiles);
}

template <class T>
static void norm_job(PwPool* pool, const void* arguments, int thread) {
  const NormArguments& a = *(const NormArguments*)arguments;
  norm_share<T>(pool, thread, a.x, *a.norm, a.num_rows, a.y);
}

static void finish_logits_job(PwPool* pool, const void* arguments, int thread) {
  const LogitsArguments& a = *(const LogitsArguments*)arguments;
  Share panels = share(pool, thread, a.count / PANEL);
  V divisor = set1(a.divisor), cap = set1(a.softcap);
  for (int64_t i = panels.first * PANEL; i < panels.last * PANEL; i += PANEL) {
    V x = div(load(a.x + i), divisor);
    if (a.softcap != 0.0f) x = mul(tanh(div(x, cap)), cap);
    store(a.x + i, x);
  }
}

}  // namespace PW_ISA
