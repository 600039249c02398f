#define PW_ISA neon
#include "sets/types_neon.h"
#include "sets/tiles_none.h"
#include "kernels.h"

const Kernels neon_kernels = PW_KERNELS;
