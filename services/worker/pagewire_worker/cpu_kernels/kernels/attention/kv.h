// Layout of keys and values in a block of the cache: products read them as panels.
//
// A block holds, per KV head, its tokens in groups of 16. The keys of a group are one panel whose
// columns are its tokens, [head_dim / STEP][16 tokens][STEP]; its values are head_dim / 16 panels
// whose rows are its tokens, [head_dim / 16][16 tokens / STEP][16 columns][STEP]. A block has as
// many bytes as in any other order. Latents are stored as keys.
#pragma once

namespace PW_ISA {

// Return the offset of a group of 16 tokens, in elements.
static inline int64_t group_offset(const PwModel& model, int64_t block, int64_t kv_head,
                                   int64_t group) {
  int64_t num_groups = model.block_size / PANEL;
  return ((block * model.num_kv_heads + kv_head) * num_groups + group) * PANEL * model.head_dim;
}

template <class T>
static inline void store_element(typename T::Element* p, float x);
template <>
inline void store_element<Float32>(float* p, float x) {
  *p = x;
}
template <>
inline void store_element<BFloat16>(Bf16* p, float x) {
  uint32_t u;
  __builtin_memcpy(&u, &x, 4);
  if ((u & 0x7fffffffu) > 0x7f800000u) u = 0x7fc00000u;
  p->bits = (uint16_t)((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}

// Write one head of the token at `slot`; key and value are [head_dim]. Without a value, none is stored.
template <class T>
static inline void write_kv(const PwModel& model, const PwAttention& attention, int64_t slot,
                            int64_t kv_head, const float* key, const float* value) {
  typedef typename T::Element Element;
  constexpr int STEP = T::STEP;
  int64_t block = slot / model.block_size, offset = slot % model.block_size;
  int64_t group = group_offset(model, block, kv_head, offset / PANEL);
  int64_t token = offset % PANEL;
  Element* k = (Element*)attention.key + group + token * STEP;
  for (int64_t i = 0; i < model.head_dim; i++)
    store_element<T>(k + i / STEP * PANEL * STEP + i % STEP, key[i]);
  if (value == nullptr) return;
  Element* v = (Element*)attention.value + group + token / STEP * PANEL * STEP + token % STEP;
  for (int64_t i = 0; i < model.head_dim; i++)
    store_element<T>(v + i / PANEL * PANEL * PANEL + i % PANEL * STEP, value[i]);
}

}  // namespace PW_ISA
