// Ranks with whole experts: each has some that lie together, and computes the rows of these. Then every column
// of the rows of all experts goes to one rank, which adds them in the order of a single rank.
#pragma once
#include "group.h"

namespace PW_ISA {

static inline int64_t largest(int64_t a, int64_t b) { return a > b ? a : b; }

// Rows of slices: [slices, num_rows, size], those of the first slice first. A row has the columns of all
// slices, of which `first_slice` is the first one here.
struct SlicedRows {
  float* numbers;
  int64_t num_rows, size, first_slice;

  float* at(int64_t row, int64_t column) const {
    return numbers + ((column / size - first_slice) * num_rows + row) * size + column % size;
  }
  // Call copy(column, count) for the runs of columns that lie together.
  template <class Copy>
  void for_each_run(Share columns, const Copy& copy) const {
    for (int64_t at = columns.first, count; at < columns.last; at += count) {
      count = least(size - at % size, columns.last - at);
      copy(at, count);
    }
  }
};

static inline void copy_floats(const float* from, float* to, int64_t count) {
  __builtin_memcpy(to, from, (size_t)count * sizeof(float));
}

// y, rows of all experts, = `columns` of the rows of the experts of all ranks, of which x are this one's.
// Each gives the others what they collect, in pieces of as many rows as a slot takes. Once a rank is lost y
// means nothing, and the group says so.
static inline void exchange_rows(PwPool* pool, int thread, PwGroup* group, const PwRouter& router,
                                 const Routes& routes, SlicedRows x, int64_t num_columns, Share columns,
                                 SlicedRows y) {
  const auto first_row = [&](int32_t rank) {
    return routes.all[(int64_t)rank * router.num_experts / group->size];
  };
  const int64_t piece = group->slot_bytes / (int64_t)sizeof(float) / num_columns;
  int64_t most = 0;
  for (int32_t rank = 0; rank < group->size; rank++)
    most = largest(most, first_row(rank + 1) - first_row(rank));
  for (int64_t begin = 0; begin < most; begin += piece) {
    const auto num_rows = [&](int32_t rank) {
      return largest(0, least(piece, first_row(rank + 1) - first_row(rank) - begin));
    };
    const auto rows_of = [&](int32_t rank) { return share(pool, thread, num_rows(rank)); };
    const PwGroup before = *group;  // its turn, which `meet` advances
    const Share own = rows_of(group->rank);
    for (int64_t row = own.first; row < own.last; row++) {
      float* slot = (float*)before.slot(group->rank) + row * num_columns;
      const auto give = [&](int64_t column, int64_t count) {
        copy_floats(x.at(begin + row, column), slot + column, count);
      };
      x.for_each_run({0, columns.first}, give);
      x.for_each_run({columns.last, num_columns}, give);
      y.for_each_run(columns, [&](int64_t column, int64_t count) {
        copy_floats(x.at(begin + row, column), y.at(first_row(group->rank) + begin + row, column), count);
      });
    }
    pool->barrier();
    if (thread == 0) meet(group, num_rows(group->rank) * num_columns * (int64_t)sizeof(float));
    pool->barrier();
    for (int32_t rank = 0; rank < group->size; rank++) {
      if (rank == group->rank) continue;
      const Share theirs = rows_of(rank);
      for (int64_t row = theirs.first; row < theirs.last; row++) {
        const float* slot = (const float*)before.slot(rank) + row * num_columns;
        y.for_each_run(columns, [&](int64_t column, int64_t count) {
          copy_floats(slot + column, y.at(first_row(rank) + begin + row, column), count);
        });
      }
    }
  }
}

}  // namespace PW_ISA
