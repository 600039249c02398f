// Products of rows two at a time, for instruction sets that multiply small matrices: two rows of the
// input by two columns.
//
// RowPairs of a type says how; a set that has such instructions includes them (sets/pairs_neon.h).
// One row alone is multiplied by vectors, and has the same bits.
#pragma once

namespace PW_ISA {

template <class T>
struct RowPairs {
  static constexpr bool EXISTS = false;
};

}  // namespace PW_ISA

#ifdef PW_ROW_PAIRS
#include PW_ROW_PAIRS
#endif
