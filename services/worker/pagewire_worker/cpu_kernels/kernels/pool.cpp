#include "pool.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

// A thread that has nothing to do spins for about this long before it sleeps: the next step of a
// busy worker comes sooner.
static constexpr int64_t SPIN_NANOSECONDS = 200 * 1000;
// Within a job nobody sleeps. But a thread that was moved off its core needs one to come back, so
// whoever waits for it offers its own: first after a while, then again and again.
static constexpr unsigned SPINS_BEFORE_YIELD = 2000;
static constexpr unsigned SPINS_BETWEEN_YIELDS = 50;

static inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // longer than yield, which does nothing on most processors
#endif
}

// The control word of this thread's arithmetic.
#if defined(__x86_64__)
typedef unsigned ControlWord;
static constexpr ControlWord FLUSH = 0x8040;
static ControlWord control_word() { return _mm_getcsr(); }
static void set_control_word(ControlWord word) { _mm_setcsr(word); }
static ControlWord flushing(ControlWord word) { return word | FLUSH; }
#elif defined(__aarch64__)
typedef uint64_t ControlWord;
static constexpr ControlWord FLUSH = 1u << 24;
static ControlWord control_word() {
  ControlWord word;
  asm volatile("mrs %0, fpcr" : "=r"(word));
  return word;
}
static void set_control_word(ControlWord word) { asm volatile("msr fpcr, %0" ::"r"(word) : "memory"); }
// Nothing else is set: BFDOT would round otherwise with the bit EBF.
static ControlWord flushing(ControlWord) { return FLUSH; }
#else
typedef unsigned ControlWord;
static ControlWord control_word() { return 0; }
static void set_control_word(ControlWord) {}
static ControlWord flushing(ControlWord word) { return word; }
#endif

// While it lives, this thread's results that are too small for a normal number become 0, and such
// inputs count as 0. Intel's processors take some 100 cycles for each of them otherwise, for example
// for the smallest weights of a softmax; AMX and BFDOT do the same in any mode.
class FlushToZero {
 public:
  FlushToZero() : mode_(control_word()) { set_control_word(flushing(mode_)); }
  ~FlushToZero() { set_control_word(mode_); }
  FlushToZero(const FlushToZero&) = delete;

 private:
  ControlWord mode_;
};

static int64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void sleep_while_equal(std::atomic<uint32_t>* word, uint32_t value) {
#if defined(__linux__)
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
#else
  timespec t = {0, 50000};
  nanosleep(&t, nullptr);
#endif
}

static void wake_all(std::atomic<uint32_t>* word) {
#if defined(__linux__)
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1 << 30, nullptr, nullptr, 0);
#endif
}

struct Helper {
  PwPool* pool;
  int number;
  pthread_t thread;
};

struct PwPool::Threads {
  alignas(64) std::atomic<uint32_t> epoch;  // of the job; an odd number of the last job ends all
  alignas(64) std::atomic<int> num_done;
  alignas(64) std::atomic<int> num_arrived;
  alignas(64) std::atomic<uint32_t> barrier_epoch;
  std::atomic<bool> is_closing;
  PoolJob job;
  const void* arguments;
  Helper* helpers;
  void** memory;
  size_t* memory_size;
};

static void await_job(PwPool::Threads* threads, uint32_t seen) {
  int64_t end = now() + SPIN_NANOSECONDS;
  while (threads->epoch.load(std::memory_order_acquire) == seen) {
    for (int i = 0; i < 64; i++) relax();
    if (now() > end) {
      while (threads->epoch.load(std::memory_order_acquire) == seen)
        sleep_while_equal(&threads->epoch, seen);
    }
  }
}

static void* help(void* argument) {
  FlushToZero mode;
  Helper* self = (Helper*)argument;
  PwPool::Threads* threads = self->pool->threads;
  for (uint32_t seen = 0;; seen++) {
    await_job(threads, seen);
    if (threads->is_closing.load(std::memory_order_acquire)) return nullptr;
    threads->job(self->pool, threads->arguments, self->number);
    threads->num_done.fetch_add(1, std::memory_order_release);
  }
}

