// Collectives of the ranks of a group, and the watch over their processes.
#include "group.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "hosts.h"
#include "types.h"

// A rank that waits spins for about this long before it gives its core to others that wait for one: parts of
// a layer end at about the same time in all of them.
static constexpr int64_t SPIN_NANOSECONDS = 50 * 1000;
static constexpr int64_t NAP_NANOSECONDS = 20 * 1000 * 1000;
static constexpr int64_t BEAT_NANOSECONDS = 50 * 1000 * 1000;
// Silence after which a rank is lost. A process that stood still itself, with the machine or a container, has
// heard nothing meanwhile either, so that the time from one of its beats to the next counts up to a limit.
static constexpr int64_t MOST_SILENCE = 26 * BEAT_NANOSECONDS;
static constexpr int64_t MOST_SILENCE_PER_BEAT = 2 * BEAT_NANOSECONDS;
// So much more for rank 0, which a rank hears through another one of its host where rank 0 is elsewhere: if
// that one stands still, rank 0 names it first.
static constexpr int64_t PATIENCE_WITH_FIRST = 4 * BEAT_NANOSECONDS;

static int64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void nap(int64_t nanoseconds) {
  timespec t = {0, (long)nanoseconds};
  nanosleep(&t, nullptr);
}

static void sleep_while_equal(std::atomic<uint32_t>* word, uint32_t value) {
#if defined(__linux__)
  timespec t = {0, NAP_NANOSECONDS};
  syscall(SYS_futex, word, FUTEX_WAIT, value, &t, nullptr, 0);
#else
  (void)word, (void)value;
  nap(50 * 1000);
#endif
}

void publish_word(PwGroup* group, std::atomic<uint32_t>* word, uint32_t value) {
  word->store(value);
  if (group->words->sleepers.load() == 0) return;
#if defined(__linux__)
  syscall(SYS_futex, word, FUTEX_WAKE, 1 << 30, nullptr, nullptr, 0);
#endif
}

static bool has_reached(const std::atomic<uint32_t>* word, uint32_t value) {
  return (int32_t)(word->load(std::memory_order_acquire) - value) >= 0;
}

void lose_rank(PwGroup* group, int32_t rank) {
  uint32_t none = 0;
  group->words->lost.compare_exchange_strong(none, (uint32_t)rank + 1);
}

// Wait until `word`, which `rank` writes, has reached `value`. False if a rank is lost; that is `rank` if
// `timeout` nanoseconds pass, unless they are 0: then there is no end.
static bool await(PwGroup* group, int32_t rank, std::atomic<uint32_t>* word, uint32_t value,
                  int64_t timeout) {
  if (has_reached(word, value)) return true;
  const int64_t begun = now();
  while (now() - begun < SPIN_NANOSECONDS)
    for (int i = 0; i < 64; i++)
      if (has_reached(word, value)) return true;
  // To be woken takes about 0.1 ms.
  while (now() - begun < group->whole->yield_time) {
    if (has_reached(word, value)) return true;
    sched_yield();
  }
  bool is_reached = false;
  group->words->sleepers.fetch_add(1);
  for (;;) {
    const uint32_t seen = word->load();
    is_reached = (int32_t)(seen - value) >= 0;
    if (is_reached || group->words->lost.load() != 0) break;
    if (timeout != 0 && now() - begun > timeout) {
      lose_rank(group, rank);
      break;
    }
    sleep_while_equal(word, seen);
  }
  group->words->sleepers.fetch_sub(1);
  return is_reached;
}

bool meet(PwGroup* group, int64_t num_bytes) {
  const char* own = group->slot(group->rank);
  const uint32_t turn = ++group->turn;
  publish_word(group, &group->ranks[group->rank].arrived, turn);
  const WordKind kind = group == group->whole ? WORD_ARRIVED : WORD_IN_STAGE;
  if (!carry(group->whole, kind, turn, own, num_bytes, group->first, group->first + group->size)) return false;
  for (int32_t rank = 0; rank < group->size; rank++)
    if (!await(group, group->first + rank, &group->ranks[rank].arrived, turn, group->timeout)) return false;
  return true;
}

struct PwGroup::Beat {
  pthread_t thread;
  std::atomic<bool> is_closing;
};

