// index: what loops over places that are data call.
#pragma once
#include "cpu/shared/simd.h"

namespace graphc {
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
