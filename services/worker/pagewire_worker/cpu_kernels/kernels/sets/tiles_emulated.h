// The same tiles as in tiles_amx.h, in memory and with instructions of AVX-512: every bit of the
// results is equal, because the threads of a pool treat denormal numbers as 0, like AMX. For machines
// that have no AMX.
#pragma once
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "sets/tile_shape.h"

namespace PW_ISA {

class Tiles {
 public:
  Tiles() = default;
  Tiles(const Tiles&) = delete;

  void shape(int64_t first_rows, int64_t second_rows, int64_t depth) {
    for (int i = 0; i < NUM_TILES; i++) shapes_[i] = tile_shape(i, first_rows, second_rows, depth);
  }

  template <int N>
  void zero() {
    memset(data_[N], 0, sizeof(data_[N]));
  }
  template <int N>
  void load(const void* p, int64_t stride) {
    for (int64_t row = 0; row < shapes_[N].rows; row++)
      memcpy(data_[N][row], (const char*)p + row * stride, (size_t)shapes_[N].row_bytes);
  }
  template <int N>
  void load_once(const void* p, int64_t stride) {
    load<N>(p, stride);
  }
  template <int N>
  void store(void* p, int64_t stride) {
    for (int64_t row = 0; row < shapes_[N].rows; row++)
      memcpy((char*)p + row * stride, data_[N][row], (size_t)shapes_[N].row_bytes);
  }
  template <int SUMS, int ROWS, int WEIGHTS>
  void multiply_bf16() {
    for (int64_t row = 0; row < shapes_[SUMS].rows; row++)
      tile_sum(data_[SUMS][row], data_[ROWS][row], data_[WEIGHTS], shapes_[ROWS].row_bytes / 4);
  }
  template <int SUMS, int ROWS, int WEIGHTS>
  void multiply_int8() {
    for (int64_t row = 0; row < shapes_[SUMS].rows; row++) {
      __m512i sum = _mm512_loadu_si512(data_[SUMS][row]);
      for (int64_t k = 0; k < shapes_[ROWS].row_bytes / 4; k++) {
        int32_t four;
        memcpy(&four, data_[ROWS][row] + 4 * k, 4);
        sum = _mm512_dpbusd_epi32(sum, _mm512_loadu_si512(data_[WEIGHTS][k]),
                                  _mm512_set1_epi32(four));
      }
      _mm512_storeu_si512(data_[SUMS][row], sum);
    }
  }

 private:
  typedef char Tile[TILE_HEIGHT][TILE_WIDTH];

  // Inputs at even places are summed in order, and so are those at odd places; the two sums are added,
  // and then added to what was there. Intel's manual describes TDPBF16PS in this way.
  static void tile_sum(char* sums, const char* inputs, const Tile& weights, int64_t num_pairs) {
    __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
    for (int64_t k = 0; k < num_pairs; k++) {
      uint32_t pair;
      memcpy(&pair, inputs + 4 * k, 4);
      const __m512i w = _mm512_loadu_si512(weights[k]), x = _mm512_set1_epi32((int)pair);
      even = _mm512_fmadd_ps(first_of(x), first_of(w), even);
      odd = _mm512_fmadd_ps(second_of(x), second_of(w), odd);
    }
    const __m512 sum = _mm512_add_ps(even, odd);
    _mm512_storeu_ps(sums, _mm512_add_ps(_mm512_loadu_ps(sums), sum));
  }
  static __m512 first_of(__m512i pairs) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
  }
  static __m512 second_of(__m512i pairs) {
    return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000u)));
  }

  alignas(64) Tile data_[NUM_TILES];
  TileShape shapes_[NUM_TILES];
};

}  // namespace PW_ISA
