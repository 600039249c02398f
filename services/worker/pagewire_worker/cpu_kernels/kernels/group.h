// Processes of one host that compute one model together: their ranks are numbered from 0. They share
// memory. A model may be cut into stages of consecutive layers; the ranks of a stage lie side by side, those
// of the last stage first, and each has a part of every layer of its stage. Every sum is over the ranks of a
// stage, by one tree.
#pragma once
#include <atomic>

#include "abi.h"

// What each rank writes and the others read, a cache line for each.
struct RankWords {
  alignas(64) std::atomic<uint32_t> arrived;  // collectives that it has given its part of
  alignas(64) std::atomic<uint32_t> read;     // pieces of messages that it has read
  alignas(64) std::atomic<uint32_t> beat;     // advances while its process runs; 0 before that
  alignas(64) std::atomic<uint32_t> passed;   // pieces of states that it has passed on
  alignas(64) std::atomic<uint32_t> taken;    // pieces of states that it has taken
};

// The beginning of the shared memory; zeros are its first state.
struct GroupWords {
  alignas(64) std::atomic<uint32_t> lost;      // 1 + the rank that ended the group; 0 while all are well
  alignas(64) std::atomic<uint32_t> sent;      // pieces of messages of rank 0
  alignas(64) std::atomic<uint32_t> sleepers;  // threads that sleep until any word changes
};

// Pieces of states that a rank may have passed on before the next stage takes them.
static constexpr uint32_t NUM_PIECES = 4;

// Memory of a rank for a collective, of `slots` [2, size, slot_bytes].
static inline char* slot_at(char* slots, int32_t size, int32_t rank, uint32_t turn, int64_t slot_bytes) {
  return slots + ((turn & 1) * (int64_t)size + rank) * slot_bytes;
}

// One rank's view of its group, or of those ranks of it that have its stage; one thread at a time calls
// its collectives, in which all of them take part.
struct PwGroup {
  int32_t rank, size;
  int32_t first;  // in the whole group, of the rank that is 0 here
  int64_t slot_bytes;
  int64_t timeout;     // of a collective, in nanoseconds
  int64_t yield_time;  // after which a wait sleeps, in nanoseconds; of the whole group
  GroupWords* words;
  RankWords* ranks;
  char* slots;     // [2, size, slot_bytes]: collectives use the halves in turn
  char* messages;  // [2, slot_bytes], of the whole group
  char* states;    // [size, NUM_PIECES, slot_bytes], of the whole group: on their way to the next stage
  uint32_t turn;   // collectives so far
  uint32_t piece;  // pieces of messages so far
  uint32_t passed, taken;  // pieces of states so far
  PwGroup* stage;  // the view of its stage; itself where there is one stage

  struct Beat;
  Beat* beat;
  struct Hosts;
  Hosts* hosts;    // connections to other hosts
  PwGroup* whole;  // the view of all ranks; itself where it is that

  // Memory of a rank for the collective that comes next. A rank gives its part of it only when all
  // have read the last but one, since each gives its part of the next after it has read.
  char* slot(int of_rank) const { return slot_at(slots, size, of_rank, turn, slot_bytes); }
  char* states_of(int of_rank, uint32_t number) const {
    return states + ((int64_t)of_rank * NUM_PIECES + number % NUM_PIECES) * slot_bytes;
  }
};

// Sums are of pairs, of pairs of these and so on; what is left over is added last. So the sum over 4 parts
// has the same bits if each of two ranks adds up two of them first.
template <class Number, class Add>
static inline Number sum_of_parts(Number* parts, int32_t count, const Add& add) {
  for (int32_t width = 1; width < count; width *= 2)
    for (int32_t i = 0; i + width < count; i += 2 * width) parts[i] = add(parts[i], parts[i + width]);
  return parts[0];
}

// Tell the others that `num_bytes` of this rank's slot are written, and wait for theirs. False if a rank is
// lost, which `words->lost` names then.
bool meet(PwGroup* group, int64_t num_bytes);

// Store a word in the memory of this host, and wake who waits for it.
void publish_word(PwGroup* group, std::atomic<uint32_t>* word, uint32_t value);
// Name the rank that ends the group; the first one named stays.
void lose_rank(PwGroup* group, int32_t rank);
// The beat after another one; 0 is none.
static inline uint32_t next_beat(uint32_t beat) { return beat % 0xfffffffe + 1; }

// Words of all ranks for their stages, and the slots of the stage that begins with rank `first`.
static inline RankWords* stage_words(const PwGroup& whole) { return whole.ranks + whole.size; }
static inline char* stage_slots(const PwGroup& whole, int32_t first) {
  return whole.messages + 2 * (1 + first) * whole.slot_bytes;
}