// Watch the ranks whose silence this one notices: rank 0 all others, and these rank 0.
static void* beat(void* argument) {
  PwGroup* group = (PwGroup*)argument;
  const int32_t first = group->rank == 0 ? 1 : 0, last = group->rank == 0 ? group->size : 1;
  const int64_t most = MOST_SILENCE + (group->rank == 0 ? 0 : PATIENCE_WITH_FIRST);
  uint32_t* seen = new uint32_t[(size_t)group->size]();
  int64_t* silent = new int64_t[(size_t)group->size]();
  int64_t before = now();
  while (!group->beat->is_closing.load()) {
    std::atomic<uint32_t>& own = group->ranks[group->rank].beat;
    own.store(next_beat(own.load()));
    if (group->words->lost.load() == 0)
      carry_beat(group);
    else
      carry_end(group);
    const int64_t time = now(), since = least(time - before, MOST_SILENCE_PER_BEAT);
    before = time;
    for (int32_t rank = first; rank < last; rank++) {
      const uint32_t found = group->ranks[rank].beat.load();
      silent[rank] = found == seen[rank] && found != 0 ? silent[rank] + since : 0;
      seen[rank] = found;
      if (silent[rank] > most) lose_rank(group, rank);
    }
    nap(BEAT_NANOSECONDS);
  }
  delete[] seen;
  delete[] silent;
  return nullptr;
}

// Words of each rank for the whole group, and for its stage.
static int64_t head_bytes(int32_t size) {
  return (int64_t)(sizeof(GroupWords) + sizeof(RankWords) * 2 * (size_t)size);
}

// Slots of the whole group, two pieces of messages, slots of the stages, and states on their way.
int64_t pw_group_bytes(int32_t size, int32_t num_stages, int64_t slot_bytes) {
  const int64_t of_stages = num_stages == 1 ? 0 : (2 + (int64_t)NUM_PIECES) * size;
  return head_bytes(size) + (2 * (size + 1) + of_stages) * slot_bytes;
}

// The view of a stage of `size` ranks, with words and slots of its own behind those of the whole group.
static PwGroup* stage_of(const PwGroup& whole, int32_t size) {
  PwGroup* stage = new PwGroup(whole);
  stage->first = whole.rank / size * size;
  stage->rank = whole.rank - stage->first;
  stage->size = size;
  stage->ranks = stage_words(whole) + stage->first;
  stage->slots = stage_slots(whole, stage->first);
  return stage;
}

static void delete_group(PwGroup* group) {
  close_hosts(group->hosts);
  if (group->stage != group) delete group->stage;
  delete group->beat;
  delete group;
}

PwGroup* pw_group_new(void* memory, int32_t rank, int32_t size, int32_t num_stages, int64_t slot_bytes,
                      int64_t timeout_ms) {
  PwGroup* group = new PwGroup();
  group->rank = rank;
  group->size = size;
  group->slot_bytes = slot_bytes;
  group->timeout = timeout_ms * 1000000;
  group->words = (GroupWords*)memory;
  group->ranks = (RankWords*)((char*)memory + sizeof(GroupWords));
  group->slots = (char*)memory + head_bytes(size);
  group->messages = group->slots + 2 * size * slot_bytes;
  group->states = group->messages + 2 * (1 + size) * slot_bytes;
  group->hosts = no_hosts();
  group->whole = group;
  group->stage = num_stages == 1 ? group : stage_of(*group, size / num_stages);
  group->beat = new PwGroup::Beat();
  // From now on silence counts, even before the thread has run.
  group->ranks[rank].beat.store(1);
  if (pthread_create(&group->beat->thread, nullptr, beat, group) != 0) {
    delete_group(group);
    return nullptr;
  }
  return group;
}

void pw_group_free(PwGroup* group) {
  group->beat->is_closing.store(true);
  pthread_join(group->beat->thread, nullptr);
  if (group->words->lost.load() != 0) carry_end(group);
  delete_group(group);
}

PwGroup* pw_group_stage(PwGroup* group) { return group->stage; }

void pw_group_timeout(PwGroup* group, int64_t timeout_ms) {
  group->timeout = group->stage->timeout = timeout_ms * 1000000;
}

void pw_group_lose(PwGroup* group, int32_t rank) {
  lose_rank(group, rank);
  carry_end(group);
}

void pw_group_yield(PwGroup* group, int64_t nanoseconds) { group->yield_time = nanoseconds; }

int32_t pw_group_lost(PwGroup* group) { return (int32_t)group->words->lost.load() - 1; }

int32_t pw_all_reduce(PwGroup* group, float* x, int64_t count) {
  const int64_t most = group->slot_bytes / (int64_t)sizeof(float);
  for (int64_t first = 0; first < count; first += most) {
    const int64_t num = least(most, count - first);
    memcpy(group->slot(group->rank), x + first, (size_t)num * sizeof(float));
    const PwGroup before = *group;
    if (!meet(group, num * (int64_t)sizeof(float))) return 0;
    const auto add = [](float a, float b) { return a + b; };
    for (int64_t i = 0; i < num; i++) {
      float parts[PW_MOST_SLICES];
      for (int32_t rank = 0; rank < group->size; rank++) parts[rank] = ((const float*)before.slot(rank))[i];
      x[first + i] = sum_of_parts(parts, group->size, add);
    }
  }
  return 1;
}