void PwPool::run(PoolJob job, const void* arguments, int num_phases, bool is_shared) {
  if (num_phases > max_phases) {
    delete[] counters;
    counters = new std::atomic<int64_t>[(size_t)num_phases * most_threads];
    max_phases = num_phases;
  }
  num_threads = is_shared ? most_threads : 1;
  for (int i = 0; i < num_phases * num_threads; i++)
    counters[i].store(0, std::memory_order_relaxed);
  FlushToZero mode;
  if (num_threads == 1) {
    job(this, arguments, 0);
    return;
  }
  threads->job = job;
  threads->arguments = arguments;
  threads->num_done.store(0, std::memory_order_relaxed);
  threads->epoch.fetch_add(1, std::memory_order_release);
  wake_all(&threads->epoch);
  job(this, arguments, 0);
  for (unsigned spins = 0; threads->num_done.load(std::memory_order_acquire) < num_threads - 1;) {
    relax();
    if (++spins > SPINS_BEFORE_YIELD && spins % SPINS_BETWEEN_YIELDS == 0) sched_yield();
  }
}

void PwPool::barrier() {
  if (num_threads == 1) return;
  uint32_t epoch = threads->barrier_epoch.load(std::memory_order_relaxed);
  if (threads->num_arrived.fetch_add(1, std::memory_order_acq_rel) == num_threads - 1) {
    threads->num_arrived.store(0, std::memory_order_relaxed);
    threads->barrier_epoch.store(epoch + 1, std::memory_order_release);
    return;
  }
  for (unsigned spins = 0; threads->barrier_epoch.load(std::memory_order_acquire) == epoch;) {
    relax();
    if (++spins > SPINS_BEFORE_YIELD && spins % SPINS_BETWEEN_YIELDS == 0) sched_yield();
  }
}

void PwPool::await(const std::atomic<int64_t>& counter, int64_t value) {
  for (unsigned spins = 0; counter.load(std::memory_order_acquire) != value;) {
    relax();
    if (++spins > SPINS_BEFORE_YIELD && spins % SPINS_BETWEEN_YIELDS == 0) sched_yield();
  }
}

void* PwPool::memory(int thread, size_t size, PoolMemory use) {
  const int place = thread * NUM_POOL_MEMORIES + use;
  if (threads->memory_size[place] < size) {
    free(threads->memory[place]);
    size_t rounded = (size_t)ceil_div((int64_t)size, 4096) * 4096;
    threads->memory[place] = aligned_alloc(4096, rounded);
    // Nobody above could free what a job holds: the process ends as it does where Python finds none.
    if (threads->memory[place] == nullptr) abort();
    memset(threads->memory[place], 0, rounded);
    threads->memory_size[place] = rounded;
  }
  return threads->memory[place];
}

PwPool* new_pool(const Kernels* kernels, int num_threads) {
  PwPool* pool = new PwPool();
  pool->num_threads = pool->most_threads = num_threads;
  pool->kernels = kernels;
  pool->counters = nullptr;
  pool->max_phases = 0;
  PwPool::Threads* threads = pool->threads = new PwPool::Threads();
  threads->helpers = new Helper[num_threads];
  threads->memory = new void*[num_threads * NUM_POOL_MEMORIES]();
  threads->memory_size = new size_t[num_threads * NUM_POOL_MEMORIES]();
  for (int number = 1; number < num_threads; number++) {
    threads->helpers[number] = {pool, number, 0};
    if (pthread_create(&threads->helpers[number].thread, nullptr, help, &threads->helpers[number])) {
      pool->most_threads = number;
      free_pool(pool);
      return nullptr;
    }
  }
  return pool;
}

void free_pool(PwPool* pool) {
  PwPool::Threads* threads = pool->threads;
  threads->is_closing.store(true, std::memory_order_release);
  threads->epoch.fetch_add(1, std::memory_order_release);
  wake_all(&threads->epoch);
  for (int number = 1; number < pool->most_threads; number++)
    pthread_join(threads->helpers[number].thread, nullptr);
  for (int place = 0; place < pool->most_threads * NUM_POOL_MEMORIES; place++)
    free(threads->memory[place]);
  delete[] pool->counters;
  delete[] threads->memory;
  delete[] threads->memory_size;
  delete[] threads->helpers;
  delete threads;
  delete pool;
}
