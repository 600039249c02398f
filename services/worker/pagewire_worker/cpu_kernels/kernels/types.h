// What all files share that does not depend on an instruction set.
#pragma once
#include <stddef.h>
#include <stdint.h>

// The upper half of a float.
struct Bf16 {
  uint16_t bits;
};

typedef int32_t __attribute__((may_alias)) int32_alias;

static constexpr int PANEL = 16;  // columns that a panel of a matrix has, and tokens a group of KV

static inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
