// Prepares queries, keys and values for attention: norms of heads, rotary embedding (Su et al.,
// 2021), and storage of the new tokens in the KV cache.
#pragma once

namespace PW_ISA {

// Rotate [head_dim]; dimension i is paired with i + head_dim / 2.
static inline void rotate(const float* x, const float* cosines, const float* sines, int64_t size,
                          float* y) {
  int64_t half = size / 2;
  for (int64_t i = 0; i < half; i++) {
    float a = x[i], b = x[i + half];
    y[i] = a * cosines[i] - b * sines[i];
    y[i + half] = b * cosines[i] + a * sines[i];
  }
}

// Normalise `size` values in groups of the norm's size, in place.
static inline void normalise_heads(const PwNorm* norm, int64_t size, float* x) {
  if (norm == nullptr) return;
  for (int64_t i = 0; i < size; i += norm->size) normalise(x + i, *norm, x + i);
}

// Whether `size` values are finite, also in the narrowest type: then twice the values are finite too.
static inline bool are_finite(const float* x, int64_t size) {
  V strange = zero();
  for (int64_t i = 0; i < size; i += PANEL) {
    V part = load(x + i);
    strange = fma(add(part, part), zero(), strange);
  }
  return sum_of(strange) == 0.0f;
}

// Copy `size` values, 0 in place of those that are not finite.
static inline void keep_finite(const float* x, int64_t size, float* y) {
  for (int64_t i = 0; i < size; i++) y[i] = (x[i] + x[i]) * 0.0f == 0.0f ? x[i] : 0.0f;
}

// `products` are the queries, keys and values of the batch, and are changed.
template <class T>
static void rotate_share(const PwModel& model, const PwAttention& attention, const PwBatch& batch,
                         float* products, typename T::Element* queries, int64_t first,
                         int64_t last) {
  typedef typename T::Element Element;
  const int64_t d = model.head_dim, num_heads = model.num_heads, num_kv = model.num_kv_heads;
  alignas(64) float memory[MAX_HEAD_DIM], rotated[MAX_HEAD_DIM];
  const bool is_rotated = attention.cosines != nullptr;
  for (int64_t token = first; token < last; token++) {
    float* heads = products + token * (num_heads + 2 * num_kv) * d;
    const int64_t angles = batch.positions[token] * (d / 2);
    auto rotate_head = [&](const float* head) {
      if (!is_rotated) return head;
      rotate(head, attention.cosines + angles, attention.sines + angles, d, rotated);
      return (const float*)rotated;
    };
    normalise_heads(attention.query_norm, num_heads * d, heads);
    normalise_heads(attention.key_norm, num_kv * d, heads + num_heads * d);
    Element* query = queries + token * num_heads * d;
    for (int64_t head = 0; head < num_heads; head++) {
      const float* turned = rotate_head(heads + head * d);
      if (attention.query_scales != nullptr) {
        const float scale = attention.query_scales[batch.positions[token]];
        for (int64_t i = 0; i < d; i++) rotated[i] = turned[i] * scale;
        turned = rotated;
      }
      for (int64_t i = 0; i < d; i += PANEL) store(query + head * d + i, load(turned + i));
    }
    for (int64_t head = 0; head < num_kv; head++) {
      const float* key = rotate_head(heads + (num_heads + head) * d);
      const float* value = heads + (num_heads + num_kv + head) * d;
      // The cache holds finite numbers only: hidden positions have a weight of 0, and 0 times a number
      // that is not finite would be NaN.
      if (batch.faults && !(are_finite(key, d) && are_finite(value, d))) {
        batch.faults[token] = 1;
        keep_finite(key, d, rotated);
        keep_finite(value, d, memory);
        key = rotated;
        value = memory;
      }
      int64_t slot = batch.slot_mapping[attention.group * batch.num_tokens + token];
      write_kv<T>(model, attention, slot, head, key, value);
    }
  }
}

}  // namespace PW_ISA
