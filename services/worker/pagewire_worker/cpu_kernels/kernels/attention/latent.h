// Latent attention (MLA, DeepSeek-AI, 2024) in its absorbed form: what surrounds the attention of one
// KV head, whose key is a latent with its rotated part, and whose value is the latent.
#pragma once

namespace PW_ISA {

static constexpr int MAX_TURNED_DIM = 512;  // of the rotated part

// Rotate the last `size` numbers of a query or key, in place.
static inline void rotate_part(const PwAttention& attention, int64_t position, int64_t size, float* x) {
  alignas(64) float rotated[MAX_TURNED_DIM];
  const int64_t angles = position * (size / 2);
  rotate(x, attention.cosines + angles, attention.sines + angles, size, rotated);
  for (int64_t i = 0; i < size; i += PANEL) store(x + i, load(rotated + i));
}

// Store the latents in the products of `linear`, and norm what queries are made of if there is a norm.
// The products are changed.
template <class T>
static void latent_keys(const PwModel& model, const PwAttention& attention, const PwBatch& batch,
                        const PwLinear& linear, float* products, typename T::Element* normed,
                        Share tokens) {
  const int64_t d = model.head_dim, rank = model.latent_dim;
  for (int64_t token = tokens.first; token < tokens.last; token++) {
    float* row = products + token * linear.num_outputs;
    float* key = row + linear.num_outputs - d;
    if (attention.query_norm != nullptr)
      normalise(row, *attention.query_norm, normed + token * attention.query_norm->size);
    normalise(key, *attention.key_norm, key);
    rotate_part(attention, batch.positions[token], d - rank, key + rank);
    if (batch.faults && !are_finite(key, d)) {
      batch.faults[token] = 1;
      keep_finite(key, d, key);
    }
    int64_t slot = batch.slot_mapping[attention.group * batch.num_tokens + token];
    write_kv<T>(model, attention, slot, 0, key, nullptr);
  }
}

// Of the queries in the products of `linear`: write plain parts [heads, tokens, plain_dim], and rotated
// parts to their places in `queries`. The products are changed.
template <class T>
static void latent_queries(const PwModel& model, const PwAttention& attention, const PwBatch& batch,
                           const PwLinear& linear, float* products, typename T::Element* plain,
                           typename T::Element* queries, Share tokens) {
  const int64_t d = model.head_dim, rank = model.latent_dim, size = model.plain_dim;
  for (int64_t token = tokens.first; token < tokens.last; token++)
    for (int64_t head = 0; head < model.num_heads; head++) {
      float* x = products + token * linear.num_outputs + head * (size + d - rank);
      typename T::Element* out = plain + (head * batch.num_tokens + token) * size;
      for (int64_t i = 0; i < size; i += PANEL) store(out + i, load(x + i));
      rotate_part(attention, batch.positions[token], d - rank, x + size);
      typename T::Element* query = queries + (token * model.num_heads + head) * d + rank;
      for (int64_t i = 0; i < d - rank; i += PANEL) store(query + i, load(x + size + i));
    }
}

// Multiply x [heads, tokens, inputs] with the matrix of each head; y is [tokens, heads, stride].
template <class T>
static void multiply_heads(PwPool* pool, int phase, int thread, const PwLinear* linears,
                           int64_t num_heads, int64_t num_tokens, const void* x, int64_t stride,
                           typename T::Element* y) {
  int64_t starts[PW_MOST_EXPERTS + 1];
  for (int64_t head = 0; head <= num_heads; head++) starts[head] = head * num_tokens;
  const Group group = {linears, starts, num_heads};
  linear_share<T>(pool, phase, thread, group, {x, nullptr}, false, [=](const PwLinear&) {
    return [=](int64_t row, int64_t panel, int num_panels, float* sums) {
      const int64_t token = row % num_tokens, head = row / num_tokens;
      typename T::Element* out = y + (token * num_heads + head) * stride + panel * PANEL;
      for (int n = 0; n < num_panels; n++) store(out + n * PANEL, load(sums + n * PANEL));
    };
  });
}

// Copy the latents of a split from the order of keys to that of values (kv.h).
template <class T>
static inline void turn_latents(const AttentionMemory<T>& memory, int64_t rank,
                                SplitGroups<T>& groups) {
  typedef typename T::Element Element;
  constexpr int STEP = T::STEP, PAIR = PANEL * STEP;
  for (int64_t g = 0; g < groups.count; g++) {
    Element* values = memory.latents + g * PANEL * rank;
    for (int64_t i = 0; i < PANEL * rank; i += PANEL * PANEL) {
      const Element* from = groups.keys[g] + i;
      Element* to = values + i;
#pragma GCC unroll 16
      for (int token = 0; token < PANEL; token++)
#pragma GCC unroll 16
        for (int n = 0; n < PANEL; n++)
          to[token / STEP * PAIR + n * STEP + token % STEP] =
              from[n / STEP * PAIR + token * STEP + n % STEP];
    }
    groups.values[g] = values;
  }
}

// Compute this thread's share of an operation on latents.
template <class T>
static void latent_share(PwPool* pool, int phase, int thread, const StepArguments& a,
                         const PwOperation& o) {
  typedef typename T::Element Element;
  const PwModel& model = *a.model;
  const int64_t num_tokens = a.batch->num_tokens;
  const Share tokens = share(pool, thread, num_tokens);
  void* x = a.scratch->buffers[o.input];
  Element* y = (Element*)a.scratch->buffers[o.output];
  switch (o.kind) {
    case PW_LATENT_KEY:
      return latent_keys<T>(model, *o.attention, *a.batch, *o.linear, (float*)x, y, tokens);
    case PW_LATENT_QUERY:
      return latent_queries<T>(model, *o.attention, *a.batch, *o.linear, (float*)x, y,
                               (Element*)a.scratch->buffers[PW_QUERY], tokens);
    case PW_ABSORB:
      return multiply_heads<T>(pool, phase, thread, o.linear, model.num_heads, num_tokens, x,
                               model.head_dim, y);
    case PW_EXPAND:
      return multiply_heads<T>(pool, phase, thread, o.linear, model.num_heads, num_tokens, x,
                               o.linear->num_outputs, y);
  }
}

}  // namespace PW_ISA
