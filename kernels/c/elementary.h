// Elementary and special functions in plain C: the texts that the CPU's registers are compiled from,
// with one float as a register. In float64 they are those of the C library.
#pragma once
#include "c/numbers.h"

typedef float F32;
typedef double F64;
typedef int32_t I32;
typedef uint32_t U32;
typedef int64_t I64;
typedef uint64_t U64;
typedef int mask;
#define GRAPHC_ELEMENTARY static inline
#define OF_F32(name) name##_f32
#define splat(x) (x)
#define logical_not(m) (!(m))
#define masked(m, n) ((m) ? (n) : 0)
#define to_f32(x) ((float)(x))
#define to_f64(x) ((double)(x))

// What no integer holds, which no result depends on, is the least one.
static inline int32_t to_i32(double x) {
  return x >= -0x1p31 && x < 0x1p31 ? (int32_t)x : INT32_MIN;
}
static inline int64_t to_i64(double x) {
  return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN;
}
static inline int32_t subtract_i32(int32_t a, int32_t b) {
  return (int32_t)((uint32_t)a - (uint32_t)b);
}
static inline int64_t subtract_i64(int64_t a, int64_t b) {
  return (int64_t)((uint64_t)a - (uint64_t)b);
}
#define subtract(a, b) _Generic((a), int32_t: subtract_i32, int64_t: subtract_i64)(a, b)

static inline float power_of_two(int32_t n) {
  return from_bits((int32_t)(((uint32_t)n + 127u) << 23));
}
static inline float scale(float p, float n) {
  const int32_t whole = to_i32(n), part = whole >> 1;
  return whole == INT32_MIN ? p * n : p * power_of_two(part) * power_of_two(whole - part);
}
static inline float clamp(float x, float low, float high) {
  return x < low ? low : x > high ? high : x;
}
static inline float sines_beyond(bool far, float x, int phase, float near) {
  return far ? (float)(phase ? cos((double)x) : sin((double)x)) : near;
}

static inline float horner_f32(float x, int n, const double* c) {
  float sum = (float)c[0];
  for (int i = 1; i < n; i++) sum = fmaf(sum, x, (float)c[i]);
  return sum;
}
static inline double horner_f64(double x, int n, const double* c) {
  double sum = c[0];
  for (int i = 1; i < n; i++) sum = fma(sum, x, c[i]);
  return sum;
}
static inline double polynomial_of(double x, int n, const double* c) {
  double sum = c[0];
  for (int i = 1; i < n; i++) sum = sum * x + c[i];
  return sum;
}
// Sum of c_k T_k(t) by Clenshaw's recurrence.
static inline double chebyshev_of(double t, int n, const double* c) {
  const double twice = t * 2.0;
  double b1 = 0.0, b2 = 0.0;
  for (int i = 0; i < n - 1; i++) {
    const double b = twice * b1 - b2 + c[i];
    b2 = b1;
    b1 = b;
  }
  return (twice * b1 * 0.5 - b2) + c[n - 1];
}
#define GRAPHC_LIST(...) \
  (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), (const double[]) { __VA_ARGS__ }
#define horner(x, ...) \
  _Generic((x), float: horner_f32, double: horner_f64)(x, GRAPHC_LIST(__VA_ARGS__))
#define polynomial(x, ...) polynomial_of(x, GRAPHC_LIST(__VA_ARGS__))
#define chebyshev(t, ...) chebyshev_of(t, GRAPHC_LIST(__VA_ARGS__))

#define fma(a, b, c) _Generic((a) * (b) + (c), float: fmaf, double: fma)(a, b, c)
#define sqrt(x) _Generic((x), float: sqrtf, double: sqrt)(x)
#define rsqrt(x) (1 / sqrt(x))
#define floor(x) _Generic((x), float: floorf, double: floor)(x)
#define ceil(x) _Generic((x), float: ceilf, double: ceil)(x)
#define trunc(x) _Generic((x), float: truncf, double: trunc)(x)
#define round_even(x) _Generic((x), float: rintf, double: rint)(x)
#define copysign(a, b) _Generic((a), float: copysignf, double: copysign)(a, b)
#define nextafter(a, b) _Generic((a), float: nextafterf, double: nextafter)(a, b)

