// Threads that run one function together, with barriers and shared counters inside it.
#pragma once
#include <atomic>

#include "abi.h"
#include "types.h"

struct Kernels;

// A function that all threads of a pool call, each with its number.
typedef void (*PoolJob)(PwPool* pool, const void* arguments, int thread);


// Uses of a thread's memory that may overlap.
enum PoolMemory { JOB = 0, PRODUCT = 1, MERGE = 2, NUM_POOL_MEMORIES = 3 };

struct PwPool {
  int num_threads;  // of the current job
  int most_threads;
  const Kernels* kernels;

  // Run `job`, which has `num_phases` phases, and return once all its threads are done. These are all
  // threads if `is_shared`, else only the caller's. Only one caller at a time.
  void run(PoolJob job, const void* arguments, int num_phases, bool is_shared);
  // Wait until all threads have reached the barrier.
  void barrier();
  // Return the next of the `count` items of a phase for one thread, or `count` if none is left. Each
  // phase of a job has its own number. A thread first takes its own range, then items of others.
  int64_t next(int phase, int thread, int64_t count) {
    for (int turn = 0; turn < num_threads; turn++) {
      int owner = (thread + turn) % num_threads;
      int64_t taken = counters[phase * num_threads + owner].fetch_add(1, std::memory_order_relaxed);
      int64_t item = count * owner / num_threads + taken;
      if (item < count * (owner + 1) / num_threads) return item;
    }
    return count;
  }
  // Return the numbers 0, 1, 2, ... of a phase, each to one thread, in the order of calls.
  int64_t take(int phase) {
    return counters[phase * num_threads].fetch_add(1, std::memory_order_relaxed);
  }
  // Wait until `counter` has a value that another thread of the job stores.
  void await(const std::atomic<int64_t>& counter, int64_t value);
  // Memory of one thread for one use, at least `size` bytes, aligned to a cache line, kept between jobs.
  void* memory(int thread, size_t size, PoolMemory use);

  std::atomic<int64_t>* counters;  // [phases, threads]
  int max_phases;

  struct Threads;
  Threads* threads;
};

PwPool* new_pool(const Kernels* kernels, int num_threads);
void free_pool(PwPool* pool);
