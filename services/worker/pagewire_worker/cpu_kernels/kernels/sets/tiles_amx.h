// The tile registers of AMX.
//
// One product of bfloat16 adds to a sum what tile_sum in tiles_emulated.h says, and treats denormal
// numbers as 0.
#pragma once
#include <stdint.h>
#include <string.h>

#include "sets/tile_shape.h"

namespace PW_ISA {

class Tiles {
 public:
  Tiles() = default;
  Tiles(const Tiles&) = delete;
  // Configured tiles would be saved at every switch of threads.
  ~Tiles() {
    if (shape_ != 0) asm volatile("tilerelease" ::: "memory");
  }

  // Give all tiles their shapes; their contents are lost if anything changes.
  void shape(int64_t first_rows, int64_t second_rows, int64_t depth) {
    const int64_t wanted = first_rows | second_rows << 8 | depth << 16;
    if (wanted == shape_) return;
    shape_ = wanted;
    alignas(64) Configuration c;
    memset(&c, 0, sizeof(c));
    c.palette = 1;
    for (int i = 0; i < NUM_TILES; i++) {
      const TileShape one = tile_shape(i, first_rows, second_rows, depth);
      c.row_bytes[i] = (uint16_t)one.row_bytes;
      c.rows[i] = (uint8_t)one.rows;
    }
    asm volatile("ldtilecfg %0" ::"m"(c) : "memory");
  }

  template <int N>
  void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(N));
  }
  // Rows are `stride` bytes apart.
  template <int N>
  void load(const void* p, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(p), "r"(stride), "i"(N) : "memory");
  }
  // The same, of what is not read again soon: it does not stay in the first cache.
  template <int N>
  void load_once(const void* p, int64_t stride) {
    asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(p), "r"(stride), "i"(N) : "memory");
  }
  template <int N>
  void store(void* p, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(p), "r"(stride), "i"(N) : "memory");
  }
  // Sums += rows * weights, of bfloat16.
  template <int SUMS, int ROWS, int WEIGHTS>
  void multiply_bf16() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(SUMS), "i"(ROWS), "i"(WEIGHTS));
  }
  // The same of signed bytes times unsigned bytes, with sums of 32 bits.
  template <int SUMS, int ROWS, int WEIGHTS>
  void multiply_int8() {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(SUMS), "i"(ROWS), "i"(WEIGHTS));
  }

 private:
  struct Configuration {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  };
  int64_t shape_ = 0;
};

}  // namespace PW_ISA
