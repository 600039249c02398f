// The jobs of one instruction set, one per type. An instruction set's file defines PW_ISA, includes
// its vectors and then this file, which gives all of it a namespace of its own: nothing compiled
// for one instruction set may end up in the path of another.
#pragma once
#include "arguments.h"
#include "pool.h"

struct Kernels {
  PoolJob pack, pack_codes, step[2], linear[2], argmax[2], activate[2], rotate[2], attend[2], norm[2],
      finish_logits, choose, noise, mark_spans, scale_spans;
};

extern const Kernels avx2_kernels;
extern const Kernels avx512_kernels;
extern const Kernels avx512bf16_kernels;
extern const Kernels amx_kernels;
extern const Kernels amx_emulated_kernels;
extern const Kernels neon_kernels;
extern const Kernels neon_dot_kernels;
extern const Kernels neon_bf16_kernels;

#ifdef PW_ISA
// clang-format off
#include "functions.h"
#include "products/quantized.h"
#include "products/codes.h"
#include "products/prefetch.h"
#include "products/row_pairs.h"
#include "products/tile.h"
#include "attention/kv.h"
#include "products/items.h"
#include "products/blocks.h"
#include "products/tile_storage.h"
#include "products/beside.h"
#include "products/tile_products.h"
#include "products/adapters.h"
#include "products/linear.h"
#include "attention/rotate.h"
#include "attention/splits.h"
#include "attention/scaled_kv.h"
#include "attention/tile_attention.h"
#include "attention/latent.h"
#include "attention/attention.h"
#include "attention/shared_tiles.h"
#include "products/pack.h"
#include "experts.h"
#include "exchange.h"
#include "operations.h"
#include "step.h"
#include "products/argmax.h"
#include "sampling/noise.h"
#include "sampling/spans.h"
#include "sampling/choose.h"
// clang-format on

#define PW_JOBS(name) {name<PW_ISA::Float32>, name<PW_ISA::BFloat16>}
#define PW_KERNELS                                                                           \
  {PW_ISA::pack_job,             PW_ISA::pack_codes_job,       PW_JOBS(PW_ISA::step_job),    PW_JOBS(PW_ISA::linear_job), \
   PW_JOBS(PW_ISA::argmax_job),  PW_JOBS(PW_ISA::activate_job), PW_JOBS(PW_ISA::rotate_job), \
   PW_JOBS(PW_ISA::attend_job),  PW_JOBS(PW_ISA::norm_job),    PW_ISA::finish_logits_job, \
   PW_ISA::choose_job,           PW_ISA::noise_job, \
   PW_ISA::mark_spans_job,       PW_ISA::scale_spans_job}
#endif
