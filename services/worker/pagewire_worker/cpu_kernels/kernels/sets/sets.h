// The instruction sets of this processor's family; one file per family defines them.
#pragma once
#include <stdint.h>

#include "kernels.h"

struct InstructionSet {
  const char* name;
  const Kernels* kernels;
  bool (*runs)();  // whether this machine has it
};

extern const InstructionSet INSTRUCTION_SETS[];  // the newest first
extern const int32_t NUM_INSTRUCTION_SETS;
