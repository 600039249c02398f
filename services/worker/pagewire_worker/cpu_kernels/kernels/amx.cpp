#define PW_ISA amx
#include "vec_avx512.h"
#include "tiles_amx.h"
#include "kernels.h"

const Kernels amx_kernels = PW_KERNELS;
