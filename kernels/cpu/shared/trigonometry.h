// Trigonometric and hyperbolic functions and their inverses, rounding, other bases, signs and bits,
// as accurate as elementary.h.
#pragma once
#include "cpu/shared/elementary.h"

namespace graphc {
#define GRAPHC_EACH(l) for (int l = 0; l < W; l++)
INLINE vec<float> ceil(vec<float> x) { return -floor(-x); }
INLINE vec<float> round_even(vec<float> x) {  // adding 2^23 leaves no place for a fraction
  const vec<float> size = abs(x), whole = (size + 8388608.f) - 8388608.f;
  return size < 8388608.f ? copysign(whole, x) : x;
}
INLINE vec<float> trunc(vec<float> x) { return copysign(floor(abs(x)), x); }
INLINE mask signbit(vec<float> x) { return bits(x) < 0; }

#include "trigonometric_functions.h"

// Double precision.
#define GRAPHC_LIBRARY(name, builtin)                \
  INLINE vec<double> name(vec<double> x) {           \
    GRAPHC_EACH(l) x[l] = __builtin_##builtin(x[l]); \
    return x;                                        \
  }
GRAPHC_LIBRARY(ceil, ceil)
GRAPHC_LIBRARY(round_even, rint)
GRAPHC_LIBRARY(trunc, trunc)
GRAPHC_LIBRARY(tan, tan)
GRAPHC_LIBRARY(asin, asin)
GRAPHC_LIBRARY(acos, acos)
GRAPHC_LIBRARY(atan, atan)
GRAPHC_LIBRARY(sinh, sinh)
GRAPHC_LIBRARY(cosh, cosh)
GRAPHC_LIBRARY(asinh, asinh)
GRAPHC_LIBRARY(acosh, acosh)
GRAPHC_LIBRARY(atanh, atanh)
GRAPHC_LIBRARY(exp2, exp2)
GRAPHC_LIBRARY(log2, log2)
GRAPHC_LIBRARY(log10, log10)
#undef GRAPHC_LIBRARY
#define GRAPHC_LIBRARY(name)                              \
  INLINE vec<double> name(vec<double> x, vec<double> y) { \
    GRAPHC_EACH(l) x[l] = __builtin_##name(x[l], y[l]);   \
    return x;                                             \
  }
GRAPHC_LIBRARY(atan2)
GRAPHC_LIBRARY(hypot)
#undef GRAPHC_LIBRARY
INLINE mask signbit(vec<double> x) { return as_mask((vec<int64_t>)x < 0); }

// What a quotient cut towards 0 leaves over; for integers 0 where b is 0.
template <class V> INLINE V fmod(V a, V b) {
  if constexpr (element<V>(0.5) != 0) {
    GRAPHC_EACH(l)
    a[l] = sizeof(element<V>) == 4 ? __builtin_fmodf(a[l], b[l]) : __builtin_fmod(a[l], b[l]);
    return a;
  } else return select(b == V{}, V{}, a % without_traps(b));
}

// Shifts by a number of bits that the type has not leave the sign alone, or nothing.
template <class V> INLINE V left_shift(V a, V b) {
  constexpr element<V> bits = 8 * sizeof(element<V>);
  const V exists = (V)((b >= 0) & (b < bits));
  return (a << (b & exists)) & exists;
}
template <class V> INLINE V right_shift(V a, V b) {
  constexpr element<V> bits = 8 * sizeof(element<V>);
  const V exists = (V)((b >= 0) & (b < bits));
  return ((a >> (b & exists)) & exists) | ((V)(a < 0) & ~exists);
}
#undef GRAPHC_EACH
}  // namespace graphc
