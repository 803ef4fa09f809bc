// Numbers in plain C: floats of two bytes, conversions, and arithmetic that C leaves open or that
// differs from operators. Names are those of the headers of other devices; a function of several
// types is a macro that selects by the type of its first argument.
//
// Results do not depend on the compiler if it keeps IEEE arithmetic: build with -ffp-contract=off, never with -ffast-math. Include this
// behind other headers, as some of its macros are named like functions of the C library.
#pragma once
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if FLT_EVAL_METHOD != 0
#error "floats are rounded to their own type after each operation: on x86 use SSE"
#endif
#if defined(__clang__) || defined(_MSC_VER)
#pragma STDC FP_CONTRACT OFF
#endif
#if !defined(__GNUC__)
#define __builtin_inff() INFINITY
#define __builtin_inf() ((double)INFINITY)
#define __builtin_nanf(text) NAN
#define __builtin_nan(text) ((double)NAN)
#endif

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

// The same bits as another type.
static inline int32_t bits_f32(float x) {
  int32_t y;
  memcpy(&y, &x, sizeof y);
  return y;
}
static inline float from_bits_i32(int32_t x) {
  float y;
  memcpy(&y, &x, sizeof y);
  return y;
}
static inline int64_t bits_f64(double x) {
  int64_t y;
  memcpy(&y, &x, sizeof y);
  return y;
}
static inline double from_bits_i64(int64_t x) {
  double y;
  memcpy(&y, &x, sizeof y);
  return y;
}
#define bits(x) _Generic((x), float: bits_f32, double: bits_f64)(x)
#define from_bits(x) _Generic((x), int32_t: from_bits_i32, int64_t: from_bits_i64)(x)

// Floats of two bytes, in memory alone: variables hold them as float.
typedef struct {
  uint16_t bits;
} half;
typedef struct {
  uint16_t bits;
} bfloat;

static inline float decode_bfloat(bfloat x) { return from_bits((int32_t)((uint32_t)x.bits << 16)); }
static inline bfloat encode_bfloat(float x) {
  const uint32_t u = (uint32_t)bits(x), upper = u >> 16;
  return (bfloat){(uint16_t)(x != x ? upper | 0x40 : (u + 0x7fff + (upper & 1)) >> 16)};
}
static inline float decode_half(half x) {
  const uint32_t size = x.bits & 0x7fffu, sign = (x.bits & 0x8000u) << 16, moved = size << 13;
  const uint32_t small = (uint32_t)bits((float)size * 0x1p-24f), normal = moved + (112u << 23);
  const uint32_t finite = size < 0x400 ? small : normal, special = moved | 0x7f800000u;
  return from_bits((int32_t)((size < 0x7c00 ? finite : special) | sign));
}
static inline half encode_half(float x) {
  const uint32_t u = (uint32_t)bits(x), size = u & 0x7fffffff;
  const uint32_t small = (uint32_t)bits(from_bits((int32_t)size) + 0.5f) - 0x3f000000u;
  const uint32_t normal = (size - (112u << 23) + 0xfff + (size >> 13 & 1)) >> 13;
  const uint32_t finite = size < 0x38800000 ? small : normal;
  const uint32_t special = size > 0x7f800000 ? 0x7e00 : 0x7c00;
  return (half){(uint16_t)((size < 0x47800000 ? finite : special) | (u >> 16 & 0x8000))};
}
static inline float to_bf16(float x) { return decode_bfloat(encode_bfloat(x)); }
static inline float to_tf32(float x) {
  const uint32_t u = (uint32_t)bits(x);
  return x != x ? x : from_bits((int32_t)((u + 0xfff + (u >> 13 & 1)) & ~0x1fffu));
}

