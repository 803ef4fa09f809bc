// Special functions of registers, the next float, and the greatest common divisor.
#pragma once
#include "cpu/shared/trigonometry.h"
#define GRAPHC_SPECIAL INLINE
#include "special_functions.h"
#undef GRAPHC_SPECIAL

extern "C" double lgamma_r(double,
                           int*);  // of the C library: lgamma itself writes a global variable

namespace graphc {
#define GRAPHC_EACH(l) for (int l = 0; l < W; l++)
#define GRAPHC_WIDE(name)                                                                          \
  INLINE vec<float> name(vec<float> x) { return convert<float>(wide_##name(convert<double>(x))); } \
  INLINE vec<double> name(vec<double> x) { return wide_##name(x); }
GRAPHC_EACH_SPECIAL(GRAPHC_WIDE)
#undef GRAPHC_WIDE
template <int N> INLINE vec<float> polygamma(vec<float> x) {
  return convert<float>(wide_polygamma(N, convert<double>(x)));
}
template <int N> INLINE vec<double> polygamma(vec<double> x) { return wide_polygamma(N, x); }

INLINE vec<float> lgamma(vec<float> x) { return convert<float>(wide_lgamma(convert<double>(x))); }
INLINE vec<double> lgamma(vec<double> x) {
  int sign;
  GRAPHC_EACH(l) x[l] = ::lgamma_r(x[l], &sign);
  return x;
}

template <class V> INLINE V nextafter(V a, V b) {
  GRAPHC_EACH(l)
  a[l] =
      sizeof(element<V>) == 4 ? __builtin_nextafterf(a[l], b[l]) : __builtin_nextafter(a[l], b[l]);
  return a;
}

// By Euclid's algorithm; gcd(a, 0) = |a|. The least number has no magnitude, so that signs may come up again.
template <class V> INLINE V gcd(V a, V b) {
  a = abs(a), b = abs(b);
  for (;;) {
    const auto done = b == V{};
    if (!any(as_mask(~done))) return abs(a);
    const V rest = a % select(done, V{} + element<V>(1), b);
    a = select(done, a, b);
    b = select(done, b, rest);
  }
}
#undef GRAPHC_EACH
}  // namespace graphc
