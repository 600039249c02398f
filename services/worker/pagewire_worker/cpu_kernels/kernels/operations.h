// The operations of which layers are made. Each is computed by all threads of a pool together.
#pragma once

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

// y += factor * norm(x); x is changed.
static void add_norm_share(PwPool* pool, int thread, float* x, const PwNorm& norm, float factor,
                           int64_t num_rows, float* y) {
  Share rows = share(pool, thread, num_rows);
  for (int64_t row = rows.first; row < rows.last; row++)
    normalise(x + row * norm.size, norm, x + row * norm.size);
  for (int64_t i = rows.first * norm.size; i < rows.last * norm.size; i += PANEL)
    store(y + i, add(load(y + i), mul(load(x + i), set1(factor))));
}

// Whether each thread reads and writes the same rows in every operation of this sort.
static inline bool goes_by_rows(const PwOperation& operation) {
  switch (operation.kind) {
    case PW_NORM:
    case PW_ROUND:
    case PW_ADD_NORM:
    case PW_PREPARE:
    case PW_ROTATE: return true;
    default: return false;
  }
}

// Compute this thread's share of an operation; `phase` is its number in the job.
template <class T>
static void operation_share(PwPool* pool, int phase, int thread, const StepArguments& a,
                            const PwOperation& o) {
  const int64_t num_tokens = a.batch->num_tokens;
  void *x = a.scratch->buffers[o.input], *y = a.scratch->buffers[o.output];
  void* prepared = a.scratch->buffers[PW_PREPARED];
  Share tokens = share(pool, thread, num_tokens);
  switch (o.kind) {
    case PW_NORM: return norm_share<T>(pool, thread, (float*)x, *o.norm, num_tokens, y);
    case PW_ROUND:
      return round_share<T>(pool, thread, (float*)x, num_tokens, a.model->hidden, y);
    case PW_ADD_NORM:
      return add_norm_share(pool, thread, (float*)x, *o.norm, o.factor, num_tokens, (float*)y);
    case PW_PREPARE: return prepare_share<T>(pool, thread, *o.linear, x, num_tokens, y);
    case PW_STORE:
      return store_linear<T>(pool, phase, thread, *o.linear, {x, prepared}, num_tokens, (float*)y,
                             o.linear->num_outputs);
    case PW_ADD:
      return add_linear<T>(pool, phase, thread, *o.linear, {x, prepared}, num_tokens, o.factor,
                           (float*)y);
    case PW_GATE:
      return gate_up_linear<T>(pool, phase, thread, *o.linear, {x, prepared}, num_tokens,
                               o.activation, y);
    case PW_ACTIVATE:
      return activate_linear<T>(pool, phase, thread, *o.linear, {x, prepared}, num_tokens,
                                o.activation, y);
    case PW_ROTATE:
      return rotate_share<T>(*a.model, *o.attention, *a.batch, (float*)x,
                             (typename T::Element*)y, tokens.first, tokens.last);
    case PW_ATTEND:
      return attend_share<T>(pool, phase, thread, *a.model, *o.attention, *a.batch, x, y, a.tiles,
                             a.num_tiles);
  }
}

}  // namespace PW_ISA