// convert(T, x) is x as the C++ type T; from_bool(T, x) is 1 or 0. Integers of one byte are made by way of 32 bits.
#define convert(T, x) convert_##T(x)
#define from_bool(T, x) convert_##T(x)
#define to_bool(x) ((x) != 0)
#define convert_uint8_t(x) ((uint8_t)(int32_t)(x))
#define convert_int8_t(x) ((int8_t)(int32_t)(x))
#define convert_int32_t(x) ((int32_t)(x))
#define convert_int64_t(x) ((int64_t)(x))
#define convert_float(x) ((float)(x))
#define convert_double(x) ((double)(x))
#define convert_half(x) decode_half(encode_half((float)(x)))
#define convert_bfloat(x) to_bf16((float)(x))

// Conditions and choices.
#define both(a, b) ((a) && (b))
#define as_mask(condition) (condition)
#define select(condition, a, b) ((condition) ? (a) : (b))
#define maximum(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
#define minimum(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))
#define relu(x) ((x) <= 0 ? 0 : (x))
#define relu_grad(d, y) ((y) <= 0 ? 0 : (d))

// Integers of all types as 64 bits, cut off where the result is stored. No quotient traps: by 0 it is 0, by -1 the negative.
static inline int64_t negative_i64(int64_t x) { return (int64_t)(0 - (uint64_t)x); }
static inline int64_t abs_i64(int64_t x) { return x < 0 ? negative_i64(x) : x; }
static inline int64_t fmod_i64(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }
static inline int64_t remainder_i64(int64_t a, int64_t b) {
  const int64_t r = fmod_i64(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
static inline int64_t floor_divide_i64(int64_t a, int64_t b) {
  if (b == 0 || b == -1) return b == 0 ? 0 : negative_i64(a);
  const int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? a / b - 1 : a / b;
}
static inline int64_t gcd_i64(int64_t a, int64_t b) {
  a = abs_i64(a), b = abs_i64(b);
  while (b != 0) {
    const int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return abs_i64(a);
}
static inline int64_t left_shift_i64(int64_t a, int64_t b, int64_t size) {
  return b >= 0 && b < size ? (int64_t)((uint64_t)a << b) : 0;
}
static inline int64_t right_shift_i64(int64_t a, int64_t b, int64_t size) {
  return b >= 0 && b < size ? a >> b : a < 0 ? -1 : 0;
}
#define gcd(a, b) gcd_i64(a, b)
#define left_shift(a, b) left_shift_i64(a, b, 8 * sizeof(a))
#define right_shift(a, b) right_shift_i64(a, b, 8 * sizeof(a))

// From the exact remainder, as NumPy does: a / b may round up to the next integer.
#define GRAPHC_FLOATS(T, S, F)                                                    \
  static inline T floor_divide_##S(T a, T b) {                                    \
    const T r = fmod##F(a, b), whole = (a - r) / b;                               \
    const T quotient = r != 0 && (r < 0) != (b < 0) ? whole - 1 : whole;          \
    const T below = floor##F(quotient);                                           \
    const T near = quotient - below > (T)0.5 ? below + 1 : below;                 \
    return b == 0 ? a / b : near == 0 ? copysign##F(0, a / b) : near;             \
  }                                                                               \
  static inline T remainder_##S(T a, T b) {                                       \
    const T r = fmod##F(a, b);                                                    \
    return r == 0 ? copysign##F(0, b) : r != 0 && (r < 0) != (b < 0) ? r + b : r; \
  }
GRAPHC_FLOATS(float, f32, f)
GRAPHC_FLOATS(double, f64, )
#undef GRAPHC_FLOATS
#define GRAPHC_NUMBER_OF(name, x) \
  _Generic((x), float: name##_f32, double: name##_f64, default: name##_i64)
#define floor_divide(a, b) GRAPHC_NUMBER_OF(floor_divide, a)(a, b)
#define remainder(a, b) GRAPHC_NUMBER_OF(remainder, a)(a, b)
#define fmod(a, b) _Generic((a), float: fmodf, double: fmod, default: fmod_i64)(a, b)
#define abs(x) _Generic((x), float: fabsf, double: fabs, default: abs_i64)(x)
