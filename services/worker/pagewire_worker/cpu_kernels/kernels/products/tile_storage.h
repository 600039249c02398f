// How tiles multiply each storage of a matrix.
//
// Weights become tiles [depth / 4 bytes][16 outputs][4 bytes], one after the other along K. Panels of
// bfloat16 and int8 are such tiles already. Those of int4 and of codes are widened, some groups at a
// time, into a head of 64 bytes per 16 scales and the tiles of the group.
#pragma once

namespace PW_ISA {

// With fewer rows than LEAST_ROWS, sums come from the vector instructions: they have the same bits.
static constexpr int64_t INT8_TILE_ROWS = 9, INT4_TILE_ROWS = 16;

// A storage without tiles, by default.
template <class T>
struct TileStorage {
  static constexpr bool EXISTS = false;
};

template <>
struct TileStorage<BFloat16> {
  static constexpr bool EXISTS = HAS_TILES, IS_INTEGER = false;
  static constexpr int64_t LEAST_ROWS = CHAINED_ROWS + 1;
};

template <>
struct TileStorage<Int8> {
  static constexpr bool EXISTS = HAS_TILES, IS_INTEGER = true;
  static constexpr int64_t LEAST_ROWS = INT8_TILE_ROWS;
};

template <>
struct TileStorage<Int4> {
  static constexpr bool EXISTS = HAS_TILES, IS_INTEGER = true;
  static constexpr int64_t LEAST_ROWS = INT4_TILE_ROWS;
  static inline int64_t group_bytes(const PwLinear& linear) {
    return GROUP_SCALES + linear.group * PANEL / 2;
  }
  static inline int64_t head_bytes(const PwLinear&) { return GROUP_SCALES; }
  static inline int64_t wide_bytes(const PwLinear& linear) {
    return GROUP_SCALES + linear.group * PANEL;
  }
  // Widen one group of a panel.
  static inline void widen(const PwLinear& linear, const GroupHead& group, uint8_t* out) {
    store((float*)out, load((const float*)group.head));
    const uint8_t* from = group.head + GROUP_SCALES;
    uint8_t* to = out + GROUP_SCALES;
    for (int64_t k = 0; k < linear.group; k += 8, from += 4 * PANEL, to += 8 * PANEL) {
      VI both = bytes(from);
      store((float*)to, low_nibbles(both));
      store((float*)(to + 4 * PANEL), high_nibbles(both));
    }
  }
  // sums [16] += scaled `part`, the product of one group of a row.
  static inline void add_group(const PwLinear& linear, const int8_t* row, const float*, int64_t g,
                               const uint8_t* head, const float* part, float* sums) {
    VI offset = integers(Int4::OFFSET * sums_of(row, linear.num_inputs)[g]);
    V whole = to_floats(subtract(load_integers(part), offset));
    store(sums, fma(whole, load((const float*)head), load(sums)));
  }
};

template <int BITS>
struct TileStorage<Codes<BFloat16, BITS>> {
  static constexpr bool EXISTS = HAS_TILES, IS_INTEGER = false;
  static constexpr int64_t LEAST_ROWS = 1;
  typedef Codes<BFloat16, BITS> Source;
  typedef Codes<BFloat16, WIDENED> Target;
  static inline int64_t group_bytes(const PwLinear& linear) { return Source::group_bytes(linear); }
  static inline int64_t head_bytes(const PwLinear& linear) {
    return coded_head_bytes(widened(linear));
  }
  static inline int64_t wide_bytes(const PwLinear& linear) {
    return Target::group_bytes(widened(linear));
  }
  static inline void widen(const PwLinear& linear, const GroupHead& group, uint8_t* out) {
    widen_group<BFloat16, BITS>(linear, group, out);
  }
  static inline void add_group(const PwLinear& linear, const Bf16*, const float* totals, int64_t g,
                               const uint8_t* head, const float* part, float* sums) {
    V sum = fma(load(part), load((const float*)head), load(sums));
    if (linear.offset_kind != PW_NO_OFFSETS)
      sum = fma(load((const float*)head + PANEL), set1(totals[g]), sum);
    store(sums, sum);
  }
};

}  // namespace PW_ISA
