#define PW_ISA amx_emulated
#include "sets/vec_avx512.h"
#include "sets/tiles_emulated.h"
#include "kernels.h"

const Kernels amx_emulated_kernels = PW_KERNELS;
