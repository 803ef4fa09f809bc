// Products and sums that are rounded once. Kernels are compiled without leave to fuse others: what is not written so is rounded
// twice, whatever the compiler and the instruction set.
#pragma once
#include "cpu/shared/convert.h"

#if defined(__clang__)  // from clang 16 on; without it each lane is a scalar instruction
#define GRAPHC_ELEMENTWISE_FMA __has_builtin(__builtin_elementwise_fma)
#else
#define GRAPHC_ELEMENTWISE_FMA 0
#endif

namespace graphc {
INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
INLINE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }

INLINE vec<float> fma(vec<float> a, vec<float> b, vec<float> c) {
#if GRAPHC_ELEMENTWISE_FMA
  return __builtin_elementwise_fma(a, b, c);
#elif defined(__AVX512F__) && GRAPHC_LANES == 16 && !defined(__clang__)
  return __builtin_ia32_vfmaddps512_mask(a, b, c, (unsigned short)-1, 4);
#elif defined(__FMA__) && GRAPHC_LANES == 8 && !defined(__clang__)
  return __builtin_ia32_vfmaddps256(a, b, c);
#elif defined(__FMA__) && GRAPHC_LANES == 4 && !defined(__clang__)
  return __builtin_ia32_vfmaddps(a, b, c);
#else
  for (int l = 0; l < W; l++) c[l] = __builtin_fmaf(a[l], b[l], c[l]);
  return c;
#endif
}
INLINE Half<double> fma(Half<double> a, Half<double> b, Half<double> c) {
#if GRAPHC_ELEMENTWISE_FMA
  return __builtin_elementwise_fma(a, b, c);
#elif defined(__AVX512F__) && GRAPHC_LANES == 16 && !defined(__clang__)
  return __builtin_ia32_vfmaddpd512_mask(a, b, c, (unsigned char)-1, 4);
#elif defined(__FMA__) && GRAPHC_LANES == 8 && !defined(__clang__)
  return __builtin_ia32_vfmaddpd256(a, b, c);
#elif defined(__FMA__) && GRAPHC_LANES == 4 && !defined(__clang__)
  return __builtin_ia32_vfmaddpd(a, b, c);
#else
  for (int l = 0; l < W / 2; l++) c[l] = __builtin_fma(a[l], b[l], c[l]);
  return c;
#endif
}
INLINE vec<double> fma(vec<double> a, vec<double> b, vec<double> c) {
  return {fma(a.low, b.low, c.low), fma(a.high, b.high, c.high)};
}
// Integers are exact either way.
template <class V>
  requires(element<V>(0.5) == 0)
INLINE V fma(V a, V b, V c) {
  return a * b + c;
}
// A factor that is the same in all lanes.
template <class V> INLINE V fma(element<V> a, V b, V c) { return fma(splat(a), b, c); }

// c0 x^n + c1 x^(n - 1) + ... + cn, by Horner's rule.
template <class V, class... C> INLINE V horner(V x, element<V> first, C... coefficients) {
  V sum = splat(first);
  ((sum = fma(sum, x, splat(element<V>(coefficients)))), ...);
  return sum;
}
}  // namespace graphc
