#define PW_ISA avx512bf16
#include "sets/vec_avx512.h"
#include "sets/tiles_none.h"
#include "kernels.h"

const Kernels avx512bf16_kernels = PW_KERNELS;
