// Mixtures of experts (Shazeer et al., 2017): which experts compute a token, and the sum of theirs.
//
// The rows of all experts lie together, sorted by expert and then by token. A token adds the rows of
// its experts in the order in which they were chosen, so its sum does not depend on other tokens.
#pragma once

namespace PW_ISA {

// Where a step keeps the experts of its tokens.
struct Routes {
  float* weights;   // [tokens, chosen + 1]
  int32_t* chosen;  // [tokens, chosen]
  int32_t* rows;    // [tokens, chosen], among those of all experts
  int64_t* all;     // [experts + 1], first rows of all experts
  int64_t* starts;  // [slices * experts here + 1], first rows of the experts here among theirs

  Routes(const StepArguments& a, const PwRouter& router)
      : weights((float*)a.scratch->buffers[PW_WEIGHTS]),
        chosen((int32_t*)a.scratch->buffers[PW_CHOSEN]),
        rows(chosen + a.batch->num_tokens * router.num_chosen),
        all((int64_t*)a.scratch->buffers[PW_STARTS]),
        starts(all + PW_MOST_EXPERTS + 1) {}
  int64_t num_rows(const PwRouter& router) const { return starts[router.num_own]; }
};

// NaN for a number that is not finite: exp alone would hide it.
static inline float sigmoid(float x) {
  alignas(64) float lanes[PANEL];
  store(lanes, div(set1(1.0f), add(set1(1.0f), exp(set1(-x)))));
  return lanes[0] + x * 0.0f;
}

// The scores of `count` experts from their products; NaN if one is not finite. Sums ascend.
static inline void score_experts(const float* products, int64_t count, bool is_sigmoid,
                                 float* scores) {
  if (is_sigmoid) {
    for (int64_t e = 0; e < count; e++) scores[e] = sigmoid(products[e]);
    return;
  }
  float greatest = products[0], total = 0.0f;
  for (int64_t e = 1; e < count; e++) greatest = products[e] > greatest ? products[e] : greatest;
  alignas(64) float lanes[PANEL];
  for (int64_t e = 0; e < count; e += PANEL) {
    const int64_t size = least(PANEL, count - e);
    for (int64_t i = 0; i < size; i++) {
      lanes[i] = products[e + i] - greatest;
      total += products[e + i] * 0.0f;
    }
    for (int64_t i = size; i < PANEL; i++) lanes[i] = 0.0f;
    store(lanes, exp(load(lanes)));
    for (int64_t i = 0; i < size; i++) total += scores[e + i] = lanes[i];
  }
  for (int64_t e = 0; e < count; e++) scores[e] /= total;
}

// The first of the greatest of `count` values.
static inline int64_t place_of_greatest(const float* values, int64_t count) {
  int64_t best = 0;
  for (int64_t i = 1; i < count; i++)
    if (values[i] > values[best]) best = i;
  return best;
}

static constexpr float NOT_CHOSEN = -__builtin_inff();

// Keep the choices of the best groups; those of others become NOT_CHOSEN.
static inline void choose_groups(const PwRouter& router, float* choices) {
  const int64_t size = router.num_experts / router.num_groups;
  float sums[PW_MOST_EXPERTS];
  bool is_kept[PW_MOST_EXPERTS] = {};
  for (int64_t g = 0; g < router.num_groups; g++) {
    float group[PW_MOST_EXPERTS];
    __builtin_memcpy(group, choices + g * size, (size_t)size * sizeof(float));
    sums[g] = 0.0f;
    for (int64_t i = 0; i < router.group_best; i++) {
      const int64_t best = place_of_greatest(group, size);
      sums[g] += group[best];
      group[best] = NOT_CHOSEN;
    }
  }
  for (int64_t i = 0; i < router.num_chosen_groups; i++) {
    const int64_t best = place_of_greatest(sums, router.num_groups);
    is_kept[best] = true;
    sums[best] = NOT_CHOSEN;
  }
  for (int64_t e = 0; e < router.num_experts; e++)
    if (!is_kept[e / size]) choices[e] = NOT_CHOSEN;
}

// Choose the experts of one token. With a product that is not finite, weights are not finite either.
static inline void route(const PwRouter& router, const float* products, float* weights,
                         int32_t* chosen) {
  const int64_t count = router.num_experts, num_chosen = router.num_chosen;
  float scores[PW_MOST_EXPERTS], choices[PW_MOST_EXPERTS];
  score_experts(products, count, router.is_sigmoid, scores);
  for (int64_t e = 0; e < count; e++)
    choices[e] = router.choice_bias == nullptr ? scores[e] : scores[e] + router.choice_bias[e];
  if (router.num_chosen_groups < router.num_groups) choose_groups(router, choices);
  float total = 0.0f;
  for (int64_t i = 0; i < num_chosen; i++) {
    const int64_t best = place_of_greatest(choices, count);
    choices[best] = NOT_CHOSEN;
    chosen[i] = (int32_t)best;
    weights[i] = scores[best];
    total += scores[best];
  }
  // As small a number as transformers adds, so that a sum of 0 gives weights of 0.
  const float divisor = router.is_normalised ? total + 1e-20f : 1.0f;
  for (int64_t i = 0; i < num_chosen; i++) weights[i] = weights[i] / divisor * router.factor;
  weights[num_chosen] = router.has_gate ? sigmoid(products[count]) : 1.0f;
}

static inline void route_share(const PwRouter& router, const float* products, int64_t stride,
                               const Routes& routes, Share tokens) {
  for (int64_t t = tokens.first; t < tokens.last; t++)
    route(router, products + t * stride, routes.weights + t * (router.num_chosen + 1),
          routes.chosen + t * router.num_chosen);
}

// Give every chosen expert its row. One thread does it: it is a few operations per row. The rows of each slice
// of the experts here follow those of the slice before in the same order.
static inline void sort_rows(const PwRouter& router, int64_t num_tokens, int32_t num_slices,
                             const Routes& routes) {
  int64_t next[PW_MOST_EXPERTS] = {};
  const int64_t count = num_tokens * router.num_chosen;
  for (int64_t i = 0; i < count; i++) next[routes.chosen[i]]++;
  int64_t first = 0;
  for (int64_t e = 0; e < router.num_experts; e++) {
    const int64_t size = next[e];
    if (router.counts != nullptr) router.counts[e] += size;
    routes.all[e] = next[e] = first;
    first += size;
  }
  routes.all[router.num_experts] = first;
  const int64_t* own = routes.all + router.first_expert;
  for (int64_t e = 0; e <= router.num_own; e++) routes.starts[e] = own[e] - own[0];
  for (int64_t e = router.num_own + 1; e <= num_slices * router.num_own; e++)
    routes.starts[e] = routes.starts[e - router.num_own] + routes.num_rows(router);
  for (int64_t i = 0; i < count; i++) routes.rows[i] = (int32_t)next[routes.chosen[i]]++;
}

// Copy the rows of tokens to those of their experts that are here, [size] bytes each.
static inline void spread_rows(const void* from, void* to, int64_t size, const PwRouter& router,
                               const Routes& routes, Share tokens) {
  const int64_t first = routes.all[router.first_expert], num_rows = routes.num_rows(router);
  for (int64_t t = tokens.first; t < tokens.last; t++)
    for (int64_t i = 0; i < router.num_chosen; i++) {
      const int64_t row = routes.rows[t * router.num_chosen + i] - first;
      if (row < 0 || row >= num_rows) continue;
      __builtin_memcpy((char*)to + row * size, (const char*)from + t * size, (size_t)size);
    }
}

// y [rows, num_parts, max_rank] = scaling * (down x) for the rows of this thread's choices, numbered by
// token and then by place; `row_slots` gets the adapter slots of the rows, -1 for an expert without one.
template <class T>
static void lower_expert_share(const PwAdapters* adapters, const int64_t* slots,
                               const PwRouter& router, const Routes& routes, const void* x,
                               Share choices, int64_t* row_slots, float* y) {
  for (int64_t i = choices.first; i < choices.last; i++) {
    const PwAdapters& own = adapters[routes.chosen[i]];
    const int64_t slot = slots[i / router.num_chosen], row = routes.rows[i];
    row_slots[row] = has_adapter(own, slot) ? slot : -1;
    if (row_slots[row] >= 0) lower_row<T>(own, slot, x, row, y);
  }
}

// y [tokens, size] += factor * sum of the weighted rows of x, and of the weighted `shared`. Other columns
// than `columns` get -0 for the rows of x: another rank collects them, and -0 + y is y.
static inline void collect_rows(const PwRouter& router, const Routes& routes, const float* x,
                                const float* shared, float factor, int64_t size, Share columns,
                                Share tokens, bool is_added, float* y) {
  const int64_t num_chosen = router.num_chosen;
  for (int64_t t = tokens.first; t < tokens.last; t++) {
    const float* weights = routes.weights + t * (num_chosen + 1);
    const int32_t* rows = routes.rows + t * num_chosen;
    for (int64_t k = 0; k < size; k += PANEL) {
      const bool is_here = k >= columns.first && k < columns.last;
      V sum = is_here ? zero() : set1(-0.0f);
      for (int64_t i = 0; i < num_chosen && is_here; i++)
        sum = fma(load(x + rows[i] * size + k), set1(weights[i]), sum);
      if (router.has_shared)
        sum = fma(load(shared + t * size + k), set1(weights[num_chosen]), sum);
      float* out = y + t * size + k;
      const V part = mul(sum, set1(factor));
      store(out, is_added ? add(load(out), part) : part);
    }
  }
}

}  // namespace PW_ISA
