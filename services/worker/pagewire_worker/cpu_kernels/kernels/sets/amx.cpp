#define PW_ISA amx
#include "sets/vec_avx512.h"
#include "sets/tiles_amx.h"
#include "kernels.h"

const Kernels amx_kernels = PW_KERNELS;
