// The instruction sets of arm64, and which of them this machine has.
#include <stddef.h>
#if defined(__APPLE__)
#include <sys/sysctl.h>
#else
#include <sys/auxv.h>
#endif

#include "sets/sets.h"

namespace {

#if defined(__APPLE__)

// See "Determining Instruction Set Characteristics" of Apple's documentation.
bool has(const char* name) {
  int value = 0;
  size_t size = sizeof(value);
  return sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value != 0;
}

bool has_dot() { return has("hw.optional.arm.FEAT_DotProd"); }
bool has_bf16() {
  return has_dot() && has("hw.optional.arm.FEAT_BF16") && has("hw.optional.arm.FEAT_I8MM");
}

#else

// Bits of Linux, asm/hwcap.h: older headers lack the later ones.
constexpr unsigned long DOT = 1ul << 20, I8MM = 1ul << 13, BF16 = 1ul << 14;

bool has_dot() { return (getauxval(AT_HWCAP) & DOT) != 0; }
bool has_bf16() {
  constexpr unsigned long WANTED = I8MM | BF16;
  return has_dot() && (getauxval(AT_HWCAP2) & WANTED) == WANTED;
}

#endif

bool is_arm64() { return true; }

}  // namespace

const InstructionSet INSTRUCTION_SETS[] = {
    {"neon_bf16", &neon_bf16_kernels, has_bf16},
    {"neon_dot", &neon_dot_kernels, has_dot},
    {"neon", &neon_kernels, is_arm64},
};
const int32_t NUM_INSTRUCTION_SETS = sizeof(INSTRUCTION_SETS) / sizeof(INSTRUCTION_SETS[0]);
