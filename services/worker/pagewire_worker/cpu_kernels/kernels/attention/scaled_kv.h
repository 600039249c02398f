// Keys and values of int8, for products that read them as T.
//
// Bytes are exact in T. So the scales of keys are multiplied with products, in float32, and those of
// values with weights before these are rounded to T. For a few rows bytes are widened in registers,
// tile by tile; for more, and for tiles, once in memory. These are the same numbers in the same order.
#pragma once

namespace PW_ISA {

static constexpr int64_t BYTE_ROWS = 16;

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

// Widen the numbers of a group to the order of T.
template <class T>
static inline void widen_numbers(const int8_t* from, int64_t size, typename T::Element* to) {
  for (int64_t i = 0; i < size; i += 2 * PANEL) {
    if constexpr (T::STEP == BYTE_STEP) {
      store(to + i, load_bytes(from + i));
      store(to + i + PANEL, load_bytes(from + i + PANEL));
    } else {
      V first, second;
      widen_pairs(from + i, &first, &second);
      store(to + i, first);
      store(to + i + PANEL, second);
    }
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
    for (int64_t i = 0; i < KV_SCALE_BYTES + size; i += 64) __builtin_prefetch(ahead + i, 0, 2);
    widen_numbers<T>(from, size, to);
    parts[g] = to;
  }
  // These are prefetched only.
  for (int64_t g = count; g < count + GROUPS_AHEAD; g++) parts[g] = memory.widened;
}

// Multiply the products of a row with the scales of keys, in place.
template <class T>
static inline void scale_products(float* products, int64_t num_groups, const float* scales) {
  for (int64_t g = 0; g < num_groups; g++) {
    float* own = products + g * PRODUCT_STEP<T>;
    store(own, mul(load(own), load(scales + g * PANEL)));
  }
}

// out[M rows, SPLIT] = x [M rows of d] * the keys of NB groups
template <class T, int M, int NB>
static __attribute__((noinline)) void score_byte_tile(const typename T::Element* x, int64_t d,
                                                      const typename T::Element* const* keys,
                                                      float* out) {
  const uint8_t *p[NB], *ahead[NB];
  for (int n = 0; n < NB; n++) {
    p[n] = (const uint8_t*)keys[n] + KV_SCALE_BYTES;
    ahead[n] = (const uint8_t*)keys[n + GROUPS_AHEAD] + KV_SCALE_BYTES;
  }
  V sums[M][NB];
#pragma GCC unroll 8
  for (int m = 0; m < M; m++)
#pragma GCC unroll 8
    for (int n = 0; n < NB; n++) sums[m][n] = zero();
  Codes8<T>::template multiply_group<M, NB>(sums, x, d, d, T::code_table(nullptr), p, ahead);
#pragma GCC unroll 8
  for (int m = 0; m < M; m++)
#pragma GCC unroll 8
    for (int n = 0; n < NB; n++) store(out + m * SPLIT + n * PANEL, sums[m][n]);
}

// The same as weigh_tile (attention.h) for values of int8. Weights behind the last token are zeros.
template <class T, int M, int NB>
static __attribute__((noinline)) void weigh_byte_tile(const typename T::Element* weights,
                                                      const typename T::Element* const* groups,
                                                      int64_t num_tokens, int64_t first_panel,
                                                      float* out, int64_t stride) {
  const typename T::Table table = T::code_table(nullptr);
  V sums[M][NB];
#pragma GCC unroll 8
  for (int m = 0; m < M; m++)
#pragma GCC unroll 8
    for (int n = 0; n < NB; n++) sums[m][n] = zero();
  for (int64_t begin = 0; begin < num_tokens; begin += PANEL) {
    const uint8_t *p[NB], *ahead[NB];
    for (int n = 0; n < NB; n++) {
      const int64_t place = KV_SCALE_BYTES + (first_panel + n) * PANEL * PANEL;
      p[n] = (const uint8_t*)groups[begin / PANEL] + place;
      ahead[n] = (const uint8_t*)groups[begin / PANEL + GROUPS_AHEAD] + place;
    }
    Codes8<T>::template multiply_group<M, NB>(sums, weights + begin, SPLIT, PANEL, table, p, ahead);
  }
#pragma GCC unroll 8
  for (int m = 0; m < M; m++)
#pragma GCC unroll 8
    for (int n = 0; n < NB; n++) store(out + m * stride + (first_panel + n) * PANEL, sums[m][n]);
}

template <class T>
using ScoreBytes = void (*)(const typename T::Element* x, int64_t d,
                            const typename T::Element* const* keys, float* out);

template <class T, int M, int NB>
constexpr bool fits_byte_tile() {
  return M <= TILE_ROWS && NB <= WIDEST_TILE && fits_registers<Codes8<T>, M, NB>();
}
template <class T, int M, int NB>
constexpr ScoreBytes<T> score_bytes_or_null() {
  if constexpr (fits_byte_tile<T, M, NB>())
    return score_byte_tile<T, M, NB>;
  else
    return nullptr;
}
template <class T, int M, int NB>
constexpr WeighTile<T> weigh_bytes_or_null() {
  if constexpr (fits_byte_tile<T, M, NB>())
    return weigh_byte_tile<T, M, NB>;
  else
    return nullptr;
}

#define PW_BYTE_ROW(of, M) {of<T, M, 1>(), of<T, M, 2>(), of<T, M, 3>(), of<T, M, 4>()}
#define PW_BYTE_ROWS(of)                                                                    \
  {PW_BYTE_ROW(of, 1), PW_BYTE_ROW(of, 2), PW_BYTE_ROW(of, 3), PW_BYTE_ROW(of, 4),          \
   PW_BYTE_ROW(of, 5), PW_BYTE_ROW(of, 6), PW_BYTE_ROW(of, 7), PW_BYTE_ROW(of, 8)}
template <class T>
static const ScoreBytes<T> SCORE_BYTES[MAX_TILE_ROWS][4] = PW_BYTE_ROWS(score_bytes_or_null);
template <class T>
static const WeighTile<T> WEIGH_BYTES[MAX_TILE_ROWS][4] = PW_BYTE_ROWS(weigh_bytes_or_null);
#undef PW_BYTE_ROWS
#undef PW_BYTE_ROW

// products [count, SPLIT] of the queries, which are few, with the keys of a split
template <class T>
static void score_bytes(const AttentionMemory<T>& memory, int64_t count, int64_t d,
                        const SplitGroups<T>& groups) {
  const int64_t most_rows = tile_rows(count);
  for (int64_t first = 0; first < groups.count; first += GROUPS_AHEAD) {
    const int64_t end = least(first + GROUPS_AHEAD, groups.count);
    for (int64_t row = 0; row < count; row += most_rows) {
      const int rows = (int)least(most_rows, count - row);
      for (int64_t g = first, width; g < end; g += width) {
        width = least(4, end - g);
        while (SCORE_BYTES<T>[rows - 1][width - 1] == nullptr) width--;
        SCORE_BYTES<T>[rows - 1][width - 1](memory.query + row * d, d, groups.keys + g,
                                            memory.products + row * SPLIT + groups.lead + g * PANEL);
      }
    }
  }
}

}  // namespace PW_ISA
