// Finds the greatest output of a linear layer per row, without storing the outputs.
#pragma once

namespace PW_ISA {

// The best columns that one thread has seen of one row, lane by lane.
struct Best {
  float values[PANEL];
  float columns[PANEL];  // whole numbers below 2^24
  float strange[PANEL];  // 0, or NaN once a column was not finite
};

static inline void reset(Best& best) {
  store(best.values, set1(-__builtin_inff()));
  store(best.columns, zero());
  store(best.strange, zero());
}

static inline void merge(const Best& best, float* value, float* column) {
  for (int lane = 0; lane < PANEL; lane++) {
    float v = best.values[lane], c = best.columns[lane];
    if (v > *value || (v == *value && c < *column)) {
      *value = v;
      *column = c;
    }
  }
}

// Keep the greatest columns of the rows in this thread's share of a product.
template <class T>
static void argmax_share(PwPool* pool, int thread, const PwLinear& linear, Rows x,
                         int64_t num_rows, int64_t num_columns, const LowRank* low, Best* mine) {
  alignas(64) float lanes[PANEL];
  for (int lane = 0; lane < PANEL; lane++) lanes[lane] = (float)lane;
  const V lane_numbers = load(lanes), nothing = set1(-__builtin_inff());
  const AllRows rows(num_rows);
  linear_share<T>(pool, 0, thread, rows.of(linear, low), x, false, [=](const PwLinear&) {
    return [=](int64_t row, int64_t panel, int num_panels, float* sums) {
        Best& best = mine[row];
        V values = load(best.values), columns = load(best.columns);
        V strange = load(best.strange);
        for (int n = 0; n < num_panels; n++) {
          int64_t first = (panel + n) * PANEL;
          V sum = load(sums + n * PANEL);
          strange = fma(sum, zero(), strange);
          if (first + PANEL > num_columns)
            sum = in_range(sum, nothing, 0, (int)(num_columns - first));
          V numbers = add(lane_numbers, set1((float)first));
          // Items come in any order: of equal values the first column wins.
          V equal = select_greater(values, sum, columns, min(numbers, columns));
          columns = select_greater(sum, values, numbers, equal);
          values = max(sum, values);
        }
        store(best.values, values);
        store(best.columns, columns);
        store(best.strange, strange);
    };
  });
}

template <class T>
static void argmax_job(PwPool* pool, const void* arguments, int thread) {
  const LinearArguments& a = *(const LinearArguments*)arguments;
  Best* mine = (Best*)pool->memory(thread, (size_t)a.num_rows * sizeof(Best), JOB);
  for (int64_t row = 0; row < a.num_rows; row++) reset(mine[row]);
  Rows x = prepare_rows<T>(pool, thread, a);
  LowRank memory;
  const LowRank* low = lower_rows<T>(pool, thread, a, &memory);
#define PW_CALL(K) \
  argmax_share<K>(pool, thread, *a.linear, x, a.num_rows, a.stride, low, mine)
  PW_BY_KIND(*a.linear, PW_CALL)
#undef PW_CALL
  pool->barrier();
  if (thread != 0) return;
  for (int64_t row = 0; row < a.num_rows; row++) {
    float value = -__builtin_inff(), column = 0.0f, strange = 0.0f;
    for (int other = 0; other < pool->num_threads; other++) {
      const Best& best = ((const Best*)pool->memory(other, 0, JOB))[row];
      merge(best, &value, &column);
      strange += sum_of(load(best.strange));
    }
    ((int64_t*)a.y)[row] = strange == 0.0f ? (int64_t)column : -1;
  }
}

}  // namespace PW_ISA
