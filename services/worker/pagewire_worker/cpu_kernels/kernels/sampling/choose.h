// Chooses a token per row of logits: the greatest of logits / temperature + noise, the first of equal
// ones. The noise of a token is computed exactly only if a brief form says that it may win.
#pragma once

namespace PW_ISA {

// Logits / temperature of NOISE_TOKENS tokens of a row from `first` on; -inf for those that are left
// out. Returns the greatest.
static inline float scaled_logits(const PwChoice& choice, const float* logits, int64_t first,
                                  int64_t end, float* x) {
  V greatest = set1(-__builtin_inff());
  for (int i = 0; i < NOISE_TOKENS; i += PANEL) {
    const V one = kept_logits(choice, logits, first + i, end);
    greatest = max(greatest, one);
    store(x + i, one);
  }
  return greatest_of(greatest);
}

// Far more than the brief noise and two roundings of a sum can be wrong.
static inline float slack_of(float sum) {
  return 4.0f * BRIEF_ERROR + 1e-6f * (sum < 0.0f ? -sum : sum);
}

// Let the tokens from `first` to `end` of a row win over `best`; `first` is a multiple of 4.
static void choose_among(const PwChoice& choice, const float* logits, int64_t first, int64_t end,
                         PwBest* best) {
  const NoiseKey key = {(uint32_t)choice.seed, (uint32_t)(choice.seed >> 32),
                        (uint32_t)choice.position, (uint32_t)choice.choice};
  alignas(64) float x[NOISE_TOKENS], noise[4][WORDS], sums[NOISE_TOKENS];
  for (int64_t token = first; token < end; token += NOISE_TOKENS) {
    const float bound = best->sum - slack_of(best->sum);
    if (scaled_logits(choice, logits, token, end, x) + MOST_NOISE < bound) continue;
    Words words[4];
    random_words(key, (uint32_t)token, words);
    for (int k = 0; k < 4; k++) {
      const WordFloats one = brief_noise(words[k]);
      __builtin_memcpy(noise[k], &one, sizeof one);
    }
    for (int j = 0; j < WORDS; j++)
      for (int k = 0; k < 4; k++) sums[4 * j + k] = noise[k][j];
    V greatest = set1(-__builtin_inff());
    for (int i = 0; i < NOISE_TOKENS; i += PANEL) {
      const V sum = add(load(x + i), load(sums + i));
      greatest = max(greatest, sum);
      store(sums + i, sum);
    }
    if (!(greatest_of(greatest) >= bound)) continue;
    for (int i = 0; i < NOISE_TOKENS; i++) {
      if (!(sums[i] >= bound)) continue;
      const float sum = x[i] + exact_noise(words[i & 3][i >> 2]);
      if (sum > best->sum || (sum == best->sum && token + i < best->token)) *best = {sum, token + i};
    }
  }
}

static void choose_job(PwPool* pool, const void* arguments, int thread) {
  const ChooseArguments& a = *(const ChooseArguments*)arguments;
  const int64_t num_items = a.num_rows * a.num_parts;
  const int64_t size = ceil_div(ceil_div(a.vocab_size, a.num_parts), NOISE_TOKENS) * NOISE_TOKENS;
  for (int64_t item; (item = pool->next(0, thread, num_items)) < num_items;) {
    const int64_t row = item / a.num_parts, first = item % a.num_parts * size;
    const PwChoice& choice = a.choices[row];
    const float* logits = a.logits + choice.row * a.stride;
    const NoiseKey key = {(uint32_t)choice.seed, (uint32_t)(choice.seed >> 32),
                          (uint32_t)choice.position, (uint32_t)choice.choice};
    // The likeliest token is a bound from the start.
    const int64_t likely = choice.token;
    a.best[item] = {logits[likely] / choice.temperature + noise_of(key, likely), likely};
    choose_among(choice, logits, first, least(first + size, a.vocab_size), &a.best[item]);
  }
}

static void noise_job(PwPool* pool, const void* arguments, int thread) {
  const NoiseArguments& a = *(const NoiseArguments*)arguments;
  const Share groups = share(pool, thread, ceil_div(a.count, WORDS));
  for (int64_t i = groups.first * WORDS; i < least(groups.last * WORDS, a.count); i += WORDS) {
    const size_t count = (size_t)least(WORDS, a.count - i);
    Words words = {};
    __builtin_memcpy(&words, a.words + i, 4 * count);
    const WordFloats brief = brief_noise(words);
    __builtin_memcpy(a.brief + i, &brief, 4 * count);
    for (size_t lane = 0; lane < count; lane++) a.exact[i + (int64_t)lane] = exact_noise(words[lane]);
  }
}

}  // namespace PW_ISA
