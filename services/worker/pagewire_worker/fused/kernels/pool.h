// Threads that run one function together, with barriers and shared counters inside it.
#pragma once
#include <atomic>

#include "abi.h"
#include "types.h"

struct Kernels;

// A function that all threads of a pool call, each with its number.
typedef void (*PoolJob)(PwPool* pool, const void* arguments, int thread);

static constexpr int MAX_PHASES = 4096;

struct PwPool {
  int num_threads;
  const Kernels* kernels;

  // Run `job` in all threads and return once all are done. Only one caller at a time.
  void run(PoolJob job, const void* arguments);
  // Wait until all threads are here.
  void barrier();
  // Next item of a phase that the threads share; each phase of a job has a number of its own.
  int64_t next(int phase) { return counters[phase].fetch_add(1, std::memory_order_relaxed); }
  // Memory of one thread, at least `size` bytes, aligned to a cache line, kept between jobs.
  void* memory(int thread, size_t size);

  std::atomic<int64_t> counters[MAX_PHASES];

  struct Threads;
  Threads* threads;
};

PwPool* new_pool(const Kernels* kernels, int num_threads);
void free_pool(PwPool* pool);
