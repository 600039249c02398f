#define PW_ISA avx512
#include "sets/vec_avx512.h"
#include "sets/tiles_none.h"
#include "kernels.h"

const Kernels avx512_kernels = PW_KERNELS;
