// Attention by tiles: the products of queries with keys, and the sums of values.
//
// The keys of a group are a panel, as in a linear layer. The values of a group are half as many rows
// as a tile has, so those of two groups are copied side by side; positions that a row may not read
// (before a window, or never written) become zeros there.
#pragma once

namespace PW_ISA {

// Store the tiles of `width` panels to out[rows, stride].
template <bool IS_PAIR>
static inline void store_panels(Tiles& tiles, const TileRows& rows, int64_t width, float* out,
                                int64_t stride) {
  float* below = out + TILE_HEIGHT * stride;
  tiles.store<0>(out, stride * 4);
  if (width > 1) tiles.store<1>(out + PANEL, stride * 4);
  if constexpr (IS_PAIR) {
    if (!rows.has_second()) return;
    tiles.store<2>(below, stride * 4);
    if (width > 1) tiles.store<3>(below + PANEL, stride * 4);
  } else {
    if (width > 2) tiles.store<2>(out + 2 * PANEL, stride * 4);
    if (width > 3) tiles.store<3>(out + 3 * PANEL, stride * 4);
  }
}

// products [rows / 16][SPLIT / 16][16 rows][16] of one or two tiles of queries, from `row` on, with the
// keys of a split
template <class T, bool IS_PAIR>
static void score_by_tiles(Tiles& tiles, const AttentionMemory<T>& memory, int64_t row,
                           int64_t num_rows, int64_t d, const SplitGroups<T>& groups) {
  constexpr int64_t WIDTH = IS_PAIR ? 2 : 4, STEP = PRODUCT_STEP<T>, TILE_PRODUCTS = TILE_HEIGHT * SPLIT;
  const int64_t stride = d * (int64_t)sizeof(typename T::Element), depth = stride % 64 ? 32 : 64;
  const TileRows rows(row, num_rows, IS_PAIR, memory.query, stride, depth);
  tiles.shape(rows.first, rows.second, depth);
  NoWork none;
  for (int64_t g = 0; g < groups.count; g += WIDTH) {
    const int64_t width = least(WIDTH, groups.count - g);
    const char* panels[4] = {};
    // The first rows read the keys from memory, the others from the second cache.
    const bool is_near = row > 0;
    TileAhead ahead = {{}, depth / 4, is_near};
    for (int64_t n = 0; n < WIDTH; n++) {
      panels[n] = (const char*)groups.keys[g + (n < width ? n : 0)];
      ahead.from[n] =
          (const char*)groups.keys[g + (n < width ? n : 0) + (is_near ? WIDTH : GROUPS_AHEAD)];
    }
    zero_sums(tiles);
    multiply_along<false, IS_PAIR>(tiles, rows, 0, panels, stride / depth, depth, ahead, none);
    float* out = memory.products + (groups.lead / PANEL + g) * STEP;
    float* below = IS_PAIR ? out + TILE_PRODUCTS : out + 2 * STEP;
    tiles.store<0>(out, PANEL * 4);
    if (width > 1) tiles.store<1>(out + STEP, PANEL * 4);
    if (IS_PAIR ? rows.has_second() : width > 2) tiles.store<2>(below, PANEL * 4);
    if (IS_PAIR ? rows.has_second() && width > 1 : width > 3) tiles.store<3>(below + STEP, PANEL * 4);
  }
}

// Copy one tile, two groups, of a panel of the values of a split.
template <class T>
static inline void copy_values(const SplitGroups<T>& groups, int64_t panel, int64_t tile, char* out) {
  constexpr int64_t HALF = TILE_BYTES / 2;  // of a group
  for (int64_t i = 2 * tile; i < 2 * tile + 2; i++, out += HALF) {
    const int64_t g = i - groups.lead / PANEL;
    if (g < 0 || g >= groups.count) {
      __builtin_memset(out, 0, HALF);
      continue;
    }
    const int64_t place = panel * PANEL * PANEL;
    const char* ahead = (const char*)(groups.values[g + GROUPS_AHEAD] + place);
    for (int64_t k = 0; k < HALF; k += 64) __builtin_prefetch(ahead + k, 0, 2);
    const float* from = (const float*)(groups.values[g] + place);
    for (int64_t k = 0; k < HALF / 4; k += PANEL) store((float*)out + k, load(from + k));
    const int64_t num_tokens = groups.num_tokens - g * PANEL;
    if (num_tokens >= PANEL) continue;
    // Pairs of tokens lie together.
    Bf16* written = (Bf16*)out;
    for (int64_t token = num_tokens; token < PANEL; token++)
      for (int64_t lane = 0; lane < PANEL; lane++)
        written[token / 2 * 2 * PANEL + 2 * lane + token % 2].bits = 0;
  }
}

template <class T, bool IS_PAIR>
static void weigh_tiles(Tiles& tiles, const AttentionMemory<T>& memory, int64_t num_rows, int64_t d,
                        const SplitGroups<T>& groups) {
  constexpr int64_t WIDTH = IS_PAIR ? 2 : 4, HEIGHT = IS_PAIR ? 2 * TILE_HEIGHT : TILE_HEIGHT;
  constexpr int64_t STRIDE = SPLIT * (int64_t)sizeof(typename T::Element);
  const int64_t count = ceil_div(groups.lead + groups.num_tokens, 2 * PANEL);
  for (int64_t panel = 0; panel < d / PANEL; panel += WIDTH) {
    const int64_t width = least(WIDTH, d / PANEL - panel);
    const char* panels[4];
    for (int64_t n = 0; n < 4; n++)
      panels[n] = memory.value_tiles + (n < width ? n : 0) * count * TILE_BYTES;
    for (int64_t n = 0; n < width; n++)
      for (int64_t i = 0; i < count; i++)
        copy_values(groups, panel + n, i, memory.value_tiles + (n * count + i) * TILE_BYTES);
    for (int64_t row = 0; row < num_rows; row += HEIGHT) {
      const TileRows rows(row, num_rows, IS_PAIR, memory.weights, STRIDE, TILE_WIDTH);
      tiles.shape(rows.first, rows.second, 64);
      TileAhead nothing = {};
      NoWork none;
      zero_sums(tiles);
      multiply_along<false, IS_PAIR>(tiles, rows, 0, panels, count, TILE_WIDTH, nothing, none);
      store_panels<IS_PAIR>(tiles, rows, width, memory.split_sums + row * d + panel * PANEL, d);
    }
  }
}

// split_sums [rows, d] of the values of a split with the weights
template <class T>
static void weigh_by_tiles(Tiles& tiles, const AttentionMemory<T>& memory, int64_t num_rows,
                           int64_t d, const SplitGroups<T>& groups) {
  if (num_rows > TILE_HEIGHT)
    weigh_tiles<T, true>(tiles, memory, num_rows, d, groups);
  else
    weigh_tiles<T, false>(tiles, memory, num_rows, d, groups);
}

// Score a split and compute its weights: call soften(row, products of the row) for each row, and
// read_values(), which prefetches, once.
template <class T, class ReadValues, class Soften>
static void soften_by_tiles(Tiles& tiles, const AttentionMemory<T>& memory, int64_t num_rows,
                            int64_t d, const SplitGroups<T>& groups, const ReadValues& read_values,
                            const Soften& soften) {
  for (int64_t begin = 0; begin < num_rows; begin += SCORED_ROWS<T>) {
    const int64_t count = least(SCORED_ROWS<T>, num_rows - begin);
    if (count > TILE_HEIGHT)
      score_by_tiles<T, true>(tiles, memory, begin, num_rows, d, groups);
    else
      score_by_tiles<T, false>(tiles, memory, begin, num_rows, d, groups);
    if (begin == 0) read_values();
    for (int64_t i = 0; i < count; i++) {
      const int64_t tile = i / TILE_HEIGHT, row = i % TILE_HEIGHT;
      soften(begin + i, memory.products + tile * TILE_HEIGHT * SPLIT + row * PANEL);
    }
  }
}

}  // namespace PW_ISA
