// Keys and values of int8, for products that read them as T.
//
// Bytes are exact in T. So the scales of keys are multiplied with products, in float32, and those of
// values with weights before these are rounded to T.
#pragma once

namespace PW_ISA {

// Copy the scales of a split; zeros in the place of tokens that it does not have, or that were never
// written.
template <class T>
static inline void read_scales(const typename T::Element* const* parts, const SplitGroups<T>& groups,
                               float* scales) {
  for (int64_t i = 0; i < SPLIT; i += PANEL) {
    const int64_t first = i - groups.lead, num_tokens = groups.num_tokens - first;
    const bool is_seen = first >= 0 && num_tokens > 0;
    V own = is_seen ? load((const float*)parts[first / PANEL]) : zero();
    store(scales + i, in_range(own, zero(), 0, (int)num_tokens));
  }
}

// Widen the groups of a split to the memory of the thread, and let `parts` point there.
template <class T>
static inline void widen_groups(const AttentionMemory<T>& memory, int64_t head_dim, int64_t count,
                                const typename T::Element** parts) {
  const int64_t size = PANEL * head_dim;
  for (int64_t g = 0; g < count; g++) {
    const int8_t* from = (const int8_t*)parts[g] + KV_SCALE_BYTES;
    const char* ahead = (const char*)parts[g + GROUPS_AHEAD];
    typename T::Element* to = memory.widened + g * size;
    for (int64_t i = 0; i < size; i += 64) {
      __builtin_prefetch(ahead + i, 0, 2);
#pragma GCC unroll 4
      for (int64_t k = i; k < i + 64; k += PANEL) store(to + k, load_bytes(from + k));
    }
    __builtin_prefetch(ahead + size, 0, 2);
    parts[g] = to;
  }
  // These are prefetched only.
  for (int64_t g = count; g < count + GROUPS_AHEAD; g++) parts[g] = memory.widened;
}

// Multiply products with the scales of keys, in place.
static inline void scale_products(float* products, int64_t size, const float* scales) {
  for (int64_t i = 0; i < size; i += PANEL)
    store(products + i, mul(load(products + i), load(scales + i)));
}

}  // namespace PW_ISA
