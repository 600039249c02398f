// Tokens that are chosen by noise, the largest values of rows, and the noise of some words.
#pragma once
#include "abi.h"
#include "values.h"

static void run_sampling(PwPool* pool, Results& results) {
  constexpr int64_t ROWS = 5, VOCAB = 1003, WANTED = 40, NOISES = 4001;
  Numbers numbers(11);
  Floats logits = numbers.floats(ROWS * VOCAB);
  for (float& one : logits) one *= 3.0f;
  std::vector<PwChoice> choices;
  for (int64_t row = 0; row < ROWS; row++) {
    const uint64_t seed = (uint64_t)numbers.bits() << 40 | numbers.bits();
    const float least = row == 2 ? 1.0f : -INFINITY;
    choices.push_back({row, seed, row * 100000, row % 2, 0, 0.5f + (float)row / 4, least});
    for (int64_t token = 0; token < VOCAB; token++)
      if (logits[row * VOCAB + token] > logits[row * VOCAB + choices[row].token]) choices[row].token = token;
  }
  std::vector<PwChoice> alone = choices;
  pw_choose(pool, choices.data(), ROWS, logits.data(), VOCAB, VOCAB);
  Floats tokens, single;
  for (int64_t row = 0; row < ROWS; row++) {
    pw_choose(pool, &alone[row], 1, logits.data(), VOCAB, VOCAB);
    tokens.push_back((float)choices[row].token);
    single.push_back((float)alone[row].token);
  }
  Results::expect_equal("choose", tokens.data(), single.data(), ROWS);
  results.add("choose", tokens);
  Floats largest(ROWS * WANTED);
  pw_largest(pool, logits.data(), ROWS, VOCAB, VOCAB, WANTED, largest.data());
  results.add("largest", largest);
  std::vector<uint8_t> marks(ROWS);
  pw_mark_spans(pool, choices.data(), ROWS, logits.data(), VOCAB, VOCAB, marks.data());
  results.add("marked-spans", Floats(marks.begin(), marks.end()));
  const Floats shifts = numbers.floats(ROWS);
  const int64_t places[2] = {2, 3};
  Floats spans(2 * 1024);
  pw_scale_spans(pool, choices.data(), logits.data(), VOCAB, VOCAB, shifts.data(), places, 2, spans.data());
  for (float& one : spans) one = one == -INFINITY ? -1000.0f : one;
  results.add("scaled-spans", spans);
  std::vector<uint32_t> words(NOISES);
  for (uint32_t& one : words) one = numbers.bits() << 8;
  Floats exact(NOISES), brief(NOISES);
  pw_noise(pool, words.data(), NOISES, exact.data(), brief.data());
  results.add("noise", exact);
  results.add("brief-noise", brief);
}
