// Addresses that are prefetched during a product.
#pragma once

namespace PW_ISA {

// Prefetches during the product of panels. Each panel has an address `ahead`, which moves on by one
// element for every 2^shift inputs; from input `turn` on, `later` takes its place.
//
// Passed by reference: the load of a copy would wait for all earlier stores, such as the results of a
// tile.
template <class T>
struct Prefetch {
  const typename T::Element* const* ahead;
  int shift;
  const typename T::Element* const* later;
  int64_t turn;
};

}  // namespace PW_ISA
