// Connections of one rank to the other hosts of its group. Each host has shared memory of its own; whatever
// a rank writes there for others goes to the hosts that have them, in order, so that ranks elsewhere look
// like ranks of this host. A connection joins ranks of the same place in their hosts: each writes what it
// publishes, and puts what the other one publishes into the memory of its host.
#pragma once
#include "group.h"

// Words of a rank that others read. A frame has one of them, and the memory that it speaks of.
enum WordKind : uint32_t {
  WORD_BEAT,      // no word: any byte is a beat
  WORD_LOST,      // 1 + the rank that ended the group
  WORD_ARRIVED,   // with the part of a collective of the whole group
  WORD_IN_STAGE,  // with the part of a collective of a stage
  WORD_SENT,      // with a piece of a message
  WORD_READ,
  WORD_PASSED,  // with a piece of states
  WORD_TAKEN,
  NUM_WORD_KINDS,
};

// Little-endian, as are all processors that there are kernels for.
struct WordFrame {
  uint32_t kind, value;
  uint64_t num_bytes;  // that follow
};

// Send a word of this rank to the other hosts with ranks from `first` to before `last`, with the memory that
// it speaks of. False if a rank is lost; a connection that breaks loses the rank behind it.
bool carry(PwGroup* group, WordKind kind, uint32_t value, const void* bytes, int64_t num_bytes, int32_t first,
           int32_t last);
// Send a beat to the other hosts, without waiting: bytes that are on their way are as good.
void carry_beat(PwGroup* group);
// Tell the other hosts that the group has ended, once. Waits for a moment at most.
void carry_end(PwGroup* group);
PwGroup::Hosts* no_hosts();
// Close the connections, and wait for their threads.
void close_hosts(PwGroup::Hosts* hosts);
