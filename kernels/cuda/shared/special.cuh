// special.cuh: special functions of scalars, and the greatest common divisor.
#pragma once
#include "cuda/shared/math.cuh"
#define GRAPHC_SPECIAL GRAPHC_INLINE
#include "special_functions.h"
#undef GRAPHC_SPECIAL

namespace graphc {

#define GRAPHC_WIDE(name)                                                                  \
  GRAPHC_INLINE float name(float x) { return static_cast<float>(wide_##name<double>(x)); } \
  GRAPHC_INLINE double name(double x) { return wide_##name(x); }
GRAPHC_EACH_SPECIAL(GRAPHC_WIDE)
#undef GRAPHC_WIDE
GRAPHC_INLINE float lgamma(float x) { return static_cast<float>(wide_lgamma<double>(x)); }
GRAPHC_INLINE double lgamma(double x) { return ::lgamma(x); }
template <int N>
GRAPHC_INLINE float polygamma(float x) {
  return static_cast<float>(wide_polygamma(N, static_cast<double>(x)));
}
template <int N>
GRAPHC_INLINE double polygamma(double x) {
  return wide_polygamma(N, x);
}

// By Euclid's algorithm; gcd(a, 0) = |a|. The least number has no magnitude, so that signs may come up again.
template <class T>
GRAPHC_INLINE T gcd(T a, T b) {
  if constexpr (T(-1) < T(0)) {
    a = a < T(0) ? static_cast<T>(-a) : a;
    b = b < T(0) ? static_cast<T>(-b) : b;
  }
  while (b != T(0)) {
    const T rest = static_cast<T>(a % b);
    a = b;
    b = rest;
  }
  return a < T(0) ? static_cast<T>(-a) : a;
}

}  // namespace graphc
