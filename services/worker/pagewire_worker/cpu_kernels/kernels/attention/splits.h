// What the attention of one split of positions works on.
#pragma once

namespace PW_ISA {

static constexpr int64_t SPLIT = HAS_TILES ? 512 : 512;
static constexpr int64_t SPLIT_GROUPS = SPLIT / PANEL;
static constexpr int64_t GROUPS_AHEAD = 8;  // prefetched: blocks may lie anywhere
static constexpr int64_t GROUPS_AT_ONCE = 4;  // with separate sums, which do not wait for each other
static constexpr int64_t VALUE_TILE_BYTES = HAS_TILES ? 4 * SPLIT * PANEL * 2 : 0;
// Rows whose products exist at a time: with tiles those of a pair.
template <class T>
static constexpr int64_t SCORED_ROWS = TileStorage<T>::EXISTS ? 2 * TILE_HEIGHT : TILE_QUERIES;
// Distance of the products of a row with neighbouring groups, in floats. With tiles the products of 16
// rows with a group lie together, because 16 rows of a whole split would share two sets of the first cache.
template <class T>
static constexpr int64_t PRODUCT_STEP = TileStorage<T>::EXISTS ? TILE_HEIGHT * PANEL : PANEL;
static constexpr float HIDDEN = -1e30f;
static constexpr float LOG2_E = 1.44269504088896341f;

// The keys and values of the groups of a split that are seen, and of some groups behind them.
template <class T>
struct SplitGroups {
  const typename T::Element *keys[SPLIT_GROUPS + GROUPS_AHEAD], *values[SPLIT_GROUPS + GROUPS_AHEAD];
  int64_t count;
  int64_t num_tokens;  // in them; later ones were perhaps never written
  // Positions that a window hides before the first group, from the last multiple of a few groups on:
  // each group always goes to the same sum.
  int64_t lead;
};

// Some heads of the tokens of a tile, which share the keys and values of a KV head.
struct TilePart {
  const AttentionTile* tile;
  int64_t first_head, kv_head;
  int64_t num_rows;   // tokens times heads
  int64_t from, end;  // positions that any row sees
  int64_t first_split, num_splits;
};

// Writes sums of values [rows, stride], of some rows and panels, with weights `p`.
template <class T>
using WeighTile = void (*)(const typename T::Element* p, const typename T::Element* const* groups,
                           int64_t num_tokens, int64_t first_panel, float* out, int64_t stride);

// The greatest product and the total of weights of each row of a tile, and its factor in a merge.
struct Totals {
  alignas(64) float greatest[TILE_QUERIES];
  alignas(64) float total[TILE_QUERIES];
  alignas(64) float factor[TILE_QUERIES];
};

// Memory of one thread for a tile.
template <class T>
struct AttentionMemory {
  typename T::Element* query;    // [rows, head_dim]
  float* products;               // [SCORED_ROWS, SPLIT], see PRODUCT_STEP
  typename T::Element* weights;  // [rows, SPLIT]
  float* sums;                   // [rows, value_dim]
  float* split_sums;             // [rows, value_dim]
  char* value_tiles;             // of some panels of a split (tile_attention.h)
  Totals* totals;                // of all splits so far, and of one
  typename T::Element* latents;  // of a split, as values (latent.h)
  typename T::Element* widened;  // keys or values of a split (scaled_kv.h), and the scales of both
  float *key_scales, *value_scales;  // [SPLIT]

  AttentionMemory(PwPool* pool, int thread, const PwModel& model) {
    const int64_t rows = TILE_QUERIES, head_dim = model.head_dim, width = value_dim(model);
    int64_t element = sizeof(typename T::Element);
    const int64_t num_scaled = has_kv_scales(model) ? SPLIT : 0;
    int64_t sizes[] = {rows * head_dim * element, SCORED_ROWS<T> * SPLIT * 4, rows * SPLIT * element,
                       rows * width * 4,          rows * width * 4,        VALUE_TILE_BYTES,
                       2 * sizeof(Totals),        SPLIT * model.latent_dim * element,
                       num_scaled * head_dim * element, 2 * num_scaled * 4};
    int64_t all = 0;
    for (int64_t& size : sizes) {
      size = ceil_div(size, 64) * 64;
      all += size;
    }
    char* memory = (char*)pool->memory(thread, (size_t)all, JOB);
    query = (typename T::Element*)memory;
    products = (float*)(memory += sizes[0]);
    weights = (typename T::Element*)(memory += sizes[1]);
    sums = (float*)(memory += sizes[2]);
    split_sums = (float*)(memory += sizes[3]);
    value_tiles = memory += sizes[4];
    totals = (Totals*)(memory += sizes[5]);
    latents = (typename T::Element*)(memory += sizes[6]);
    widened = (typename T::Element*)(memory += sizes[7]);
    key_scales = (float*)(memory += sizes[8]);
    value_scales = key_scales + num_scaled;
  }
};

}  // namespace PW_ISA
