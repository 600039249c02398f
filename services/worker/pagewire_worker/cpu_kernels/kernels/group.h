// Processes of one host that compute one model together, each a part of every layer: their ranks are
// numbered from 0. They share memory, and every sum is in the order of ranks.
#pragma once
#include <atomic>

#include "abi.h"

// What each rank writes and the others read, a cache line for each.
struct RankWords {
  alignas(64) std::atomic<uint32_t> arrived;  // collectives that it has given its part of
  alignas(64) std::atomic<uint32_t> read;     // pieces of messages that it has read
  alignas(64) std::atomic<uint32_t> beat;     // advances while its process runs; 0 before that
};

// The beginning of the shared memory; zeros are its first state.
struct GroupWords {
  alignas(64) std::atomic<uint32_t> lost;      // 1 + the rank that ended the group; 0 while all are well
  alignas(64) std::atomic<uint32_t> sent;      // pieces of messages of rank 0
  alignas(64) std::atomic<uint32_t> sleepers;  // threads that sleep until any word changes
};

// One rank's view of its group; one thread at a time calls its collectives.
struct PwGroup {
  int32_t rank, size;
  int64_t slot_bytes;
  int64_t timeout;  // of a collective, in nanoseconds
  GroupWords* words;
  RankWords* ranks;
  char* slots;     // [2, size, slot_bytes]: collectives use the halves in turn
  char* messages;  // [2, slot_bytes]
  uint32_t turn;   // collectives so far
  uint32_t piece;  // pieces of messages so far

  struct Beat;
  Beat* beat;

  // Memory of a rank for the collective that comes next. A rank gives its part of it only when all
  // have read the last but one, since each gives its part of the next after it has read.
  char* slot(int of_rank) const {
    return slots + ((turn & 1) * (int64_t)size + of_rank) * slot_bytes;
  }
};

// Tell the others that this rank's slot is written, and wait for theirs. False if a rank is lost, which
// `words->lost` names then.
bool meet(PwGroup* group);
