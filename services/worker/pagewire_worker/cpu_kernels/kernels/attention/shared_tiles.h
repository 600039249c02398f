// Threads and the tiles of attention: a tile for each, or few tiles with many positions cut into splits.
#pragma once

namespace PW_ISA {

static_assert(sizeof(Totals) == TOTALS_BYTES, "arguments.h knows the size of a merged part");

// The sums of a part over the splits that are merged so far, in memory that all threads reach.
struct MergedPart {
  std::atomic<int64_t>* num_merged;
  Totals* totals;
  float* sums;

  MergedPart(PwPool* pool, const PwModel& model, int64_t number) {
    const int64_t owner = number % pool->num_threads, place = number / pool->num_threads;
    char* memory = (char*)pool->memory((int)owner, (size_t)merge_bytes(model), MERGE);
    num_merged = (std::atomic<int64_t>*)(memory + place * 64);
    char* state = memory + PARTS_PER_THREAD * 64 + place * merged_part_bytes(model);
    totals = (Totals*)state;
    sums = (float*)(state + TOTALS_BYTES);
  }
};

// Share the splits of parts between threads.
//
// A thread computes a split by itself, waits until the splits before it are merged, and adds its own.
// So splits are merged in the order of attend_part, and the bits are the same. Splits are taken in
// ascending order: whoever is waited for has begun before, and waits for nobody behind it.
template <class T>
static void attend_splits(PwPool* pool, int phase, int thread, Tiles& registers,
                          const PwModel& model, const PwAttention& attention, const PwBatch& batch,
                          const void* queries, void* attended, const AttentionTile* tiles,
                          int64_t num_items) {
  const int64_t num_parts = model.num_heads / tile_heads(model);
  AttentionMemory<T> memory(pool, thread, model);
  int64_t item = 0, begin = 0, loaded = -1;
  TilePart part = tile_part(model, attention, batch, tiles[0], 0);
  for (;;) {
    const int64_t taken = pool->take(phase);
    while (taken >= begin + part.num_splits) {
      begin += part.num_splits;
      if (++item == num_items) return;
      part = tile_part(model, attention, batch, tiles[item / num_parts], item % num_parts);
    }
    if (loaded != item) load_queries<T>(model, queries, part, memory);
    loaded = item;
    attend_split<T>(registers, model, attention, batch, memory, part, part.first_split + taken - begin);
    const MergedPart merged(pool, model, item);
    pool->await(*merged.num_merged, taken - begin);
    if (taken == begin) begin_sums(model, attention, part, *merged.totals, merged.sums);
    merge_split<T>(model, attention, part.num_rows, memory, *merged.totals, merged.sums);
    const bool is_last = taken - begin == part.num_splits - 1;
    if (is_last) store_attended<T>(model, batch, part, *merged.totals, merged.sums, attended);
    // The next layer counts from 0 again.
    merged.num_merged->store(is_last ? 0 : taken - begin + 1, std::memory_order_release);
  }
}

// Whether tiles are so few that threads would wait for the longest.
static inline bool are_cut(const PwPool* pool, const PwAttention& attention, const PwBatch& batch,
                           const AttentionTile* tiles, int64_t num_tiles, int64_t num_items) {
  if (pool->num_threads == 1 || num_items > PARTS_PER_THREAD * pool->num_threads) return false;
  for (int64_t i = 0; i < num_tiles; i++) {
    const int64_t end = batch.positions[tiles[i].first_token + tiles[i].num_tokens - 1] + 1;
    if (end > SPLIT && (attention.window == 0 || attention.window > SPLIT)) return true;
  }
  return false;
}

template <class T>
static void attend_share(PwPool* pool, int phase, int thread, const PwModel& model,
                         const PwAttention& attention, const PwBatch& batch, const void* queries,
                         void* attended, const AttentionTile* tiles, int64_t num_tiles) {
  const int64_t num_parts = model.num_heads / tile_heads(model), num_items = num_tiles * num_parts;
  Tiles registers;
  if (are_cut(pool, attention, batch, tiles, num_tiles, num_items))
    return attend_splits<T>(pool, phase, thread, registers, model, attention, batch, queries, attended,
                            tiles, num_items);
  for (int64_t item; (item = pool->next(phase, thread, num_items)) < num_items;) {
    // The last tiles of a chunk see the most positions: long work comes first.
    const AttentionTile& tile = tiles[num_tiles - 1 - item / num_parts];
    attend_part<T>(pool, thread, registers, model, attention, batch, queries, attended,
                   tile_part(model, attention, batch, tile, item % num_parts));
  }
}

}  // namespace PW_ISA
