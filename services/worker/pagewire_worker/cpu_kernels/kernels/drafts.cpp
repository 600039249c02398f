// The loop of a draft model: a small step of one token per sequence for each draft, all in one call. What it
// computes may be wrong, so filters are those of sampling/filters.py but for equal logits and roundings.
#include <math.h>

#include "abi.h"

static constexpr int LANES = 8;

// The greatest of `count` numbers that are one; -inf for none.
static float greatest(const float* x, int64_t count) {
  float best[LANES];
  for (int i = 0; i < LANES; i++) best[i] = -INFINITY;
  int64_t first = 0;
  for (; first + LANES <= count; first += LANES)
    for (int i = 0; i < LANES; i++) best[i] = x[first + i] > best[i] ? x[first + i] : best[i];
  for (; first < count; first++) best[0] = x[first] > best[0] ? x[first] : best[0];
  for (int i = 1; i < LANES; i++) best[0] = best[i] > best[0] ? best[i] : best[0];
  return best[0];
}

// The first place of the greatest number; 0 where none is a number.
static int64_t likeliest(const float* logits, int64_t vocab_size) {
  const float most = greatest(logits, vocab_size);
  for (int64_t token = 0; token < vocab_size; token++)
    if (logits[token] == most) return token;
  return 0;
}

// The least of logits / temperature that the filters of a row keep, of which `most` is the greatest logit.
// `sorted` is memory for `most_sorted` logits.
static float least_kept(PwPool* pool, const PwDraftFilter& filter, const float* logits, int64_t vocab_size,
                        float temperature, float most, int64_t most_sorted, float* sorted) {
  float least = filter.min_p > 0.0f ? most / temperature + logf(filter.min_p) : -INFINITY;
  const bool is_limited = filter.top_k > 0 && filter.top_k < vocab_size;
  if (!is_limited && !(filter.top_p < 1.0f)) return least;
  int64_t count = is_limited ? filter.top_k : vocab_size;
  if (count > most_sorted) count = most_sorted;
  pw_largest(pool, logits, 1, vocab_size, vocab_size, count, sorted);
  if (is_limited) least = fmaxf(least, sorted[count - 1] / temperature);
  if (!(filter.top_p < 1.0f)) return least;
  const float* summed = is_limited ? sorted : logits;
  const int64_t num_summed = is_limited ? count : vocab_size;
  float total = 0.0f, part = 0.0f;
  for (int64_t i = 0; i < num_summed; i++) {
    const float away = (summed[i] - most) / temperature;
    if (away > -20.0f && summed[i] / temperature >= least) total += expf(away);
  }
  for (int64_t i = 0; i < count; i++) {
    part += expf((sorted[i] - most) / temperature);
    if (part >= filter.top_p * total) return fmaxf(least, sorted[i] / temperature);
  }
  return least;
}

// Choose a token for each sequence of the batch, by the states of its step.
static void choose(PwPool* pool, const PwModel& model, const PwBatch& batch, const PwDrafting& drafting,
                   int64_t* tokens) {
  const int64_t num_rows = batch.num_seqs, size = drafting.vocab_size;
  const PwLinear& vocabulary = *drafting.vocabulary;
  const bool is_plain = drafting.divisor == 1.0f && drafting.softcap == 0.0f;
  if (is_plain && drafting.num_choices == 0) {
    pw_argmax(pool, model.type, &vocabulary, drafting.states, num_rows, drafting.prepared, size, tokens);
    for (int64_t row = 0; row < num_rows; row++)
      if (tokens[row] < 0) tokens[row] = 0;
    return;
  }
  const int64_t stride = vocabulary.num_outputs;
  pw_linear(pool, model.type, &vocabulary, drafting.states, num_rows, drafting.prepared, drafting.logits, stride);
  if (!is_plain)
    pw_finish_logits(pool, drafting.logits, num_rows * stride, drafting.divisor, drafting.softcap);
  for (int64_t row = 0; row < num_rows; row++) tokens[row] = likeliest(drafting.logits + row * stride, size);
  for (int64_t i = 0; i < drafting.num_choices; i++) {
    PwChoice& choice = drafting.choices[i];
    const float* logits = drafting.logits + choice.row * stride;
    choice.token = tokens[choice.row];
    choice.least = least_kept(pool, drafting.filters[i], logits, size, choice.temperature, logits[choice.token],
                              drafting.most_sorted, drafting.sorted);
  }
  if (drafting.num_choices == 0) return;
  pw_choose(pool, drafting.choices, drafting.num_choices, drafting.logits, size, stride);
  for (int64_t i = 0; i < drafting.num_choices; i++) {
    tokens[drafting.choices[i].row] = drafting.choices[i].token;
    drafting.choices[i].position++;
  }
}

// Let each sequence go on with its draft.
static void advance(const PwModel& model, const PwDrafting& drafting, const PwBatch& batch,
                    const int64_t* tokens) {
  const PwDraftPlaces& places = drafting.places;
  for (int64_t seq = 0; seq < batch.num_seqs; seq++) {
    const int64_t position = ++places.positions[seq];
    places.token_ids[seq] = tokens[seq];
    places.seq_lens[seq] = position + 1;
    const int64_t block = batch.block_tables[seq * batch.table_stride + position / model.block_size];
    places.slot_mapping[seq] = block * model.block_size + position % model.block_size;
  }
}

void pw_draft(PwPool* pool, const PwModel* model, const PwBatch* batch, const PwScratch* scratch,
              const PwDrafting* drafting, int64_t first_draft, int64_t last_draft, int64_t* drafts) {
  for (int64_t number = first_draft; number < last_draft; number++) {
    int64_t* tokens = drafts + number * batch->num_seqs;
    if (number > 0) advance(*model, *drafting, *batch, tokens - batch->num_seqs);
    pw_step(pool, model, batch, scratch, 0, model->num_layers, drafting->states);
    choose(pool, *model, *batch, *drafting, tokens);
  }
}
