#define PW_ROW_PAIRS "sets/pairs_neon.h"
#define PW_ISA neon_bf16
#include "sets/types_neon.h"
#include "sets/tiles_none.h"
#include "kernels.h"

const Kernels neon_bf16_kernels = PW_KERNELS;
