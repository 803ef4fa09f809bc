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
INLINE vec<float> floor(vec<float> x) {
  const vec<float> whole = convert<float>(convert<int32_t>(x));
  const vec<float> down = copysign(whole > x ? whole - 1.f : whole, x);
  return abs(x) < 8388608.f ? down : x;
}
static __attribute__((noinline, cold)) float far_sine(float x, int phase) {
  return phase ? float(__builtin_cos(double(x))) : float(__builtin_sin(double(x)));
}
INLINE vec<float> sines_beyond(mask far, vec<float> x, int phase, vec<float> near) {
  bool any = false;
  GRAPHC_EACH(l) any |= far[l] != 0;
  if (__builtin_expect(any, false)) GRAPHC_EACH(l) if (far[l]) near[l] = far_sine(x[l], phase);
  return near;
}

using F32 = vec<float>;
using I32 = vec<int32_t>;
using U32 = vec<uint32_t>;
using F64 = vec<double>;
using I64 = vec<int64_t>;
using U64 = vec<uint64_t>;
INLINE I64 bits(F64 x) { return (I64)x; }
INLINE F64 from_bits(I64 x) { return (F64)x; }
INLINE mask logical_not(mask m) { return ~m; }
INLINE I32 subtract(I32 a, int32_t b) { return a - b; }
INLINE I64 subtract(I64 a, int64_t b) { return a - b; }
INLINE I32 masked(mask m, int32_t n) { return m & n; }
template <class V> INLINE F32 to_f32(V x) { return convert<float>(x); }
template <class V> INLINE F64 to_f64(V x) { return convert<double>(x); }
template <class V> INLINE I32 to_i32(V x) { return convert<int32_t>(x); }
template <class V> INLINE I64 to_i64(V x) { return convert<int64_t>(x); }
#define GRAPHC_ELEMENTARY INLINE
#define OF_F32(name) name
#include "elementary_functions.h"

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
