// index: what loops over places that are data call.
#pragma once
#include "cpu/shared/simd.h"

namespace graphc {
// Calls body<N>(i) for the first element of each register of a run of RUN neighbours of EXTENT, where
// N of its lanes live.
template <long EXTENT, long RUN, class Body> INLINE void registers(long first, const Body& body) {
  const long stop = least(first + RUN, EXTENT);
  long i = first;
  for (; i + W <= stop; i += W) body.template operator()<W>(i);
  if constexpr (EXTENT % W != 0)
    if (i < stop) body.template operator()<EXTENT % W>(i);
}

// Of single elements.
template <class T>
  requires requires(T x) { static_cast<bool>(x); }
INLINE T maximum(T a, T b) {
  return a > b || a != a ? a : b;
}
template <class T>
  requires requires(T x) { static_cast<bool>(x); }
INLINE T minimum(T a, T b) {
  return a < b || a != a ? a : b;
}
}  // namespace graphc
