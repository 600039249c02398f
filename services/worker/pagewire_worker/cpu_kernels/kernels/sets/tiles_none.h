// For instruction sets without tiles: what tile_products.h names, and nobody calls.
#pragma once
#include <stdint.h>

namespace PW_ISA {

static constexpr bool HAS_TILES = false;
static constexpr int64_t TILE_HEIGHT = 16, TILE_WIDTH = 64;

class Tiles {
 public:
  void shape(int64_t first_rows, int64_t second_rows, int64_t depth);
  template <int N>
  void zero();
  template <int N>
  void load(const void* p, int64_t stride);
  template <int N>
  void load_once(const void* p, int64_t stride);
  template <int N>
  void store(void* p, int64_t stride);
  template <int SUMS, int ROWS, int WEIGHTS>
  void multiply_bf16();
  template <int SUMS, int ROWS, int WEIGHTS>
  void multiply_int8();
};

}  // namespace PW_ISA
