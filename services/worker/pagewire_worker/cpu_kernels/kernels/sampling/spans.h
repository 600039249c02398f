// Pieces of rows of logits for sums over them: only those in which anything is kept.
#pragma once

namespace PW_ISA {

// Logits / temperature of PANEL columns from `column` on; -inf for those that are not kept.
static inline V kept_logits(const PwChoice& choice, const float* logits, int64_t column, int64_t end) {
  const V nothing = set1(-__builtin_inff());
  alignas(64) float memory[PANEL];
  if (column >= end) return nothing;
  if (end - column < PANEL) {
    store(memory, nothing);
    __builtin_memcpy(memory, logits + column, sizeof(float) * (size_t)(end - column));
    logits = memory - column;
  }
  const V x = div(load(logits + column), set1(choice.temperature));
  return select_greater(set1(choice.least), x, nothing, x);
}

static void mark_spans_job(PwPool* pool, const void* arguments, int thread) {
  const SpanArguments& a = *(const SpanArguments*)arguments;
  const int64_t num_spans = ceil_div(a.vocab_size, SPAN), num_items = a.num_rows * num_spans;
  const Share items = share(pool, thread, num_items);
  for (int64_t item = items.first; item < items.last; item++) {
    const PwChoice& choice = a.choices[item / num_spans];
    const float* logits = a.logits + choice.row * a.stride;
    const int64_t first = item % num_spans * SPAN;
    V greatest = set1(-__builtin_inff());
    for (int64_t column = first; column < first + SPAN; column += PANEL)
      greatest = max(greatest, kept_logits(choice, logits, column, a.vocab_size));
    a.marks[item] = greatest_of(greatest) > -__builtin_inff();
  }
}

static void scale_spans_job(PwPool* pool, const void* arguments, int thread) {
  const SpanArguments& a = *(const SpanArguments*)arguments;
  const int64_t num_spans = ceil_div(a.vocab_size, SPAN);
  const Share spans = share(pool, thread, a.count);
  for (int64_t i = spans.first; i < spans.last; i++) {
    const int64_t row = a.places[i] / num_spans, first = a.places[i] % num_spans * SPAN;
    const PwChoice& choice = a.choices[row];
    const float* logits = a.logits + choice.row * a.stride;
    const V shift = set1(a.shifts[row]);
    for (int64_t j = 0; j < SPAN; j += PANEL)
      store(a.y + i * SPAN + j, sub(kept_logits(choice, logits, first + j, a.vocab_size), shift));
  }
}

}  // namespace PW_ISA
