#define PW_ISA neon_dot
#include "sets/types_neon.h"
#include "sets/tiles_none.h"
#include "kernels.h"

const Kernels neon_dot_kernels = PW_KERNELS;
