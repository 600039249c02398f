// Threads that run one function together, with barriers and shared counters inside it.
#pragma once
#include <atomic>

#include "abi.h"
#include "types.h"

struct Kernels;

// A function that all threads of a pool call, each with its number.
typedef void (*PoolJob)(PwPool* pool, const void* arguments, int thread);


struct PwPool {
  int num_threads;  // of the job that runs
  int most_threads;
  const Kernels* kernels;

  // Run `job`, which has so many phases, and return once all its threads are done: all there are, or
  // the caller's alone for what is too little to share. Only one caller at a time.
  void run(PoolJob job, const void* arguments, int num_phases, bool is_shared);
  // Wait until all threads are here.
  void barrier();
  // Next item of the `count` of a phase for one thread, or `count` when none is left; each phase of
  // a job has a number of its own. A thread has a range to itself, and helps others after that.
  int64_t next(int phase, int thread, int64_t count) {
    for (int turn = 0; turn < num_threads; turn++) {
      int owner = (thread + turn) % num_threads;
      int64_t taken = counters[phase * num_threads + owner].fetch_add(1, std::memory_order_relaxed);
      int64_t item = count * owner / num_threads + taken;
      if (item < count * (owner + 1) / num_threads) return item;
    }
    return count;
  }
  // Memory of one thread, at least `size` bytes, aligned to a cache line, kept between jobs.
  void* memory(int thread, size_t size);

  std::atomic<int64_t>* counters;  // [phases, threads]
  int max_phases;

  struct Threads;
  Threads* threads;
};

PwPool* new_pool(const Kernels* kernels, int num_threads);
void free_pool(PwPool* pool);
