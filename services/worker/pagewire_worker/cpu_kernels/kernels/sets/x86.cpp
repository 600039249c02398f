// The instruction sets of x86-64, and which of them this machine has.
//
// The bits are those of Intel's manual (CPUID, leaves 1 and 7; XCR0). They are read here because not
// every compiler's runtime has __builtin_cpu_supports.
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "sets/sets.h"

namespace {

struct Leaf {
  unsigned a = 0, b = 0, c = 0, d = 0;

  Leaf(unsigned leaf, unsigned part) {
    if (!__get_cpuid_count(leaf, part, &a, &b, &c, &d)) a = b = c = d = 0;
  }
};

constexpr unsigned bit(int i) { return 1u << i; }
constexpr bool has(unsigned word, unsigned bits) { return (word & bits) == bits; }

// The registers that the system saves and restores, as bits of XCR0.
unsigned saved_registers() {
  constexpr unsigned OSXSAVE = bit(27);
  if (!has(Leaf(1, 0).c, OSXSAVE)) return 0;
  unsigned low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

bool has_avx2() {
  constexpr unsigned FMA = bit(12), AVX = bit(28), AVX2 = bit(5), SAVED = bit(1) | bit(2);
  return has(Leaf(1, 0).c, FMA | AVX) && has(Leaf(7, 0).b, AVX2) && has(saved_registers(), SAVED);
}

bool has_avx512() {
  constexpr unsigned F = bit(16), DQ = bit(17), BW = bit(30), VL = bit(31);
  constexpr unsigned SAVED = bit(5) | bit(6) | bit(7);
  return has_avx2() && has(Leaf(7, 0).b, F | DQ | BW | VL) && has(saved_registers(), SAVED);
}

bool has_avx512bf16() {
  constexpr unsigned VNNI = bit(11), BF16 = bit(5);
  return has_avx512() && has(Leaf(7, 0).c, VNNI) && has(Leaf(7, 1).a, BF16);
}

// Ask the system once for the tile registers: threads that start later have them too.
bool may_use_tiles() {
#if defined(__linux__)
  constexpr int REQUEST = 0x1023, TILE_DATA = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool is_allowed = syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
  return is_allowed;
#else
  return false;
#endif
}

bool has_amx() {
  constexpr unsigned BF16 = bit(22), TILE = bit(24), INT8 = bit(25);
  return has_avx512bf16() && has(Leaf(7, 0).d, BF16 | TILE | INT8) && may_use_tiles();
}

}  // namespace

const InstructionSet INSTRUCTION_SETS[] = {
    {"amx", &amx_kernels, has_amx},
    {"avx512bf16", &avx512bf16_kernels, has_avx512bf16},
    {"avx512", &avx512_kernels, has_avx512},
    {"avx2", &avx2_kernels, has_avx2},
    {"amx_emulated", &amx_emulated_kernels, has_avx512bf16},
};
const int32_t NUM_INSTRUCTION_SETS = sizeof(INSTRUCTION_SETS) / sizeof(INSTRUCTION_SETS[0]);
