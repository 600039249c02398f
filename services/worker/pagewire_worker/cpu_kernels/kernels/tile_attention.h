// Attention by tiles: the products of queries with keys, and the sums of values.
//
// The keys of a group are a panel, as in a linear layer. The values of a group are half as many rows
// as a tile has, so those of two groups are copied side by side; positions that a row may not read
// (before a window, or never written) become zeros there.
#pragma once

namespace PW_ISA {

// The rows of one or two tiles, from `row` on, of an input with rows `stride` bytes apart.
struct TileRows {
  int64_t first, second;  // rows of each tile
  const char *first_row, *second_row;

  TileRows(int64_t row, int64_t num_rows, bool is_pair, const void* input, int64_t stride) {
    const int64_t left = num_rows - row;
    const bool has_second = is_pair && left > TILE_HEIGHT;
    first = least(left, TILE_HEIGHT);
    // A pair needs two tiles; a second one that is missing is computed and not used.
    second = !is_pair ? 0 : has_second ? least(left - TILE_HEIGHT, TILE_HEIGHT) : first;
    first_row = (const char*)input + row * stride;
    second_row = has_second ? first_row + TILE_HEIGHT * stride : first_row;
  }
  bool has_second() const { return second_row != first_row; }
};

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

template <class T, bool IS_PAIR>
static void score_tiles(Tiles& tiles, const AttentionMemory<T>& memory, int64_t num_rows, int64_t d,
                        const SplitGroups<T>& groups) {
  constexpr int64_t WIDTH = IS_PAIR ? 2 : 4, HEIGHT = IS_PAIR ? 2 * TILE_HEIGHT : TILE_HEIGHT;
  const int64_t stride = d * (int64_t)sizeof(typename T::Element), depth = stride % 64 ? 32 : 64;
  for (int64_t row = 0; row < num_rows; row += HEIGHT) {
    const TileRows rows(row, num_rows, IS_PAIR, memory.query, stride);
    tiles.shape(rows.first, rows.second, depth);
    for (int64_t g = 0; g < groups.count; g += WIDTH) {
      const int64_t width = least(WIDTH, groups.count - g);
      const char* panels[4];
      TileAhead ahead = {{}, row == 0 ? depth / 4 : 0};
      for (int64_t n = 0; n < 4; n++) {
        panels[n] = (const char*)groups.keys[g + (n < width ? n : 0)];
        ahead.from[n] = (const char*)groups.keys[g + (n < width ? n : 0) + GROUPS_AHEAD];
      }
      zero_sums(tiles);
      multiply_along<false, IS_PAIR>(tiles, rows.first_row, rows.second_row, stride, panels,
                                     stride / depth, depth, ahead);
      store_panels<IS_PAIR>(tiles, rows, width,
                            memory.products + row * SPLIT + groups.lead + g * PANEL, SPLIT);
    }
  }
}

// products [rows, SPLIT] of the queries with the keys of a split
template <class T>
static void score_by_tiles(Tiles& tiles, const AttentionMemory<T>& memory, int64_t num_rows,
                           int64_t d, const SplitGroups<T>& groups) {
  if (num_rows > TILE_HEIGHT)
    score_tiles<T, true>(tiles, memory, num_rows, d, groups);
  else
    score_tiles<T, false>(tiles, memory, num_rows, d, groups);
}

// Copy one panel of the values of a split to `num_tiles` tiles of two groups each.
template <class T>
static inline void copy_values(const SplitGroups<T>& groups, int64_t panel, int64_t num_tiles,
                               char* out) {
  constexpr int64_t HALF = 512;  // bytes of a group
  const int64_t before = groups.lead / PANEL;
  for (int64_t i = 0; i < 2 * num_tiles; i++, out += HALF) {
    const int64_t g = i - before;
    if (g < 0 || g >= groups.count) {
      __builtin_memset(out, 0, HALF);
      continue;
    }
    const int64_t place = panel * PANEL * PANEL;
    const char* ahead = (const char*)(groups.values[g + GROUPS_AHEAD] + place);
    for (int64_t k = 0; k < HALF; k += 64) __builtin_prefetch(ahead + k, 0, 2);
    __builtin_memcpy(out, groups.values[g] + place, HALF);
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
      copy_values(groups, panel + n, count, memory.value_tiles + n * count * TILE_BYTES);
    for (int64_t row = 0; row < num_rows; row += HEIGHT) {
      const TileRows rows(row, num_rows, IS_PAIR, memory.weights, STRIDE);
      tiles.shape(rows.first, rows.second, 64);
      TileAhead nothing = {{}, 0};
      zero_sums(tiles);
      multiply_along<false, IS_PAIR>(tiles, rows.first_row, rows.second_row, STRIDE, panels, count,
                                     64, nothing);
      store_panels<IS_PAIR>(tiles, rows, width, memory.split_sums + row * d + panel * PANEL, d);
    }
  }
}

// split_sums [rows, head_dim] of the values of a split with the weights
template <class T>
static void weigh_by_tiles(Tiles& tiles, const AttentionMemory<T>& memory, int64_t num_rows,
                           int64_t d, const SplitGroups<T>& groups) {
  if (num_rows > TILE_HEIGHT)
    weigh_tiles<T, true>(tiles, memory, num_rows, d, groups);
  else
    weigh_tiles<T, false>(tiles, memory, num_rows, d, groups);
}

}  // namespace PW_ISA
