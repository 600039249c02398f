// Attention over a paged cache: chunks against single tokens, windows, sinks and latents.
#pragma once
#include "abi.h"
#include "values.h"

// What one case attends with.
struct AttentionCase {
  const char* name;
  int64_t length;  // positions
  int32_t heads, kv_heads, head_dim, latent_dim, window;
  float softcap;
  bool has_sinks, has_norms;
  bool is_int8 = false;  // the cache
};

// One sequence in blocks that lie in reverse order, and its queries, keys and values.
class Sequence {
 public:
  Sequence(PwPool* pool, const AttentionCase& c, int32_t type)
      : pool_(pool), case_(c), type_(type), numbers_(11) {
    const int64_t num_blocks = (c.length + BLOCK - 1) / BLOCK, d = c.head_dim;
    for (int64_t i = 0; i < num_blocks; i++) table_.push_back(num_blocks - 1 - i);
    // What was never written is not a number.
    cache_.assign(2, std::vector<uint8_t>((size_t)(num_blocks * BLOCK * c.kv_heads * d * 4), 0xff));
    width_ = (c.heads + 2 * c.kv_heads) * d;
    heads_ = numbers_.floats(c.length * width_);
    angles_ = {numbers_.floats(c.length * d), numbers_.floats(c.length * d)};
    sinks_ = numbers_.floats(c.heads);
    weight_ = numbers_.floats(d);
    norm_ = {weight_.data(), nullptr, 1e-6f, (int32_t)d, 0};
    attention_ = {};
    if (c.has_norms) attention_.query_norm = attention_.key_norm = &norm_;
    attention_.cosines = angles_[0].data();
    attention_.sines = angles_[1].data();
    attention_.key = cache_[0].data();
    attention_.value = c.latent_dim ? nullptr : cache_[1].data();
    attention_.sinks = c.has_sinks ? sinks_.data() : nullptr;
    attention_.window = c.window;
    attention_.score_scale = 0.25f;
    attention_.softcap = c.softcap;
    model_ = {};
    model_.type = type;
    model_.kv_type = c.is_int8 ? PW_INT8 : type;
    model_.num_layers = 1;
    model_.num_heads = c.heads;
    model_.num_kv_heads = c.kv_heads;
    model_.head_dim = c.head_dim;
    model_.latent_dim = c.latent_dim;
    model_.block_size = BLOCK;
  }

  // Write the keys and values of positions [begin, end) and attend: [end - begin, heads * value_dim].
  Floats run(int64_t begin, int64_t end) {
    const int64_t count = end - begin, d = case_.head_dim;
    std::vector<int64_t> positions, slots, starts = {0, count}, lengths = {end};
    for (int64_t p = begin; p < end; p++) {
      positions.push_back(p);
      slots.push_back(table_[(size_t)(p / BLOCK)] * BLOCK + p % BLOCK);
    }
    PwBatch batch = {};
    batch.num_tokens = count;
    batch.num_seqs = 1;
    batch.table_stride = (int64_t)table_.size();
    batch.positions = positions.data();
    batch.slot_mapping = slots.data();
    batch.query_starts = starts.data();
    batch.seq_lens = lengths.data();
    batch.block_tables = table_.data();
    Floats products(heads_.begin() + begin * width_, heads_.begin() + end * width_);
    std::vector<uint8_t> query((size_t)(count * case_.heads * d * 4));
    std::vector<uint8_t> attended(query.size());
    PwScratch scratch = {};
    scratch.buffers[PW_PRODUCTS] = products.data();
    scratch.buffers[PW_QUERY] = query.data();
    scratch.buffers[PW_ATTENDED] = attended.data();
    const int64_t value_dim = case_.latent_dim ? case_.latent_dim : d;
    if (case_.latent_dim) {
      store_latents(begin, end);
      Floats queries;
      for (int64_t t = 0; t < count; t++)
        queries.insert(queries.end(), products.begin() + t * width_,
                       products.begin() + t * width_ + case_.heads * d);
      Activations typed(queries, type_);
      memcpy(query.data(), typed.data(), typed.memory.size());
    } else {
      pw_rotate_and_store(pool_, &model_, &batch, &scratch, &attention_);
    }
    pw_attend(pool_, &model_, &batch, &scratch, &attention_);
    return widened(attended.data(), (size_t)(count * case_.heads * value_dim), type_);
  }

 private:
  static constexpr int64_t BLOCK = 32;

  // Latents are stored as keys: [groups of 16 tokens][head_dim / step][16][step].
  void store_latents(int64_t begin, int64_t end) {
    const int64_t d = case_.head_dim, step = type_ + 1, size = type_ ? 2 : 4;
    for (int64_t p = begin; p < end; p++) {
      const float* key = heads_.data() + p * width_ + case_.heads * d;
      Activations typed(Floats(key, key + d), type_);
      const int64_t slot = table_[(size_t)(p / BLOCK)] * BLOCK + p % BLOCK;
      uint8_t* group = cache_[0].data() + slot / 16 * 16 * d * size;
      for (int64_t i = 0; i < d; i++)
        memcpy(group + (i / step * 16 * step + slot % 16 * step + i % step) * size,
               typed.memory.data() + i * size, (size_t)size);
    }
  }

  PwPool* pool_;
  const AttentionCase& case_;
  int32_t type_;
  int64_t width_;
  Numbers numbers_;
  std::vector<int64_t> table_;
  std::vector<std::vector<uint8_t>> cache_;
  Floats heads_, sinks_, weight_;
  std::vector<Floats> angles_;
  PwNorm norm_;
  PwAttention attention_;
  PwModel model_;
};

// Attend in two chunks, and to the last positions one by one. Some have more positions than a split.
static void run_attention(PwPool* pool, Results& results) {
  static const AttentionCase CASES[] = {
      {"plain", 531, 2, 1, 16, 0, 0, 0.0f, false, false},
      {"window", 531, 2, 1, 16, 0, 70, 0.0f, false, true},
      {"groups", 70, 6, 2, 48, 0, 20, 0.0f, true, true},
      {"int8", 531, 2, 1, 16, 0, 0, 0.0f, false, false, true},
      {"softcap", 60, 2, 2, 32, 0, 0, 3.0f, false, false},
      {"latent", 60, 4, 1, 48, 32, 0, 0.0f, false, false},
  };
  for (const AttentionCase& c : CASES)
    for (int32_t type = 0; type < 2; type++) {
      const std::string name = std::string("attention-") + c.name + "-" + TYPE_NAMES[type];
      const int64_t chunk = c.length - 21, alone = c.length - 3;
      Sequence whole(pool, c, type), parts(pool, c, type);
      Floats all = whole.run(0, chunk);
      const Floats rest = whole.run(chunk, c.length);
      const size_t width = rest.size() / (size_t)(c.length - chunk);
      parts.run(0, alone);
      // Rows of latents lie by heads.
      for (int64_t p = alone; p < c.length && !c.latent_dim; p++) {
        const Floats one = parts.run(p, p + 1);
        Results::expect_equal(name, one.data(), rest.data() + (size_t)(p - chunk) * width, width);
      }
      all.insert(all.end(), rest.begin(), rest.end());
      results.add(name, all);
    }
}