// Functions of this header for floats, of the C library for doubles.
#define GRAPHC_FLOAT_OF(name, x) _Generic((x), float: name##_f32, double: name)
#define exp(x) GRAPHC_FLOAT_OF(exp, x)(x)
#define expm1(x) GRAPHC_FLOAT_OF(expm1, x)(x)
#define log(x) GRAPHC_FLOAT_OF(log, x)(x)
#define log1p(x) GRAPHC_FLOAT_OF(log1p, x)(x)
#define tanh(x) GRAPHC_FLOAT_OF(tanh, x)(x)
#define erf(x) GRAPHC_FLOAT_OF(erf, x)(x)
#define sin(x) GRAPHC_FLOAT_OF(sin, x)(x)
#define cos(x) GRAPHC_FLOAT_OF(cos, x)(x)
#define pow(x, y) GRAPHC_FLOAT_OF(pow, x)(x, y)
#define tan(x) GRAPHC_FLOAT_OF(tan, x)(x)
#define asin(x) GRAPHC_FLOAT_OF(asin, x)(x)
#define acos(x) GRAPHC_FLOAT_OF(acos, x)(x)
#define atan(x) GRAPHC_FLOAT_OF(atan, x)(x)
#define atan2(y, x) GRAPHC_FLOAT_OF(atan2, y)(y, x)
#define hypot(x, y) GRAPHC_FLOAT_OF(hypot, x)(x, y)
#define sinh(x) GRAPHC_FLOAT_OF(sinh, x)(x)
#define cosh(x) GRAPHC_FLOAT_OF(cosh, x)(x)
#define asinh(x) GRAPHC_FLOAT_OF(asinh, x)(x)
#define acosh(x) GRAPHC_FLOAT_OF(acosh, x)(x)
#define atanh(x) GRAPHC_FLOAT_OF(atanh, x)(x)
#define exp2(x) GRAPHC_FLOAT_OF(exp2, x)(x)
#define log2(x) GRAPHC_FLOAT_OF(log2, x)(x)
#define log10(x) GRAPHC_FLOAT_OF(log10, x)(x)
#define sigmoid(x) _Generic((x), float: sigmoid_f32, double: sigmoid_f64)(x)
#include "elementary_functions.h"
#include "trigonometric_functions.h"

static inline double sigmoid_f64(double x) {
  const double e = exp(-abs(x)), positive = 1.0 / (1.0 + e);
  return x < 0.0 ? positive * e : positive;
}

#define D double
#define GRAPHC_SPECIAL static inline
#include "special_functions.h"
#undef GRAPHC_SPECIAL
#undef D
#define GRAPHC_WIDE(name) \
  static inline float name##_f32(float x) { return (float)wide_##name(x); }
GRAPHC_EACH_SPECIAL(GRAPHC_WIDE)
GRAPHC_WIDE(lgamma)
#undef GRAPHC_WIDE
static inline float polygamma_f32(int n, float x) { return (float)wide_polygamma(n, x); }
#define GRAPHC_WIDE_OF(name, x) _Generic((x), float: name##_f32, double: wide_##name)
#define erfc(x) GRAPHC_WIDE_OF(erfc, x)(x)
#define erfcx(x) GRAPHC_WIDE_OF(erfcx, x)(x)
#define erfinv(x) GRAPHC_WIDE_OF(erfinv, x)(x)
#define ndtri(x) GRAPHC_WIDE_OF(ndtri, x)(x)
#define digamma(x) GRAPHC_WIDE_OF(digamma, x)(x)
#define i0e(x) GRAPHC_WIDE_OF(i0e, x)(x)
#define i1e(x) GRAPHC_WIDE_OF(i1e, x)(x)
#define sinc(x) GRAPHC_WIDE_OF(sinc, x)(x)
#define polygamma(n, x) GRAPHC_WIDE_OF(polygamma, x)(n, x)
#define lgamma(x) GRAPHC_FLOAT_OF(lgamma, x)(x)
