// Carries what ranks write in the memory of their host to other hosts, over connected sockets.
#include "hosts.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "types.h"

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

static constexpr int POLL_MS = 20;

// A connection to the rank of the same place of another host.
struct HostLink {
  PwGroup* group;
  int fd;
  int32_t first, size;  // ranks of that host
  int32_t peer;         // the rank that writes to us
  pthread_mutex_t writing;
  bool is_ended;  // nothing more is written; under `writing`
  pthread_t reader;
};

struct PwGroup::Hosts {
  HostLink* links[PW_MOST_SLICES];
  std::atomic<int32_t> count;
};

static bool is_lost(const PwGroup* group) { return group->words->lost.load() != 0; }

// Write all bytes; false once the group has ended, or if the connection is broken.
static bool write_all(HostLink* link, const void* bytes, size_t num_bytes) {
  const char* next = (const char*)bytes;
  while (num_bytes != 0) {
    const ssize_t written = send(link->fd, next, num_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (written > 0) {
      next += written;
      num_bytes -= (size_t)written;
    } else if (written < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      pollfd waits = {link->fd, POLLOUT, 0};
      poll(&waits, 1, POLL_MS);
      if (is_lost(link->group)) return false;
    } else if (written == 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

// Write one frame; the caller has `writing`. A frame that was cut ends the connection.
static bool write_frame(HostLink* link, WordKind kind, uint32_t value, const void* bytes, int64_t num_bytes) {
  if (link->is_ended) return false;
  const WordFrame frame = {kind, value, (uint64_t)num_bytes};
  if (write_all(link, &frame, sizeof frame) && write_all(link, bytes, (size_t)num_bytes)) return true;
  link->is_ended = true;
  shutdown(link->fd, SHUT_RDWR);
  return false;
}

bool carry(PwGroup* group, WordKind kind, uint32_t value, const void* bytes, int64_t num_bytes, int32_t first,
           int32_t last) {
  for (int32_t i = 0; i < group->hosts->count.load(); i++) {
    HostLink* link = group->hosts->links[i];
    if (last <= link->first || link->first + link->size <= first) continue;
    pthread_mutex_lock(&link->writing);
    const bool is_written = write_frame(link, kind, value, bytes, num_bytes);
    pthread_mutex_unlock(&link->writing);
    if (is_written) continue;
    lose_rank(group, link->peer);
    return false;
  }
  return true;
}

void carry_beat(PwGroup* group) {
  for (int32_t i = 0; i < group->hosts->count.load(); i++) {
    HostLink* link = group->hosts->links[i];
    // Who writes now is heard by that.
    if (pthread_mutex_trylock(&link->writing) != 0) continue;
    pollfd room = {link->fd, POLLOUT, 0};
    if (poll(&room, 1, 0) == 1) write_frame(link, WORD_BEAT, 0, nullptr, 0);
    pthread_mutex_unlock(&link->writing);
  }
}

void carry_end(PwGroup* group) {
  for (int32_t i = 0; i < group->hosts->count.load(); i++) {
    HostLink* link = group->hosts->links[i];
    if (pthread_mutex_trylock(&link->writing) != 0) continue;
    if (!link->is_ended) {
      write_frame(link, WORD_LOST, group->words->lost.load(), nullptr, 0);
      link->is_ended = true;
      shutdown(link->fd, SHUT_WR);
    }
    pthread_mutex_unlock(&link->writing);
  }
}

// Read so many bytes; each part of them is a beat of the peer. False at the end of the connection.
static bool read_all(HostLink* link, void* bytes, size_t num_bytes) {
  std::atomic<uint32_t>& beat = link->group->ranks[link->peer].beat;
  char* next = (char*)bytes;
  while (num_bytes != 0) {
    const ssize_t found = recv(link->fd, next, num_bytes, 0);
    if (found > 0) {
      next += found;
      num_bytes -= (size_t)found;
      beat.store(next_beat(beat.load()));
    } else if (found == 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

// What a word of `rank` speaks of in this host's memory.
struct WordPlace {
  std::atomic<uint32_t>* word;
  char* bytes;  // null if there are none
};

static WordPlace place_of(const PwGroup* group, int32_t rank, WordKind kind, uint32_t value) {
  RankWords* own = &group->ranks[rank];
  const int32_t size = group->stage->size, first = rank / size * size;
  switch (kind) {
    case WORD_ARRIVED:
      return {&own->arrived, slot_at(group->slots, group->size, rank, value - 1, group->slot_bytes)};
    case WORD_IN_STAGE:
      return {&stage_words(*group)[rank].arrived,
              slot_at(stage_slots(*group, first), size, rank - first, value - 1, group->slot_bytes)};
    case WORD_SENT:
      return {&group->words->sent, group->messages + (value & 1) * group->slot_bytes};
    case WORD_READ:
      return {&own->read, nullptr};
    case WORD_PASSED:
      return {&own->passed, group->states_of(rank, value)};
    case WORD_TAKEN:
      return {&own->taken, nullptr};
    default:
      return {nullptr, nullptr};
  }
}

// Whether the peer may send this frame.
static bool is_sound(const HostLink* link, const WordFrame& frame) {
  const PwGroup* group = link->group;
  const bool has_stages = group->stage->size != group->size;
  switch (frame.kind) {
    case WORD_IN_STAGE:
    case WORD_PASSED:
      return has_stages && frame.num_bytes <= (uint64_t)group->slot_bytes;
    case WORD_ARRIVED:
      return frame.num_bytes <= (uint64_t)group->slot_bytes;
    case WORD_SENT:
      return link->peer == 0 && frame.num_bytes <= (uint64_t)group->slot_bytes;
    case WORD_LOST:
      return frame.num_bytes == 0 && frame.value - 1 < (uint32_t)group->size;
    default:
      return frame.kind < NUM_WORD_KINDS && frame.num_bytes == 0;
  }
}

// Put what the peer publishes into the memory of this host, until the connection ends.
static void* read_frames(void* argument) {
  HostLink* link = (HostLink*)argument;
  PwGroup* group = link->group;
  WordFrame frame;
  while (read_all(link, &frame, sizeof frame)) {
    if (!is_sound(link, frame)) break;
    if (frame.kind == WORD_BEAT) continue;
    if (frame.kind == WORD_LOST) {
      lose_rank(group, (int32_t)frame.value - 1);
      break;
    }
    const WordPlace place = place_of(group, link->peer, (WordKind)frame.kind, frame.value);
    if (!read_all(link, place.bytes, (size_t)frame.num_bytes)) break;
    publish_word(group, place.word, frame.value);
  }
  lose_rank(group, link->peer);
  return nullptr;
}

int32_t pw_group_join_host(PwGroup* group, int32_t fd, int32_t first, int32_t size, int32_t peer) {
  const int32_t count = group->hosts->count.load();
  if (count == PW_MOST_SLICES) return 0;
  HostLink* link = new HostLink();
  link->group = group;
  link->fd = fd;
  link->first = first;
  link->size = size;
  link->peer = peer;
  pthread_mutex_init(&link->writing, nullptr);
  if (pthread_create(&link->reader, nullptr, read_frames, link) != 0) {
    pthread_mutex_destroy(&link->writing);
    delete link;
    return 0;
  }
  group->hosts->links[count] = link;
  group->hosts->count.store(count + 1);
  return 1;
}

PwGroup::Hosts* no_hosts() { return new PwGroup::Hosts(); }

void close_hosts(PwGroup::Hosts* hosts) {
  for (int32_t i = 0; i < hosts->count.load(); i++) {
    HostLink* link = hosts->links[i];
    shutdown(link->fd, SHUT_RDWR);
    pthread_join(link->reader, nullptr);
    close(link->fd);
    pthread_mutex_destroy(&link->writing);
    delete link;
  }
  delete hosts;
}
