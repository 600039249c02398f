// Types and functions that do not depend on an instruction set.
#pragma once
#include <stddef.h>
#include <stdint.h>

// The upper half of a float.
struct Bf16 {
  uint16_t bits;
};

// A float of IEEE 754's binary16.
struct Fp16 {
  uint16_t bits;
};

typedef int32_t __attribute__((may_alias)) int32_alias;

static constexpr int PANEL = 16;  // columns of a panel of a matrix, and tokens of a group of KV

static inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
