// What the eight tiles of AMX hold in a product.
//
// Tiles 0 to 3 hold sums. With a pair of row tiles, 4 and 5 hold rows of the input, 6 and 7 weights:
// sums 0 and 1 belong to tile 4, sums 2 and 3 to tile 5. With a single row tile, 4 holds it, and 5 to
// 7 hold weights. A tile of weights is [depth / 4 bytes][16 outputs][4 bytes], as panels are.
#pragma once
#include <stdint.h>

namespace PW_ISA {

static constexpr bool HAS_TILES = true;
static constexpr int NUM_TILES = 8;
static constexpr int64_t TILE_HEIGHT = 16;  // most rows of a tile
static constexpr int64_t TILE_WIDTH = 64;   // most bytes of a row

struct TileShape {
  int64_t rows, row_bytes;
};

// Return the shape of one tile. There is a single row tile if `second_rows` is 0. `depth` is the bytes of
// a row of the input in one product: 64, 32 or 16.
static inline TileShape tile_shape(int tile, int64_t first_rows, int64_t second_rows,
                                   int64_t depth) {
  const bool is_pair = second_rows > 0;
  if (tile >= (is_pair ? 6 : 5)) return {depth / 4, TILE_WIDTH};
  const bool is_second = is_pair && (tile == 2 || tile == 3 || tile == 5);
  return {is_second ? second_rows : first_rows, tile >= 4 ? depth : TILE_WIDTH};
}

}  // namespace PW_ISA
