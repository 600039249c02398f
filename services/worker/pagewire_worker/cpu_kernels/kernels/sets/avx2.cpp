#define PW_WIDE "sets/wide_avx2.h"
#define PW_ISA avx2
#include "sets/vec_avx2.h"
#include "sets/tiles_none.h"
#include "kernels.h"

const Kernels avx2_kernels = PW_KERNELS;
