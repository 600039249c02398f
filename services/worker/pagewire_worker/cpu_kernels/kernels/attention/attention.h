// Causal attention over paged keys and values, for prefill chunks and decodes alike.
//
// The positions of a sequence are cut into splits of SPLIT positions, at multiples of SPLIT. Within
// a split the scores of a row are summed in the order of positions; splits are merged in ascending
// order as in online softmax (Milakov and Gimelshein, 2018; FlashAttention, Dao et al., 2022).
// Hidden positions contribute exact zeros. So the result of a row depends on its query and on the
// keys and values that it sees, bit for bit, and on nothing else.
#pragma once

namespace PW_ISA {

// sums[rows][panels of the head] over the positions of one split; rows of P are SPLIT apart.
template <class T, int M, int NB>
static void weigh_tile(const typename T::Element* p, const typename T::Element* const* groups,
                       int64_t num_tokens, int64_t first_panel, float* out, int64_t stride) {
  typedef typename T::Element Element;
  V sums[M][NB];
#pragma GCC unroll 8
  for (int m = 0; m < M; m++)
#pragma GCC unroll 8
    for (int n = 0; n < NB; n++) sums[m][n] = zero();
  const Element *panels[NB], *ahead[NB];
  for (int64_t begin = 0; begin < num_tokens; begin += PANEL) {
    for (int n = 0; n < NB; n++) {
      panels[n] = groups[begin / PANEL] + (first_panel + n) * PANEL * PANEL;
      ahead[n] = groups[begin / PANEL + GROUPS_AHEAD] + (first_panel + n) * PANEL * PANEL;
    }
    int64_t size = least(PANEL, num_tokens - begin) / T::STEP * T::STEP;
    multiply<T, M, NB>(sums, p + begin, SPLIT, 0, size, panels, ahead, 0);
  }
  if (num_tokens % T::STEP) {
    // The partner of the last token was never written. It may be NaN, and 0 * NaN is NaN.
    int64_t k = (num_tokens - 1) % PANEL;
    for (int n = 0; n < NB; n++) {
      typename T::Columns last = T::first_only(T::columns(panels[n] + k * PANEL));
#pragma GCC unroll 8
      for (int m = 0; m < M; m++)
        sums[m][n] = T::dot(sums[m][n], last, T::scalar(p + m * SPLIT + num_tokens - 1));
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < M; m++)
#pragma GCC unroll 8
    for (int n = 0; n < NB; n++) store(out + m * stride + (first_panel + n) * PANEL, sums[m][n]);
}

template <class T, int M, int NB>
constexpr WeighTile<T> weigh_or_null() {
  if constexpr (M <= TILE_ROWS && NB <= WIDEST_TILE && M * NB <= TILE_SUMS)
    return weigh_tile<T, M, NB>;
  else
    return nullptr;
}

#define PW_WEIGH_ROW(M) \
  {weigh_or_null<T, M, 1>(), weigh_or_null<T, M, 2>(), weigh_or_null<T, M, 3>(), weigh_or_null<T, M, 4>()}
template <class T>
static const WeighTile<T> WEIGH_TILES[MAX_TILE_ROWS][4] = {
    PW_WEIGH_ROW(1), PW_WEIGH_ROW(2), PW_WEIGH_ROW(3), PW_WEIGH_ROW(4),
    PW_WEIGH_ROW(5), PW_WEIGH_ROW(6), PW_WEIGH_ROW(7), PW_WEIGH_ROW(8)};
#undef PW_WEIGH_ROW

// Turn products into scores softcap * tanh(product * scale / softcap), in place.
template <class T>
static inline void cap_scores(float* products, int64_t num_groups, float scale, float softcap) {
  V factor = set1(scale / softcap), cap = set1(softcap);
  for (int64_t g = 0; g < num_groups; g++) {
    float* own = products + g * PRODUCT_STEP<T>;
    store(own, mul(tanh(mul(load(own), factor)), cap));
  }
}

// Turn products into weights for one row and split, which sees positions [begin, end). `scale` turns
// products into exponents of 2. A row that sees no position gets weights of 1. Groups up to the next
// multiple of GROUPS_AT_ONCE are written too. Weights that are stored have the scales of values as a
// factor, where they have some; their total does not.
template <class T, bool HAS_SCALES>
static inline void soften(float* products, typename T::Element* weights, int64_t num_groups,
                          int64_t begin, int64_t end, float scale, const float* scales,
                          float* greatest, float* total) {
  V high[GROUPS_AT_ONCE];
  for (V& one : high) one = set1(HIDDEN);
  for (int64_t g = 0; g < num_groups; g += GROUPS_AT_ONCE) {
    const bool is_seen = begin <= g * PANEL && end >= (g + GROUPS_AT_ONCE) * PANEL;
#pragma GCC unroll 4
    for (int64_t i = 0; i < GROUPS_AT_ONCE; i++) {
      const int64_t first = (g + i) * PANEL;
      float* own = products + (g + i) * PRODUCT_STEP<T>;
      V s = load(own);
      if (!is_seen) {
        s = in_range(s, set1(HIDDEN), (int)(begin - first), (int)(end - first));
        store(own, s);
      }
      high[i] = max(high[i], s);
    }
  }
  *greatest = greatest_of(max(max(high[0], high[1]), max(high[2], high[3])));
  V sums[GROUPS_AT_ONCE], top = set1(*greatest), factor = set1(scale);
  for (V& one : sums) one = zero();
  for (int64_t g = 0; g < num_groups; g += GROUPS_AT_ONCE)
#pragma GCC unroll 4
    for (int64_t i = 0; i < GROUPS_AT_ONCE; i++) {
      V e = softmax_power<T>(mul(sub(load(products + (g + i) * PRODUCT_STEP<T>), top), factor));
      sums[i] = add(sums[i], e);
      if constexpr (HAS_SCALES) e = mul(e, load(scales + (g + i) * PANEL));
      store(weights + (g + i) * PANEL, e);
    }
  *total = sum_of(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
}

// Merge a split into the splits before it. If a row sees no position of it, its factor is 0.
static inline void merge_totals(Totals& before, Totals& split, int64_t num_rows, float scale) {
  V factor = set1(scale);
  for (int64_t row = 0; row < num_rows; row += PANEL) {
    V old = load(before.greatest + row), own = load(split.greatest + row);
    V merged = max(old, own);
    V old_factor = exp2(mul(sub(old, merged), factor));
    V own_factor = exp2(mul(sub(own, merged), factor));
    V total = mul(load(split.total + row), own_factor);
    store(before.total + row, fma(load(before.total + row), old_factor, total));
    store(before.greatest + row, merged);
    store(before.factor + row, old_factor);
    store(split.factor + row, own_factor);
  }
}

// Prefetch the keys or values of a group.
static inline void read_group(const void* group, int64_t num_bytes) {
  for (int64_t i = 0; i < num_bytes; i += 64) __builtin_prefetch((const char*)group + i, 0, 2);
}

// products [count, SPLIT] of the queries with the keys of a split
template <class T>
static void score_rows(const AttentionMemory<T>& memory, int64_t count, int64_t d,
                       const SplitGroups<T>& groups) {
  const int64_t most_rows = tile_rows(count);
  const typename T::Element* const* keys = groups.keys;
  for (int64_t g = 0, width; g < groups.count; g += width) {
    width = least(GROUPS_AHEAD, groups.count - g);
    for (int64_t row = 0; row < count; row += most_rows)
      multiply_rows<T>(memory.query + row * d, d, (int)least(most_rows, count - row), d, {},
                       keys + g, (int)width,
                       memory.products + row * SPLIT + groups.lead + g * PANEL, SPLIT,
                       {keys + g + (row == 0 ? GROUPS_AHEAD : 0), 0, keys + g, d});
  }
}

// split_sums [rows, value_dim] of the values of a split with the weights
template <class T>
static void weigh_rows(const WeighTile<T> (&tiles)[MAX_TILE_ROWS][4], const AttentionMemory<T>& memory,
                       int64_t num_rows, int64_t d, const SplitGroups<T>& groups) {
  const int64_t most_rows = tile_rows(num_rows);
  for (int64_t row = 0; row < num_rows; row += most_rows) {
    int rows = (int)least(most_rows, num_rows - row);
    int64_t most_panels = 4;
    while (most_panels > WIDEST_TILE || tiles[rows - 1][most_panels - 1] == nullptr)
      most_panels--;
    const int64_t num_tiles = ceil_div(d / PANEL, most_panels);
    for (int64_t panel = 0, width, left = num_tiles; left > 0; panel += width, left--) {
      width = ceil_div(d / PANEL - panel, left);
      tiles[rows - 1][width - 1](memory.weights + row * SPLIT + groups.lead, groups.values,
                                 groups.num_tokens, panel, memory.split_sums + row * d, d);
    }
  }
}

// Factor that turns products into exponents of 2.
static inline float exponent_scale(const PwAttention& attention) {
  return (attention.softcap != 0.0f ? 1.0f : attention.score_scale) * LOG2_E;
}

// Compute the sums of values and the totals of weights of one split, for the queries in `memory`.
template <class T>
static void attend_split(Tiles& tiles, const PwModel& model, const PwAttention& attention,
                         const PwBatch& batch, const AttentionMemory<T>& memory,
                         const TilePart& part, int64_t number) {
  typedef typename T::Element Element;
  const AttentionTile& tile = *part.tile;
  const int64_t d = model.head_dim, width = value_dim(model), num_query = tile_heads(model);
  const int64_t num_rows = part.num_rows, last = part.end;
  // Blocks before the window may belong to other sequences: they must not even add zeros.
  const int64_t first = most(number * SPLIT, part.from / PANEL * PANEL);
  const int64_t end = least(last, (number + 1) * SPLIT);
  const int64_t table_row = attention.group * batch.num_seqs + tile.seq;
  const int64_t* table = batch.block_tables + table_row * batch.table_stride;
  SplitGroups<T> groups;
  groups.count = ceil_div(end - first, PANEL);
  groups.num_tokens = end - first;
  const int64_t lead = groups.lead = first % (GROUPS_AT_ONCE * PANEL);
  for (int64_t g = 0; g < groups.count + GROUPS_AHEAD; g++) {
    // At the end of a split, the next split is prefetched.
    int64_t position = least(first + g * PANEL, last - 1);
    int64_t offset = group_offset<T>(model, table[position / model.block_size], part.kv_head,
                                     position % model.block_size / PANEL);
    groups.keys[g] = (const Element*)((const char*)attention.key + offset);
    groups.values[g] = model.latent_dim ? groups.keys[g]
                                        : (const Element*)((const char*)attention.value + offset);
  }
  const int64_t num_ahead = least(GROUPS_AHEAD, groups.count);
  if (first < SPLIT)
    for (int64_t g = 0; g < num_ahead; g++) read_group(groups.keys[g], kv_group_bytes<T>(model));
  const bool is_capped = attention.softcap != 0.0f, is_scaled = has_kv_scales(model);
  const int64_t value_bytes = kv_group_bytes<T>(model) / d * width;
  const bool in_registers = is_scaled && !TileStorage<T>::EXISTS && num_rows <= BYTE_ROWS;
  const auto soften_row = is_scaled ? soften<T, true> : soften<T, false>;
  if (is_scaled) {
    read_scales<T>(groups.keys, groups, memory.key_scales);
    read_scales<T>(groups.values, groups, memory.value_scales);
    if (!in_registers) widen_groups<T>(memory, d, groups.count, groups.keys);
  }
  const float scale = exponent_scale(attention);
  Totals& split = memory.totals[1];
  const auto soften_one = [&](int64_t row, float* products) {
    const int64_t position = batch.positions[tile.first_token + row / num_query];
    const int64_t from = attention.window ? most(0, position + 1 - attention.window) : 0;
    float* seen = products + lead / PANEL * PRODUCT_STEP<T>;
    if (is_scaled) scale_products<T>(seen, groups.count, memory.key_scales + lead);
    if (is_capped) cap_scores<T>(seen, groups.count, attention.score_scale, attention.softcap);
    soften_row(products, memory.weights + row * SPLIT, groups.count + lead / PANEL,
               from - first + lead, position + 1 - first + lead, scale, memory.value_scales,
               split.greatest + row, split.total + row);
  };
  const auto read_values = [&] {
    for (int64_t g = 0; g < num_ahead; g++) read_group(groups.values[g], value_bytes);
  };
  if constexpr (TileStorage<T>::EXISTS) {
    soften_by_tiles<T>(tiles, memory, num_rows, d, groups, read_values, soften_one);
  } else {
    if (in_registers)
      score_bytes<T>(memory, num_rows, d, groups);
    else
      score_rows<T>(memory, num_rows, d, groups);
    read_values();
    for (int64_t row = 0; row < num_rows; row++) soften_one(row, memory.products + row * SPLIT);
  }
  if (model.latent_dim) turn_latents<T>(memory, width, groups);
  if (is_scaled && !in_registers) widen_groups<T>(memory, d, groups.count, groups.values);
  if constexpr (TileStorage<T>::EXISTS)
    weigh_by_tiles<T>(tiles, memory, num_rows, width, groups);
  else
    weigh_rows<T>(in_registers ? WEIGH_BYTES<T> : WEIGH_TILES<T>, memory, num_rows, width, groups);
}

// Add the split in `memory` to `sums` and `totals` of the splits before it.
template <class T>
static void merge_split(const PwModel& model, const PwAttention& attention, int64_t num_rows,
                        const AttentionMemory<T>& memory, Totals& totals, float* sums) {
  Totals& split = memory.totals[1];
  const int64_t width = value_dim(model);
  merge_totals(totals, split, num_rows, exponent_scale(attention));
  for (int64_t row = 0; row < num_rows; row++) {
    V old_factor = set1(totals.factor[row]), split_factor = set1(split.factor[row]);
    for (int64_t i = row * width; i < (row + 1) * width; i += PANEL)
      store(sums + i, fma(load(sums + i), old_factor, mul(load(memory.split_sums + i), split_factor)));
  }
}

// Return what a tile has of the heads: part `number` of them.
static inline TilePart tile_part(const PwModel& model, const PwAttention& attention,
                                 const PwBatch& batch, const AttentionTile& tile, int64_t number) {
  TilePart part;
  part.tile = &tile;
  part.num_rows = tile.num_tokens * tile_heads(model);
  part.first_head = number * tile_heads(model);
  part.kv_head = part.first_head / (model.num_heads / model.num_kv_heads);
  const int64_t earliest = batch.positions[tile.first_token];
  part.end = batch.positions[tile.first_token + tile.num_tokens - 1] + 1;
  part.from = attention.window ? most(0, earliest + 1 - attention.window) : 0;
  part.first_split = part.from / SPLIT;
  part.num_splits = ceil_div(part.end, SPLIT) - part.first_split;
  return part;
}

// Copy the queries of a part to `memory`.
template <class T>
static void load_queries(const PwModel& model, const void* queries, const TilePart& part,
                         const AttentionMemory<T>& memory) {
  typedef typename T::Element Element;
  const int64_t d = model.head_dim, num_query = tile_heads(model);
  for (int64_t t = 0; t < part.tile->num_tokens; t++) {
    int64_t head = (part.tile->first_token + t) * model.num_heads + part.first_head;
    __builtin_memcpy(memory.query + t * num_query * d, (const Element*)queries + head * d,
                     (size_t)(num_query * d) * sizeof(Element));
  }
  // Rows beyond the part are merged too, so they need valid values.
  for (int64_t row = 0; row < TILE_QUERIES; row++) {
    memory.totals[1].greatest[row] = HIDDEN;
    memory.totals[1].total[row] = 0.0f;
  }
}

// Set the sums and totals of a part to what they are before the first split.
static inline void begin_sums(const PwModel& model, const PwAttention& attention,
                              const TilePart& part, Totals& totals, float* sums) {
  for (int64_t row = 0; row < TILE_QUERIES; row++) {
    totals.greatest[row] = HIDDEN;
    totals.total[row] = 0.0f;
  }
  if (attention.sinks != nullptr) {
    // Like a split before the first one that has a weight of 1 and a value of 0.
    const float scale = attention.softcap == 0.0f ? attention.score_scale : 1.0f;
    for (int64_t row = 0; row < part.num_rows; row++) {
      totals.greatest[row] = attention.sinks[part.first_head + row % tile_heads(model)] / scale;
      totals.total[row] = 1.0f;
    }
  }
  for (int64_t i = 0; i < part.num_rows * value_dim(model); i += PANEL) store(sums + i, zero());
}

// Store the results of a part, all of whose splits are merged.
template <class T>
static void store_attended(const PwModel& model, const PwBatch& batch, const TilePart& part,
                           const Totals& totals, const float* sums, void* attended) {
  typedef typename T::Element Element;
  const int64_t width = value_dim(model), num_query = tile_heads(model);
  for (int64_t row = 0; row < part.num_rows; row++) {
    const int64_t token = part.tile->first_token + row / num_query;
    const int64_t head = part.first_head + row % num_query;
    // Of latents, the rows of a head lie together: they are multiplied with its matrix.
    const int64_t place = model.latent_dim ? head * batch.num_tokens + token
                                           : token * model.num_heads + head;
    V scale = set1(1.0f / totals.total[row]);
    for (int64_t i = 0; i < width; i += PANEL)
      store((Element*)attended + place * width + i, mul(load(sums + row * width + i), scale));
  }
}

template <class T>
static void attend_part(PwPool* pool, int thread, Tiles& tiles, const PwModel& model,
                        const PwAttention& attention, const PwBatch& batch, const void* queries,
                        void* attended, const TilePart& part) {
  AttentionMemory<T> memory(pool, thread, model);
  load_queries<T>(model, queries, part, memory);
  Totals& totals = memory.totals[0];
  begin_sums(model, attention, part, totals, memory.sums);
  for (int64_t split = part.first_split; split < part.first_split + part.num_splits; split++) {
    attend_split<T>(tiles, model, attention, batch, memory, part, split);
    merge_split<T>(model, attention, part.num_rows, memory, totals, memory.sums);
  }
  store_attended<T>(model, batch, part, totals, memory.sums, attended);
}

}  // namespace PW_ISA
