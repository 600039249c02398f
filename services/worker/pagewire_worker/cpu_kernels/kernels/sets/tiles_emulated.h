// The same tiles as in tiles_amx.h, in memory and with instructions of AVX-512: every bit of the
// results is equal, because the threads of a pool treat denormal numbers as 0, like AMX. For machines
// that have no AMX.
#pragma once
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

namespace PW_ISA {

static constexpr bool HAS_TILES = true;
static constexpr int64_t TILE_HEIGHT = 16;

class Tiles {
 public:
  Tiles() = default;
  Tiles(const Tiles&) = delete;

  void shape(int64_t first_rows, int64_t second_rows, int64_t depth) {
    const int weights = second_rows ? 6 : 5;
    for (int i = 0; i < 8; i++) {
      const bool is_second = second_rows && (i == 2 || i == 3 || i == 5);
      row_bytes_[i] = i == 4 || (i == 5 && second_rows) ? depth : 64;
      rows_[i] = i >= weights ? depth / 4 : is_second ? second_rows : first_rows;
    }
  }

  template <int N>
  void zero() {
    memset(data_[N], 0, sizeof(data_[N]));
  }
  template <int N>
  void load(const void* p, int64_t stride) {
    for (int64_t row = 0; row < rows_[N]; row++)
      memcpy(data_[N][row], (const char*)p + row * stride, (size_t)row_bytes_[N]);
  }
  template <int N>
  void store(void* p, int64_t stride) {
    for (int64_t row = 0; row < rows_[N]; row++)
      memcpy((char*)p + row * stride, data_[N][row], (size_t)row_bytes_[N]);
  }
  template <int SUMS, int ROWS, int WEIGHTS>
  void multiply_bf16() {
    for (int64_t row = 0; row < rows_[SUMS]; row++)
      tile_sum(data_[SUMS][row], data_[ROWS][row], data_[WEIGHTS], row_bytes_[ROWS] / 4);
  }
  template <int SUMS, int ROWS, int WEIGHTS>
  void multiply_int8() {
    for (int64_t row = 0; row < rows_[SUMS]; row++) {
      __m512i sum = _mm512_loadu_si512(data_[SUMS][row]);
      for (int64_t k = 0; k < row_bytes_[ROWS] / 4; k++) {
        int32_t four;
        memcpy(&four, data_[ROWS][row] + 4 * k, 4);
        sum = _mm512_dpbusd_epi32(sum, _mm512_loadu_si512(data_[WEIGHTS][k]),
                                  _mm512_set1_epi32(four));
      }
      _mm512_storeu_si512(data_[SUMS][row], sum);
    }
  }

 private:
  typedef char Tile[TILE_HEIGHT][64];

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

  alignas(64) Tile data_[8];
  int64_t rows_[8], row_bytes_[8];
};

}  // namespace PW_ISA
