// Trigonometric and hyperbolic functions and their inverses, rounding, other bases, signs and bits,
// as accurate as elementary.h. The polynomials of asin and atan are those of Moshier's Cephes
// library.
#pragma once
#include "cpu/shared/elementary.h"

namespace graphc {
#define GRAPHC_EACH(l) for (int l = 0; l < W; l++)
constexpr float PI = 3.14159265f, HALF_PI = 1.57079633f, QUARTER_PI = 0.785398163f,
                LN_2 = 0.693147181f;

INLINE vec<float> ceil(vec<float> x) { return -floor(-x); }
INLINE vec<float> round_even(vec<float> x) {  // adding 2^23 leaves no place for a fraction
  const vec<float> size = abs(x), whole = (size + 8388608.f) - 8388608.f;
  return size < 8388608.f ? copysign(whole, x) : x;
}
INLINE vec<float> trunc(vec<float> x) { return copysign(floor(abs(x)), x); }
INLINE mask signbit(vec<float> x) { return bits(x) < 0; }

INLINE vec<float> tan(vec<float> x) { return sin(x) / cos(x); }
// The arc sine of s = |x|, or of sqrt((1 - |x|) / 2) where |x| > 1/2; NaN where |x| > 1.
INLINE vec<float> folded_asin(vec<float> size) {
  const mask folded = size > 0.5f;
  const vec<float> z = folded ? (1.f - size) * 0.5f : size * size, s = folded ? sqrt(z) : size;
  const vec<float> p = horner(z, 4.2163199048e-2f, 2.4181311049e-2f, 4.5470025998e-2f,
                              7.4953002686e-2f, 1.6666752422e-1f);
  return fma(p * z, s, s);
}
INLINE vec<float> asin(vec<float> x) {
  const vec<float> size = abs(x), angle = folded_asin(size);
  return copysign(size > 0.5f ? HALF_PI - angle * 2.f : angle, x);
}
INLINE vec<float> acos(vec<float> x) {
  const vec<float> size = abs(x), angle = folded_asin(size);
  const vec<float> outer = x < 0.f ? PI - angle * 2.f : angle * 2.f;
  return size > 0.5f ? outer : HALF_PI - copysign(angle, x);
}
INLINE vec<float> atan(vec<float> x) {
  const vec<float> size = abs(x);
  const mask far = size > 2.41421356f, middle = (size > 0.414213562f) & ~far;
  const vec<float> y = far ? -1.f / size : middle ? (size - 1.f) / (size + 1.f) : size;
  const vec<float> start = far ? splat(HALF_PI) : middle ? splat(QUARTER_PI) : vec<float>{};
  const vec<float> z = y * y;
  const vec<float> p =
      horner(z, 8.05374449538e-2f, -1.38776856032e-1f, 1.99777106478e-1f, -3.33329491539e-1f);
  return copysign(start + fma(p * z, y, y), x);
}
INLINE vec<float> atan2(vec<float> y, vec<float> x) {
  const vec<float> rise = abs(y), run = abs(x);
  const mask steep = rise > run;
  const vec<float> low = steep ? run : rise, high = steep ? rise : run;
  const vec<float> quotient = low == high ? (low == 0.f ? vec<float>{} : splat(1.f)) : low / high;
  vec<float> angle = atan(quotient);
  angle = steep ? HALF_PI - angle : angle;
  angle = signbit(x) ? PI - angle : angle;
  return (x != x) | (y != y) ? splat(__builtin_nanf("")) : copysign(angle, y);
}
INLINE vec<float> hypot(vec<float> x,
                        vec<float> y) {  // squares of floats do not overflow as doubles
  const vec<double> a = convert<double>(x), b = convert<double>(y);
  const mask infinite = (abs(x) == __builtin_inff()) | (abs(y) == __builtin_inff());
  return infinite ? splat(__builtin_inff()) : convert<float>(sqrt(a * a + b * b));
}

INLINE vec<float> sinh(vec<float> x) {
  const vec<float> size = abs(x), e = expm1(size), root = exp(size * 0.5f);
  return copysign(size > 80.f ? root * 0.5f * root : (e + e / (e + 1.f)) * 0.5f, x);
}
INLINE vec<float> cosh(vec<float> x) {
  const vec<float> size = abs(x), e = exp(size), root = exp(size * 0.5f);
  return size > 80.f ? root * 0.5f * root : e * 0.5f + 0.5f / e;
}
INLINE vec<float> asinh(vec<float> x) {
  const vec<float> size = abs(x), square = size * size;
  const vec<float> near = log1p(size + square / (sqrt(square + 1.f) + 1.f));
  return copysign(size > 1e9f ? log(size) + LN_2 : near, x);
}
INLINE vec<float> acosh(vec<float> x) {
  const vec<float> above = x - 1.f, near = log1p(above + sqrt(above * (above + 2.f)));
  return x < 1.f ? splat(__builtin_nanf("")) : x > 1e9f ? log(x) + LN_2 : near;
}
INLINE vec<float> atanh(vec<float> x) {
  const vec<float> size = abs(x);
  return copysign(log1p(size * 2.f / (1.f - size)) * 0.5f, x);
}

INLINE vec<float> exp2(vec<float> x) { return exp2_wide(convert<double>(x)); }
INLINE vec<float> scaled_log2(vec<float> x, double factor) {
  vec<float> result = convert<float>(log2_wide(x) * factor);
  result = x == __builtin_inff() ? x : result;
  result = x == 0.f ? splat(-__builtin_inff()) : result;
  return (x < 0.f) | (x != x) ? splat(__builtin_nanf("")) : result;
}
INLINE vec<float> log2(vec<float> x) { return scaled_log2(x, 1.0); }
INLINE vec<float> log10(vec<float> x) { return scaled_log2(x, 0.30102999566398120); }

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
