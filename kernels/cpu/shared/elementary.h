// Elementary functions of registers. In float32: polynomials and exponent arithmetic, with errors
// of a few units in the last place over the whole range, and NaN, infinities, zeros and denormals
// by IEEE; only sines of arguments beyond 2^30 leave the vector registers. In other dtypes: the C
// library's functions, lane by lane.
//
// The bits do not depend on the instruction set: operators, roots and fused multiply-adds are
// rounded correctly on each, and where AVX-512 has an instruction of its own it is said why its
// result is the same. Approximate reciprocals are not used.
#pragma once
#include "cpu/shared/simd.h"

namespace graphc {
#define GRAPHC_EACH(l) for (int l = 0; l < W; l++)

INLINE vec<int32_t> bits(vec<float> x) { return (vec<int32_t>)x; }
// The nearest with 10 bits of fraction, ties to even.
INLINE vec<float> to_tf32(vec<float> x) {
  const vec<uint32_t> u = (vec<uint32_t>)x;
  const auto is_nan = x != x;
  return is_nan ? x : (vec<float>)((u + 0xfff + (u >> 13 & 1)) & ~0x1fffu);
}
INLINE vec<float> from_bits(vec<int32_t> x) { return (vec<float>)x; }

template <class V> INLINE mask isnan(V x) { return as_mask(x != x); }
INLINE vec<float> abs(vec<float> x) { return from_bits(bits(x) & 0x7fffffff); }
template <class V> INLINE V abs(V x) { return select(x < V{}, -x, x); }
INLINE vec<double> abs(vec<double> x) { return (vec<double>)((vec<int64_t>)x & INT64_MAX); }
INLINE vec<double> copysign(vec<double> x, vec<double> sign) {
  return (vec<double>)(((vec<int64_t>)x & INT64_MAX) | ((vec<int64_t>)sign & INT64_MIN));
}
INLINE vec<float> copysign(vec<float> x, vec<float> sign) {
  return from_bits((bits(x) & 0x7fffffff) | (bits(sign) & INT32_MIN));
}

// NaN in either argument is the result.
template <class V> INLINE V maximum(V a, V b) { return select((a > b) | (a != a), a, b); }
template <class V> INLINE V minimum(V a, V b) { return select((a < b) | (a != a), a, b); }
template <class V> INLINE V relu(V x) { return select(x <= V{}, V{}, x); }
template <class V> INLINE V relu_grad(V d, V y) { return select(y <= V{}, V{}, d); }

// Of the vector extension's operators there is no root.
template <class V> INLINE V sqrt(V x) {
#if defined(GRAPHC_AVX512)
  if constexpr (__is_same(V, vec<float>))
    return __builtin_ia32_sqrtps512_mask(x, x, (unsigned short)-1, 4);
#elif defined(GRAPHC_AVX2)
  if constexpr (__is_same(V, vec<float>)) return __builtin_ia32_sqrtps256(x);
#endif
  if constexpr (is_wide<element<V>>) {
    for (int l = 0; l < W / 2; l++) x.low[l] = __builtin_sqrt(x.low[l]);
    for (int l = 0; l < W / 2; l++) x.high[l] = __builtin_sqrt(x.high[l]);
  } else GRAPHC_EACH(l) x[l] = __builtin_sqrtf(x[l]);
  return x;
}
template <class V> INLINE V rsqrt(V x) { return element<V>(1) / sqrt(x); }

// 2^n for n in [-126, 127].
INLINE vec<float> power_of_two(vec<int32_t> n) { return from_bits((n + 127) << 23); }
// p * 2^n for n in [-252, 254]: two factors, so that the result may be infinite or denormal. The first product is exact and the
// second rounded, or flushed to zero, as vscalefps does once, which multiplies by 2^floor(n).
INLINE vec<float> scale(vec<float> p, vec<float> n) {
#if defined(GRAPHC_AVX512)
  return __builtin_ia32_scalefps512_mask(p, n, p, (unsigned short)-1, 4);
#else
  const vec<int32_t> whole = convert<int32_t>(n), half = whole >> 1;
  return p * power_of_two(half) * power_of_two(whole - half);
#endif
}
// For |x| < 2^22, ties to even. The instruction keeps the sign of a zero, which makes no difference to what is computed here from n:
// fma(c, n, x) is x for either zero where x is not 0, and 0 + 0 or -0 + 0 where it is; 2^n is 1.
INLINE vec<float> nearest(vec<float> x) {
#if defined(GRAPHC_AVX512)
  return __builtin_ia32_rndscaleps_mask(x, 8, x, (unsigned short)-1, 4);
#else
  return (x + 12582912.f) - 12582912.f;
#endif
}

// x = n ln 2 + r with |r| <= ln 2 / 2.
struct ByLn2 {
  vec<float> n, r;
};
INLINE ByLn2 reduce_by_ln2(vec<float> x) {
  const vec<float> n = nearest(x * 1.44269504f);
  return {n, fma(2.12194440e-4f, n, fma(-0.693359375f, n, x))};
}
// (e^r - 1 - r) / r^2
INLINE vec<float> exp_tail(vec<float> r) {
  return horner(r, 1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f,
                1.6666665459e-1f, 5.0000001201e-1f);
}
// A NaN stays: the instructions give their second operand where one is NaN.
INLINE vec<float> clamp(vec<float> x, float low, float high) {
#if defined(GRAPHC_AVX512)
  x = __builtin_ia32_maxps512_mask(splat(low), x, x, (unsigned short)-1, 4);
  return __builtin_ia32_minps512_mask(splat(high), x, x, (unsigned short)-1, 4);
#else
  x = x < low ? splat(low) : x;
  return x > high ? splat(high) : x;
#endif
}
INLINE vec<float> exp_within(vec<float> x) {  // of x in [-104, 89]
  const auto [n, r] = reduce_by_ln2(x);
  return scale(fma(fma(exp_tail(r), r, splat(1.f)), r, splat(1.f)), n);
}
INLINE vec<float> exp(vec<float> x) { return exp_within(clamp(x, -104.f, 89.f)); }
INLINE vec<float> expm1(vec<float> x) {
  x = clamp(x, -20.f, 89.f);
  const auto [n, r] = reduce_by_ln2(x);
  const vec<float> small = fma(exp_tail(r) * r, r, r);
  const vec<float> half = power_of_two(convert<int32_t>(n) - 1);  // half, as 2^128 is out of range
  return copysign(n == 0 ? small : fma(small, half, half - 0.5f) * 2.f, x);
}

INLINE vec<float> log(vec<float> x) {
  const mask denormal = x < 1.17549435e-38f;
  const vec<float> y = denormal ? x * 8388608.f : x;
  // y = m 2^e with m in [sqrt(1/2), sqrt(2))
  const vec<int32_t> raised = bits(y) - 0x3f3504f3;
  const vec<float> e = convert<float>((raised >> 23) - (denormal & 23));
  const vec<float> m = from_bits((raised & 0x7fffff) + 0x3f3504f3) - 1.f;
  const vec<float> z = m * m;
  const vec<float> p = horner(m, 7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f,
                              -1.2420140846e-1f, 1.4249322787e-1f, -1.6668057665e-1f,
                              2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f);
  vec<float> result = fma(-2.12194440e-4f, e, p * m * z);
  result = fma(0.693359375f, e, m + fma(-0.5f, z, result));
  result = x == __builtin_inff() ? x : result;
  result = x == 0.f ? splat(-__builtin_inff()) : result;
  return (x < 0.f) | (x != x) ? splat(__builtin_nanf("")) : result;
}
INLINE vec<float> log1p(vec<float> x) {
  const vec<float> u = x + 1.f;
  const vec<float> result = log(u) + (x - (u - 1.f)) / u;  // what rounding took from u
  const mask plain = (u == 0.f) | (u == __builtin_inff());
  return u == 1.f ? x : plain ? log(u) : result;
}

// A rational approximation, odd in x, within 5.3 units in the last place, that never exceeds 1 and reaches it at the clamp. Fitted
// for the least relative error with p(0) = q(0), so that small x need no care.
INLINE vec<float> tanh(vec<float> x) {
  const vec<float> y = clamp(x, -8.2759f, 8.2759f), z = y * y;
  const vec<float> p = horner(z, 2.08959777e-11f, -1.37908076e-08f, 9.59940371e-06f,
                              2.95684603e-03f, 1.29527256e-01f, 1.f);
  const vec<float> q = horner(z, 2.33103725e-04f, 2.39106584e-02f, 4.62860376e-01f, 1.f);
  return y * (p / q);
}
INLINE vec<float> sigmoid(vec<float> x) {
  const vec<float> e = exp_within(clamp(x, -104.f, 88.f));  // a greater e would overflow
  return e / (1.f + e);
}
INLINE vec<float> erf(vec<float> x) {  // the same; 1 from where it rounds to it
  const vec<float> y = clamp(x, -3.8325069f, 3.8325069f), z = y * y;
  const vec<float> p = horner(z, 2.1237322e-06f, 2.8619796e-04f, 3.6580483e-03f, 5.2433021e-02f,
                              1.8741608e-01f, 1.1283791e+00f);
  const vec<float> q = horner(z, 3.8918573e-05f, 1.1432960e-03f, 1.4752088e-02f, 1.1294568e-01f,
                              4.9942580e-01f, 1.f);
  return abs(x) > 3.8325069f ? copysign(splat(1.f), x) : y * (p / q);
}

INLINE vec<float> floor(vec<float> x) {
  const vec<float> whole = convert<float>(convert<int32_t>(x));
  const vec<float> down = copysign(whole > x ? whole - 1.f : whole, x);
  return abs(x) < 8388608.f ? down : x;
}

// sin (phase 0) or cos (phase 1). The reduction by pi / 2 is done in double precision.
static __attribute__((noinline, cold)) float far_sine(float x, int phase) {
  return phase ? float(__builtin_cos(double(x))) : float(__builtin_sin(double(x)));
}
INLINE vec<float> sine(vec<float> x, int phase) {
  const vec<double> wide = convert<double>(x);
  const vec<double> n =
      fma(0.63661977236758134, wide, splat(6755399441055744.0)) - 6755399441055744.0;
  const vec<float> r =
      convert<float>(fma(-6.123233995736766e-17, n, fma(-1.5707963267948966, n, wide)));
  const vec<int32_t> quadrant = convert<int32_t>(n) + phase;
  const vec<float> z = r * r;
  const vec<float> odd =
      fma(horner(z, -1.9515295891e-4f, 8.3321608736e-3f, -1.6666654611e-1f) * z, r, r);
  const vec<float> even =
      fma(horner(z, 2.443315711809948e-5f, -1.388731625493765e-3f, 4.166664568298827e-2f) * z, z,
          z * -0.5f) +
      1.f;
  vec<float> result = (quadrant & 1) != 0 ? even : odd;
  result = from_bits(bits(result) ^ ((quadrant & 2) << 30));
  const mask far = ~(abs(x) < 1073741824.f);
  bool any = false;
  GRAPHC_EACH(l) any |= far[l] != 0;
  if (__builtin_expect(any, false)) GRAPHC_EACH(l) if (far[l]) result[l] = far_sine(x[l], phase);
  return x == 0.f && phase == 0 ? x : result;
}
INLINE vec<float> sin(vec<float> x) { return sine(x, 0); }
INLINE vec<float> cos(vec<float> x) { return sine(x, 1); }

// x^y = 2^(y log2 x) in double precision, whose 53 bits leave a float's 24 whole for any exponent that does not overflow.
INLINE vec<double> log2_wide(
    vec<float> x) {  // positive and finite, denormals too: exact as doubles
  const vec<int64_t> raised = (vec<int64_t>)convert<double>(x) - 0x3fe6a09e667f3bcdll;
  const vec<double> e = convert<double>(raised >> 52);
  const vec<double> m = (vec<double>)((raised & 0xfffffffffffffll) + 0x3fe6a09e667f3bcdll);
  const vec<double> s = (m - 1.0) / (m + 1.0), z = s * s;  // log m = 2 atanh s, |s| < 0.172
  const vec<double> p =
      horner(z, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3);
  return fma(2.8853900817779268, fma(p * z, s, s), e);
}
INLINE vec<float> exp2_wide(vec<double> x) {
  x = select(x < -160.0, splat(-160.0), x);
  x = select(x > 130.0, splat(130.0), x);
  const vec<double> n = (x + 6755399441055744.0) - 6755399441055744.0;
  const vec<double> r = (x - n) * 0.69314718055994531;
  vec<double> p = horner(r, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5);
  p = fma(p * r, r, r) + 1.0;
  return convert<float>(p * (vec<double>)((convert<int64_t>(n) + 1023) << 52));
}
INLINE vec<float> pow(vec<float> x, vec<float> y) {
  const float infinity = __builtin_inff();
  const vec<float> size = abs(x), half = y * 0.5f;
  const mask whole = (floor(y) == y) & (abs(y) < infinity);
  const mask odd = whole & (floor(half) != half);
  vec<float> result = exp2_wide(convert<double>(y) * log2_wide(size));
  const mask vanishes = (size == 0.f) | (size == infinity);
  result = vanishes ? ((size == 0.f) == (y < 0.f) ? splat(infinity) : vec<float>{}) : result;
  const vec<float> limit = (size > 1.f) == (y > 0.f) ? splat(infinity) : vec<float>{};
  result = abs(y) == infinity ? (size == 1.f ? splat(1.f) : limit) : result;
  const mask negative = bits(x) < 0;
  result = negative & odd ? -result : result;
  result = (x < 0.f) & ~whole & (size < infinity) & (abs(y) < infinity) ? splat(__builtin_nanf(""))
                                                                        : result;
  result = (x != x) | (y != y) ? splat(__builtin_nanf("")) : result;
  return (x == 1.f) | (y == 0.f) ? splat(1.f) : result;
}

// Double precision.
#define GRAPHC_LIBRARY(name)                      \
  INLINE vec<double> name(vec<double> x) {        \
    GRAPHC_EACH(l) x[l] = __builtin_##name(x[l]); \
    return x;                                     \
  }
GRAPHC_LIBRARY(exp)
GRAPHC_LIBRARY(expm1)
GRAPHC_LIBRARY(log)
GRAPHC_LIBRARY(log1p)
GRAPHC_LIBRARY(tanh)
GRAPHC_LIBRARY(erf)
GRAPHC_LIBRARY(floor)
GRAPHC_LIBRARY(sin)
GRAPHC_LIBRARY(cos)
#undef GRAPHC_LIBRARY
INLINE vec<double> sigmoid(vec<double> x) {
  const vec<double> e = exp(-abs(x)), positive = 1.0 / (1.0 + e);
  return select(x < 0.0, positive * e, positive);
}
INLINE vec<double> pow(vec<double> x, vec<double> y) {
  GRAPHC_EACH(l) x[l] = __builtin_pow(x[l], y[l]);
  return x;
}

// Integers. Dead lanes hold zeros, and no quotient may trap: by 0 it is 0, as in NumPy; by -1 it is the negative, which wraps.
template <class V> INLINE V floor(V x) { return x; }
template <class V> INLINE V pow(V x, V y) {
  V result = V{} + element<V>(1);
  for (int bit = 0; bit < 63; bit++) {
    if (!any(as_mask(y > V{}))) break;
    result = select((y & 1) != V{}, result * x, result);
    x *= x;
    y >>= 1;
  }
  return result;
}
template <class V> INLINE V without_traps(V b) {  // 1 for 0 and -1
  const V one = V{} + element<V>(1), nonzero = select(b == V{}, one, b);
  if constexpr (element<V>(-1) > 0) return nonzero;
  else return select(nonzero == V{} - one, one, nonzero);
}
// Where a remainder is not 0 and its sign not that of b.
template <class V> INLINE auto differ(V r, V b) { return (r != V{}) & ((r < V{}) != (b < V{})); }
template <class V> INLINE V floor_divide(V a, V b) {
  if constexpr (element<V>(0.5) != 0) {
    // From the exact remainder, as NumPy does: a / b may round up to the next integer. That of the sign of a, which is finite where b is not.
    V r;
    GRAPHC_EACH(l)
    r[l] = sizeof(element<V>) == 4 ? __builtin_fmodf(a[l], b[l]) : __builtin_fmod(a[l], b[l]);
    const V whole = (a - r) / b, quotient = select(differ(r, b), whole - element<V>(1), whole),
            below = floor(quotient);
    const V near = select(quotient - below > element<V>(0.5), below + element<V>(1), below);
    return select(b == V{}, a / b, select(near == V{}, copysign(V{}, a / b), near));
  } else {
    const V safe = without_traps(b), quotient = a / safe;
    const V down = select(differ(a % safe, safe), quotient - element<V>(1), quotient);
    return select(b == V{}, V{}, select(b == safe, down, V{} - a));
  }
}
template <class V> INLINE V remainder(V a, V b) {  // of the sign of b
  if constexpr (element<V>(0.5) != 0) {
    V r;
    GRAPHC_EACH(l)
    r[l] = sizeof(element<V>) == 4 ? __builtin_fmodf(a[l], b[l]) : __builtin_fmod(a[l], b[l]);
    return select(r == V{}, copysign(V{}, b), select(differ(r, b), r + b, r));
  } else {
    const V safe = without_traps(b), r = a % safe;
    return select(b == V{}, V{}, select(differ(r, safe), r + safe, r));
  }
}
#undef GRAPHC_EACH
}  // namespace graphc
