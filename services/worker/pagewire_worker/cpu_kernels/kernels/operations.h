// The operations of which layers are made. Each is computed by all threads of a pool together.
#pragma once
#include "group.h"

namespace PW_ISA {

template <class T>
static void norm_share(PwPool* pool, int thread, const float* x, const PwNorm& norm,
                       int64_t num_rows, void* y) {
  Share rows = share(pool, thread, num_rows);
  for (int64_t row = rows.first; row < rows.last; row++)
    normalise(x + row * norm.size, norm, (typename T::Element*)y + row * norm.size);
}

template <class T>
static void round_share(PwPool* pool, int thread, const float* x, int64_t num_rows, int64_t size,
                        void* y) {
  Share rows = share(pool, thread, num_rows);
  for (int64_t i = rows.first * size; i < rows.last * size; i += PANEL)
    store((typename T::Element*)y + i, load(x + i));
}

// y += factor * norm(x), of rows of `size` values; x is changed. Without a norm y += factor * x.
static void add_norm_share(PwPool* pool, int thread, float* x, const PwNorm* norm, int64_t size,
                           float factor, int64_t num_rows, float* y) {
  Share rows = share(pool, thread, num_rows);
  if (norm != nullptr)
    for (int64_t row = rows.first; row < rows.last; row++)
      normalise(x + row * size, *norm, x + row * size);
  for (int64_t i = rows.first * size; i < rows.last * size; i += PANEL)
    store(y + i, add(load(y + i), mul(load(x + i), set1(factor))));
}

// The sum of `count` parts that lie `stride` numbers apart.
static inline V sum_at(const float* x, int64_t stride, int32_t count) {
  V parts[PW_MOST_SLICES];
  for (int32_t i = 0; i < count; i++) parts[i] = load(x + i * stride);
  return sum_of_parts(parts, count, [](V a, V b) { return add(a, b); });
}

// y [slices, num_rows, size] = x [num_rows, slices * size]
template <class Element>
static inline void slice_share(PwPool* pool, int thread, const void* x, int64_t num_rows, int64_t size,
                               int32_t num_slices, void* y) {
  const Share rows = share(pool, thread, num_rows);
  const size_t num_bytes = (size_t)size * sizeof(Element);
  for (int64_t row = rows.first; row < rows.last; row++)
    for (int32_t slice = 0; slice < num_slices; slice++)
      __builtin_memcpy((char*)y + (slice * num_rows + row) * num_bytes,
                       (const char*)x + (row * num_slices + slice) * num_bytes, num_bytes);
}

// x [num_rows, size] = the sum of x [slices, num_rows, size]
static inline void sum_slices_share(float* x, int64_t num_rows, int64_t size, int32_t num_slices,
                                    Share rows) {
  for (int64_t i = rows.first * size; i < rows.last * size; i += PANEL)
    store(x + i, sum_at(x + i, num_rows * size, num_slices));
}

// x = the sum of x of all ranks, for `count` values, a multiple of 16. Once a rank is lost
// x means nothing, and the group says so.
static inline void reduce_share(PwPool* pool, int thread, PwGroup* group, float* x, int64_t count) {
  const int64_t longest = group->slot_bytes / (int64_t)sizeof(float);
  for (int64_t first = 0; first < count; first += longest) {
    const int64_t num = least(longest, count - first);
    const Share part = share(pool, thread, num / PANEL);
    const PwGroup before = *group;  // its turn, which `meet` advances
    float* own = (float*)before.slot(group->rank);
    for (int64_t i = part.first * PANEL; i < part.last * PANEL; i += PANEL)
      store(own + i, load(x + first + i));
    pool->barrier();
    if (thread == 0) meet(group, num * (int64_t)sizeof(float));
    pool->barrier();
    for (int64_t i = part.first * PANEL; i < part.last * PANEL; i += PANEL)
      store(x + first + i, sum_at((const float*)before.slot(0) + i, longest, group->size));
  }
}

// Whether each thread reads and writes the same rows in every operation of this sort.
static inline bool goes_by_rows(const PwOperation& operation) {
  switch (operation.kind) {
    case PW_NORM:
    case PW_ROUND:
    case PW_ADD_NORM:
    case PW_PREPARE:
    case PW_ROTATE:
    case PW_ROUTE:
    case PW_SPREAD:
    case PW_COLLECT:
    case PW_LATENT_KEY:
    case PW_LATENT_QUERY:
    case PW_SUM_SLICES:
    case PW_LOWER: return true;
    default: return false;
  }
}

// Whether an operation has anything to do in a step.
static inline bool is_computed(const PwOperation& operation, const PwBatch& batch) {
  const bool is_lower = operation.kind == PW_LOWER || operation.kind == PW_EXPERT_LOWER;
  return !is_lower || batch.adapter_slots != nullptr;
}

// The input of a product.
static inline Rows input_rows(const StepArguments& a, const PwOperation& o, int prepared) {
  const void* x = a.scratch->buffers[o.input];
  if (o.linear == nullptr) return {x, a.scratch->buffers[prepared]};
  return rows_for(*o.linear, x, a.scratch->buffers[prepared], a.batch->num_tokens);
}

// Compute this thread's share of an operation on the rows of experts, or between them and tokens.
template <class T>
static void expert_share(PwPool* pool, int phase, int thread, const StepArguments& a,
                         const PwOperation& o) {
  const PwRouter& router = *o.router;
  const Routes routes(a, router);
  const int64_t num_tokens = a.batch->num_tokens, hidden = a.model->hidden;
  const int64_t num_rows = num_tokens * router.num_chosen;  // of the experts of all ranks
  const Share tokens = share(pool, thread, num_tokens);
  void *x = a.scratch->buffers[o.input], *y = a.scratch->buffers[o.output];
  void* prepared = a.scratch->buffers[PW_EXPERT_PREPARED];
  const int64_t* slots = a.batch->adapter_slots;
  int64_t* row_slots = (int64_t*)a.scratch->buffers[PW_EXPERT_SLOTS];
  const LowRank low = {o.adapters, row_slots, (const float*)a.scratch->buffers[PW_EXPERT_LOW],
                       a.model->type};
  const bool has_adapters = slots != nullptr && o.adapters != nullptr;
  const Group group = {o.linear, routes.starts, router.num_own * o.num_slices,
                       has_adapters ? &low : nullptr};
  const Rows rows = input_rows(a, o, PW_EXPERT_PREPARED);
  const Share columns = {o.first_column, o.first_column + o.num_columns};
  switch (o.kind) {
    case PW_ROUTE:
      return route_share(router, (float*)x, o.linear->num_outputs, routes, tokens);
    case PW_SORT:
      if (thread == 0) sort_rows(router, num_tokens, o.num_slices, routes);
      return;
    case PW_SPREAD:
      spread_rows(x, y, hidden * (int64_t)sizeof(typename T::Element), router, routes, tokens);
      if (is_prepared(*o.linear))
        spread_rows(a.scratch->buffers[PW_PREPARED], prepared, prepared_stride(*o.linear), router,
                    routes, tokens);
      return;
    case PW_EXPERT_LOWER: {
      const Share choices = share(pool, thread, num_rows);
      return lower_expert_share<T>(o.adapters, slots, router, routes, x, choices, row_slots,
                                   (float*)y);
    }
    case PW_EXPERT_PREPARE:
      return prepare_share<T>(pool, thread, *o.linear, x, routes.num_rows(router) * o.num_slices, y);
    case PW_EXPERT_STORE:
      return store_linear<T>(pool, phase, thread, group, rows, (float*)y, o.linear->num_outputs);
    case PW_EXPERT_GATE:
      return gate_up_linear<T>(pool, phase, thread, group, rows, o.activation, o.num_cuts, y);
    case PW_EXPERT_EXCHANGE:
      return exchange_rows(pool, thread, a.model->group, router, routes,
                           {(float*)x, routes.num_rows(router), hidden, 0}, o.num_slices * hidden, columns,
                           {(float*)y, num_rows, hidden, columns.first / hidden});
    case PW_COLLECT:
      for (int32_t slice = 0; slice < o.num_slices; slice++)
        collect_rows(router, routes, (float*)x + slice * num_rows * hidden,
                     (float*)a.scratch->buffers[PW_PRODUCTS] + slice * num_tokens * hidden, o.factor,
                     hidden, columns, tokens, o.output == PW_RESIDUAL, (float*)y + slice * num_tokens * hidden);
      return;
  }
}

// Compute this thread's share of an operation; `phase` is its number in the job.
template <class T>
static void operation_share(PwPool* pool, int phase, int thread, const StepArguments& a,
                            const PwOperation& o) {
  const int64_t num_tokens = a.batch->num_tokens;
  void *x = a.scratch->buffers[o.input], *y = a.scratch->buffers[o.output];
  const Share tokens = share(pool, thread, num_tokens);
  const AllRows all(num_tokens, o.num_slices);
  const int64_t* slots = a.batch->adapter_slots;
  const LowRank low = {o.adapters, slots, (const float*)a.scratch->buffers[PW_LOW], a.model->type};
  const bool has_adapters = slots != nullptr && o.adapters != nullptr;
  const Group group = {o.linear, all.starts, o.num_slices, has_adapters ? &low : nullptr};
  const Rows rows = input_rows(a, o, PW_PREPARED);
  switch (o.kind) {
    case PW_NORM: return norm_share<T>(pool, thread, (float*)x, *o.norm, num_tokens, y);
    case PW_ROUND:
      return round_share<T>(pool, thread, (float*)x, num_tokens, a.model->hidden, y);
    case PW_ADD_NORM:
      return add_norm_share(pool, thread, (float*)x, o.norm, a.model->hidden, o.factor, num_tokens,
                            (float*)y);
    case PW_REDUCE:
      return reduce_share(pool, thread, a.model->group, (float*)x, num_tokens * a.model->hidden);
    case PW_SLICE:
      return slice_share<typename T::Element>(pool, thread, x, num_tokens, o.linear->num_inputs,
                                              o.num_slices, y);
    case PW_SUM_SLICES:
      return sum_slices_share((float*)x, num_tokens, a.model->hidden, o.num_slices, tokens);
    case PW_PREPARE:
      return prepare_share<T>(pool, thread, *o.linear, x, num_tokens * o.num_slices, y);
    case PW_STORE:
      return store_linear<T>(pool, phase, thread, group, rows, (float*)y + o.first_column,
                             o.num_columns);
    case PW_ADD: return add_linear<T>(pool, phase, thread, group, rows, o.factor, (float*)y);
    case PW_GATE:
      return gate_up_linear<T>(pool, phase, thread, group, rows, o.activation, o.num_cuts, y);
    case PW_ACTIVATE:
      return activate_linear<T>(pool, phase, thread, group, rows, o.activation, o.num_cuts, y);
    case PW_ROTATE:
      return rotate_share<T>(*a.model, *o.attention, *a.batch, (float*)x,
                             (typename T::Element*)y, tokens.first, tokens.last);
    case PW_ATTEND:
      return attend_share<T>(pool, phase, thread, *a.model, *o.attention, *a.batch, x, y, a.tiles,
                             a.num_tiles);
    case PW_LOWER: return lower_share<T>(*o.adapters, slots, x, tokens, (float*)y);
    case PW_LATENT_KEY:
    case PW_LATENT_QUERY:
    case PW_ABSORB:
    case PW_EXPAND: return latent_share<T>(pool, phase, thread, a, o);
    default: return expert_share<T>(pool, phase, thread, a, o);
  }
}

}  // namespace PW_ISA
