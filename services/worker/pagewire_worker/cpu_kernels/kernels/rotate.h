// Prepares queries, keys and values for attention: norms of heads (Qwen3), rotary embedding (Su et
// al., 2021), and storage of the new tokens in the KV cache.
#pragma once

namespace PW_ISA {

static constexpr int MAX_HEAD_DIM = 512;

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

static inline const float* normed_head(const float* x, const float* weight, float epsilon,
                                       int64_t size, float* memory) {
  if (weight == nullptr) return x;
  normalise(x, weight, epsilon, size, memory);
  return memory;
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

template <class T>
static void rotate_share(const PwModel& model, const PwLayer& layer, const PwBatch& batch,
                         const PwScratch& scratch, int64_t first, int64_t last) {
  typedef typename T::Element Element;
  const int64_t d = model.head_dim, num_heads = model.num_heads, num_kv = model.num_kv_heads;
  alignas(64) float memory[MAX_HEAD_DIM], rotated[MAX_HEAD_DIM];
  for (int64_t token = first; token < last; token++) {
    const float* heads = scratch.qkv + token * (num_heads + 2 * num_kv) * d;
    const float* cosines = model.cosines + batch.positions[token] * (d / 2);
    const float* sines = model.sines + batch.positions[token] * (d / 2);
    Element* query = (Element*)scratch.query + token * num_heads * d;
    for (int64_t head = 0; head < num_heads; head++) {
      const float* q = normed_head(heads + head * d, layer.query_norm, model.norm_epsilon, d, memory);
      rotate(q, cosines, sines, d, rotated);
      for (int64_t i = 0; i < d; i += PANEL) store(query + head * d + i, load(rotated + i));
    }
    for (int64_t head = 0; head < num_kv; head++) {
      const float* key = heads + (num_heads + head) * d;
      const float* value = heads + (num_heads + num_kv + head) * d;
      rotate(normed_head(key, layer.key_norm, model.norm_epsilon, d, memory), cosines, sines, d,
             rotated);
      // The cache holds finite numbers only: hidden positions have a weight of 0, and 0 times a number
      // that is not finite would be NaN.
      if (batch.faults && !(are_finite(rotated, d) && are_finite(value, d))) {
        batch.faults[token] = 1;
        keep_finite(rotated, d, rotated);
        keep_finite(value, d, memory);
        value = memory;
      }
      write_kv<T>(model, layer, batch.slot_mapping[token], head, rotated, value);
    }
  }
}

}  // namespace PW_ISA