int32_t pw_all_gather(PwGroup* group, const void* x, int64_t num_bytes, void* all) {
  for (int64_t first = 0; first < num_bytes; first += group->slot_bytes) {
    const int64_t num = least(group->slot_bytes, num_bytes - first);
    memcpy(group->slot(group->rank), (const char*)x + first, (size_t)num);
    const PwGroup before = *group;
    if (!meet(group, num)) return 0;
    for (int32_t rank = 0; rank < group->size; rank++)
      memcpy((char*)all + rank * num_bytes + first, before.slot(rank), (size_t)num);
  }
  return 1;
}

int32_t pw_broadcast(PwGroup* group, void* x, int64_t num_bytes, int32_t root) {
  for (int64_t first = 0; first < num_bytes; first += group->slot_bytes) {
    const int64_t num = least(group->slot_bytes, num_bytes - first);
    if (group->rank == root) memcpy(group->slot(root), (char*)x + first, (size_t)num);
    const PwGroup before = *group;
    if (!meet(group, group->rank == root ? num : 0)) return 0;
    if (group->rank != root) memcpy((char*)x + first, before.slot(root), (size_t)num);
  }
  return 1;
}

int32_t pw_pass_on(PwGroup* group, const void* states, int64_t num_bytes) {
  // A stage may take as long as it computes, so that there is no end; processes are watched.
  const int32_t next = group->rank - group->stage->size;
  for (int64_t first = 0; first < num_bytes; first += group->slot_bytes) {
    const uint32_t piece = group->passed + 1;
    if (!await(group, next, &group->ranks[next].taken, piece - NUM_PIECES, 0)) return 0;
    const int64_t num = least(group->slot_bytes, num_bytes - first);
    char* own = group->states_of(group->rank, piece);
    memcpy(own, (const char*)states + first, (size_t)num);
    group->passed = piece;
    publish_word(group, &group->ranks[group->rank].passed, piece);
    if (!carry(group, WORD_PASSED, piece, own, num, next, next + 1)) return 0;
  }
  return 1;
}

int32_t pw_take(PwGroup* group, void* states, int64_t num_bytes) {
  const int32_t before = group->rank + group->stage->size;
  for (int64_t first = 0; first < num_bytes; first += group->slot_bytes) {
    const uint32_t piece = group->taken + 1;
    if (!await(group, before, &group->ranks[before].passed, piece, 0)) return 0;
    memcpy((char*)states + first, group->states_of(before, piece),
           (size_t)least(group->slot_bytes, num_bytes - first));
    group->taken = piece;
    publish_word(group, &group->ranks[group->rank].taken, piece);
    if (!carry(group, WORD_TAKEN, piece, nullptr, 0, before, before + 1)) return 0;
  }
  return 1;
}

int32_t pw_send(PwGroup* group, const void* message, int64_t num_bytes) {
  const int64_t most = group->slot_bytes - (int64_t)sizeof(int64_t);
  for (int64_t first = 0; first == 0 || first < num_bytes; first += most) {
    // The half that comes next is free when all have read what it holds.
    const uint32_t piece = group->piece + 1;
    for (int32_t rank = 1; rank < group->size; rank++)
      if (!await(group, rank, &group->ranks[rank].read, piece - 2, group->timeout)) return 0;
    char* half = group->messages + (piece & 1) * group->slot_bytes;
    memcpy(half, &num_bytes, sizeof(int64_t));
    const int64_t num = least(most, num_bytes - first);
    memcpy(half + sizeof(int64_t), (const char*)message + first, (size_t)num);
    group->piece = piece;
    publish_word(group, &group->words->sent, piece);
    const int64_t num_sent = (int64_t)sizeof(int64_t) + num;
    if (!carry(group, WORD_SENT, piece, half, num_sent, 1, group->size)) return 0;
  }
  return 1;
}

int64_t pw_message_bytes(PwGroup* group) {
  const uint32_t piece = group->piece + 1;
  if (!await(group, 0, &group->words->sent, piece, 0)) return -1;
  int64_t num_bytes;
  memcpy(&num_bytes, group->messages + (piece & 1) * group->slot_bytes, sizeof(int64_t));
  return num_bytes;
}

int32_t pw_receive(PwGroup* group, void* message, int64_t num_bytes) {
  const int64_t most = group->slot_bytes - (int64_t)sizeof(int64_t);
  for (int64_t first = 0; first == 0 || first < num_bytes; first += most) {
    const uint32_t piece = group->piece + 1;
    if (!await(group, 0, &group->words->sent, piece, group->timeout)) return 0;
    const char* half = group->messages + (piece & 1) * group->slot_bytes;
    memcpy((char*)message + first, half + sizeof(int64_t), (size_t)least(most, num_bytes - first));
    group->piece = piece;
    publish_word(group, &group->ranks[group->rank].read, piece);
    if (!carry(group, WORD_READ, piece, nullptr, 0, 0, 1)) return 0;
  }
  return 1;
}
