// Sorts the largest values of rows of floats, by the order of their bits.
#include <string.h>

#include "../arguments.h"
#include "../pool.h"
#include "largest.h"

static constexpr int DIGIT_BITS = 11, NUM_DIGITS = 1 << DIGIT_BITS, NUM_PASSES = 3;

// Integers in the descending order of the floats: the largest float has the least.
static inline uint32_t key_of(uint32_t bits) {
  return bits >> 31 ? bits : ~bits & 0x7fffffffu;
}
static inline uint32_t bits_of(uint32_t key) { return key >> 31 ? key : ~key & 0x7fffffffu; }

// Copy the keys of a row that may be among its `wanted` least ones, and return how many there are.
static int64_t collect(const uint32_t* row, int64_t size, int64_t wanted, uint32_t* keys) {
  int64_t counts[NUM_DIGITS] = {};
  constexpr int SHIFT = 32 - DIGIT_BITS;
  for (int64_t i = 0; i < size; i++) counts[key_of(row[i]) >> SHIFT]++;
  int64_t found = 0;
  uint32_t digit = 0;
  while ((found += counts[digit]) < wanted) digit++;
  int64_t count = 0;
  for (int64_t i = 0; i < size; i++) {
    const uint32_t key = key_of(row[i]);
    keys[count] = key;
    count += key >> SHIFT <= digit;
  }
  return found;
}

// Sort `count` keys; `other` is memory for as many. Returns where they are.
static uint32_t* sort(uint32_t* keys, uint32_t* other, int64_t count) {
  int64_t starts[NUM_PASSES][NUM_DIGITS] = {};
  for (int64_t i = 0; i < count; i++)
    for (int pass = 0; pass < NUM_PASSES; pass++)
      starts[pass][keys[i] >> pass * DIGIT_BITS & (NUM_DIGITS - 1)]++;
  for (int pass = 0; pass < NUM_PASSES; pass++) {
    int64_t start = 0;
    for (int64_t& one : starts[pass]) {
      const int64_t length = one;
      one = start;
      start += length;
    }
    for (int64_t i = 0; i < count; i++)
      other[starts[pass][keys[i] >> pass * DIGIT_BITS & (NUM_DIGITS - 1)]++] = keys[i];
    uint32_t* swapped = keys;
    keys = other;
    other = swapped;
  }
  return keys;
}

void largest_job(PwPool* pool, const void* arguments, int thread) {
  const LargestArguments& a = *(const LargestArguments*)arguments;
  // A key is written before it is known whether it counts.
  const size_t room = (size_t)a.size + 1;
  uint32_t* keys = (uint32_t*)pool->memory(thread, 2 * room * sizeof(uint32_t), JOB);
  for (int64_t row; (row = pool->next(0, thread, a.num_rows)) < a.num_rows;) {
    const int64_t count = collect((const uint32_t*)a.x + row * a.stride, a.size, a.wanted, keys);
    const uint32_t* sorted = sort(keys, keys + room, count);
    uint32_t* y = (uint32_t*)a.y + row * a.wanted;
    for (int64_t i = 0; i < a.wanted; i++) y[i] = bits_of(sorted[i]);
  }
}
