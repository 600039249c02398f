// The tile registers of AMX: eight tiles of at most 16 rows of 64 bytes.
//
// Tiles 0 to 3 hold sums. With a pair of row tiles, 4 and 5 hold rows of the input, 6 and 7 weights:
// sums 0 and 1 belong to tile 4, sums 2 and 3 to tile 5. With a single row tile, 4 holds it, and 5 to
// 7 hold weights. A tile of weights is [depth / 4 bytes][16 outputs][4 bytes], as panels are.
//
// One product of bfloat16 adds to a sum what tile_sum in tiles_emulated.h says, and treats denormal
// numbers as 0.
#pragma once
#include <stdint.h>
#include <string.h>

namespace PW_ISA {

static constexpr bool HAS_TILES = true;
static constexpr int64_t TILE_HEIGHT = 16;

class Tiles {
 public:
  Tiles() = default;
  Tiles(const Tiles&) = delete;
  // Configured tiles would be saved at every switch of threads.
  ~Tiles() {
    if (shape_ != 0) asm volatile("tilerelease" ::: "memory");
  }

  // Use a pair of row tiles, or a single one if `second_rows` is 0. `depth` is the bytes of a row of
  // the input in one product: 64, 32 or 16. The contents of tiles are lost if anything changes.
  void shape(int64_t first_rows, int64_t second_rows, int64_t depth) {
    const int64_t wanted = first_rows | second_rows << 8 | depth << 16;
    if (wanted == shape_) return;
    shape_ = wanted;
    alignas(64) Configuration c;
    memset(&c, 0, sizeof(c));
    c.palette = 1;
    const int weights = second_rows ? 6 : 5;
    for (int i = 0; i < 8; i++) {
      const bool is_second = second_rows && (i == 2 || i == 3 || i == 5);
      c.row_bytes[i] = (uint16_t)(i == 4 || (i == 5 && second_rows) ? depth : 64);
      c.rows[i] = (uint8_t)(i >= weights ? depth / 4 : is_second ? second_rows : first_rows);
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
