// Layout of keys and values in a block of the cache: products read them as panels.
//
// A block holds, per KV head, its tokens in groups of 16. The keys of a group are one panel whose
// columns are its tokens, [head_dim / STEP][16 tokens][STEP]; its values are head_dim / 16 panels
// whose rows are its tokens, [head_dim / 16][16 tokens / STEP][16 columns][STEP]. A block has as
// many bytes as in any other order. Latents are stored as keys.
//
// In a cache of int8, a group is 16 float32 scales, one per token, and then its numbers as bytes in
// that order for a STEP of 2, whatever the type of the model.
#pragma once

namespace PW_ISA {

static constexpr int MAX_HEAD_DIM = 512;
static constexpr int64_t KV_SCALE_BYTES = PANEL * 4;  // of a group of int8

static inline bool has_kv_scales(const PwModel& model) { return model.kv_type == PW_INT8; }

// Bytes of the keys or the values of a group.
template <class T>
static inline int64_t kv_group_bytes(const PwModel& model) {
  const int64_t size = PANEL * model.head_dim;
  return has_kv_scales(model) ? KV_SCALE_BYTES + size : size * (int64_t)sizeof(typename T::Element);
}

// Return the offset of a group of 16 tokens, in bytes.
template <class T>
static inline int64_t group_offset(const PwModel& model, int64_t block, int64_t kv_head,
                                   int64_t group) {
  int64_t num_groups = model.block_size / PANEL;
  return ((block * model.num_kv_heads + kv_head) * num_groups + group) * kv_group_bytes<T>(model);
}

static constexpr int BYTE_STEP = 2;  // of int8

// The place in its group of number i of a key, or of a value.
template <int STEP>
static inline int64_t key_place(int64_t token, int64_t i) {
  return i / STEP * PANEL * STEP + token * STEP + i % STEP;
}
template <int STEP>
static inline int64_t value_place(int64_t token, int64_t i) {
  return i / PANEL * PANEL * PANEL + token / STEP * PANEL * STEP + i % PANEL * STEP + token % STEP;
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

// Write a key or a value [head_dim] of int8, and its scale, to its group.
static inline void write_bytes(const float* x, int64_t size, int64_t token, bool is_key, char* group) {
  alignas(64) int8_t row[MAX_HEAD_DIM + 64];
  quantize_row(x, size, size, row);
  ((float*)group)[token] = scale_of(row, size);
  int8_t* numbers = (int8_t*)group + KV_SCALE_BYTES;
  for (int64_t i = 0; i < size; i++)
    numbers[is_key ? key_place<BYTE_STEP>(token, i) : value_place<BYTE_STEP>(token, i)] = row[i];
}

// Write one head of the token at `slot`; key and value are [head_dim]. Without a value, none is stored.
template <class T>
static inline void write_kv(const PwModel& model, const PwAttention& attention, int64_t slot,
                            int64_t kv_head, const float* key, const float* value) {
  typedef typename T::Element Element;
  int64_t block = slot / model.block_size, offset = slot % model.block_size;
  int64_t group = group_offset<T>(model, block, kv_head, offset / PANEL);
  int64_t token = offset % PANEL;
  char* keys = (char*)attention.key + group;
  char* values = value == nullptr ? nullptr : (char*)attention.value + group;
  if (has_kv_scales(model)) {
    write_bytes(key, model.head_dim, token, true, keys);
    write_bytes(value, model.head_dim, token, false, values);
    return;
  }
  for (int64_t i = 0; i < model.head_dim; i++)
    store_element<T>((Element*)keys + key_place<T::STEP>(token, i), key[i]);
  if (value == nullptr) return;
  for (int64_t i = 0; i < model.head_dim; i++)
    store_element<T>((Element*)values + value_place<T::STEP>(token, i), value[i]);
}

}  // namespace PW_ISA
