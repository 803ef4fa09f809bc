// math.cuh: the scalar types of a kernel and the functions that expressions use. They have the
// names of kernels/cpu/shared/simd.h, where a register holds a vector; here it holds one element.
#pragma once
#include "cuda/shared/rounding.cuh"

namespace graphc {

using uint8_t = unsigned char;
using int8_t = signed char;
using int32_t = int;
using int64_t = long long;
#ifdef __CUDACC_RTC__  // lacks what the toolkit's other compiler shares with the host's
#define __builtin_inff() __int_as_float(0x7f800000)
#define __builtin_nanf(payload) __int_as_float(0x7fffffff)
#define __builtin_inf() __longlong_as_double(0x7ff0000000000000ll)
#define __builtin_nan(payload) __longlong_as_double(0x7fffffffffffffffll)
#endif
#ifndef INT64_MIN
#define INT64_MIN (-0x7fffffffffffffffll - 1)
#endif

// True or false; a type of its own so that ~ & | ^ are logical, as on the lanes of a vector mask.
struct mask {
  bool value;
  mask() = default;
  GRAPHC_INLINE mask(bool value) : value(value) {}
  GRAPHC_INLINE explicit operator bool() const { return value; }
};
GRAPHC_INLINE mask operator~(mask a) { return !a.value; }
GRAPHC_INLINE mask operator&(mask a, mask b) { return a.value && b.value; }
GRAPHC_INLINE mask operator|(mask a, mask b) { return a.value || b.value; }
GRAPHC_INLINE mask operator^(mask a, mask b) { return a.value != b.value; }
GRAPHC_INLINE mask operator==(mask a, mask b) { return a.value == b.value; }
GRAPHC_INLINE mask operator!=(mask a, mask b) { return a.value != b.value; }

GRAPHC_INLINE mask as_mask(mask a) { return a; }

template <class T>
GRAPHC_INLINE T select(mask condition, T a, T b) {
  return condition.value ? a : b;
}

// Floats of two bytes, in memory alone: registers hold them as float.
struct half {
  unsigned short bits;
};
struct bfloat {
  unsigned short bits;
};
// A float in memory that is read as the nearest of 10 bits of fraction.
struct tf32 {
  float value;
};
// The same of 7 bits, a bfloat.
struct as_bfloat {
  float value;
};
template <class T>
GRAPHC_INLINE T encode(float x) {
  return static_cast<T>(x);
}
template <>
GRAPHC_INLINE half encode<half>(float x) {
  return {float_to_half(x)};
}
template <>
GRAPHC_INLINE bfloat encode<bfloat>(float x) {
  return {float_to_bfloat(x)};
}
template <>
GRAPHC_INLINE tf32 encode<tf32>(float x) {
  return {float_to_tf32(x)};
}
// The register of an element of memory.
template <class T>
GRAPHC_INLINE T decode(T x) {
  return x;
}
GRAPHC_INLINE mask decode(bool x) { return x; }
GRAPHC_INLINE float to_tf32(float x) { return float_to_tf32(x); }
GRAPHC_INLINE float decode(tf32 x) { return float_to_tf32(x.value); }
GRAPHC_INLINE float to_bf16(float x) { return round_to_bfloat(x); }
GRAPHC_INLINE float decode(as_bfloat x) { return round_to_bfloat(x.value); }
GRAPHC_INLINE float decode(half x) { return half_to_float(x.bits); }
GRAPHC_INLINE float decode(bfloat x) {
  return __int_as_float(static_cast<int>(static_cast<unsigned>(x.bits) << 16));
}

// To T as NumPy's astype: truncating to integers, nonzero to true, true to one.
template <class T>
struct Convert {
  template <class From>
  GRAPHC_INLINE static T from(From x) {
    return static_cast<T>(x);
  }
  GRAPHC_INLINE static T from(mask x) { return x.value ? T(1) : T(0); }
};
template <>
struct Convert<bool> {
  template <class From>
  GRAPHC_INLINE static mask from(From x) {
    return x != From(0);
  }
  GRAPHC_INLINE static mask from(mask x) { return x; }
};
// By way of 64 bits: -1.0f is 255.
template <>
struct Convert<uint8_t> {
  template <class From>
  GRAPHC_INLINE static uint8_t from(From x) {
    return static_cast<uint8_t>(static_cast<long long>(x));
  }
  GRAPHC_INLINE static uint8_t from(mask x) { return x.value; }
};
template <>
struct Convert<int8_t> {
  template <class From>
  GRAPHC_INLINE static int8_t from(From x) {
    return static_cast<int8_t>(static_cast<long long>(x));
  }
  GRAPHC_INLINE static int8_t from(mask x) { return x.value; }
};
template <>
struct Convert<half> {
  template <class From>
  GRAPHC_INLINE static float from(From x) {
    return round_to_half(Convert<float>::from(x));
  }
};
template <>
struct Convert<bfloat> {
  template <class From>
  GRAPHC_INLINE static float from(From x) {
    return round_to_bfloat(Convert<float>::from(x));
  }
};
template <class T, class From>
GRAPHC_INLINE auto convert(From x) {
  return Convert<T>::from(x);
}

template <class T>
GRAPHC_INLINE auto from_bool(mask x) {
  return convert<T>(x);
}
template <class From>
GRAPHC_INLINE mask to_bool(From x) {
  return convert<bool>(x);
}

#define GRAPHC_UNARY(name, single, whole)                   \
  GRAPHC_INLINE float name(float x) { return ::single(x); } \
  GRAPHC_INLINE double name(double x) { return ::whole(x); }
GRAPHC_UNARY(exp, expf, exp)
GRAPHC_UNARY(expm1, expm1f, expm1)
GRAPHC_UNARY(log, logf, log)
GRAPHC_UNARY(log1p, log1pf, log1p)
GRAPHC_UNARY(sqrt, sqrtf, sqrt)
GRAPHC_UNARY(rsqrt, rsqrtf, rsqrt)
GRAPHC_UNARY(tanh, tanhf, tanh)
GRAPHC_UNARY(erf, erff, erf)
GRAPHC_UNARY(sin, sinf, sin)
GRAPHC_UNARY(cos, cosf, cos)
GRAPHC_UNARY(tan, tanf, tan)
GRAPHC_UNARY(asin, asinf, asin)
GRAPHC_UNARY(acos, acosf, acos)
GRAPHC_UNARY(atan, atanf, atan)
GRAPHC_UNARY(sinh, sinhf, sinh)
GRAPHC_UNARY(cosh, coshf, cosh)
GRAPHC_UNARY(asinh, asinhf, asinh)
GRAPHC_UNARY(acosh, acoshf, acosh)
GRAPHC_UNARY(atanh, atanhf, atanh)
GRAPHC_UNARY(exp2, exp2f, exp2)
GRAPHC_UNARY(log2, log2f, log2)
GRAPHC_UNARY(log10, log10f, log10)
GRAPHC_UNARY(floor, floorf, floor)
GRAPHC_UNARY(ceil, ceilf, ceil)
GRAPHC_UNARY(round_even, rintf, rint)
GRAPHC_UNARY(trunc, truncf, trunc)
GRAPHC_UNARY(abs, fabsf, fabs)
#undef GRAPHC_UNARY
#define GRAPHC_BINARY(name, single, whole)                              \
  GRAPHC_INLINE float name(float x, float y) { return ::single(x, y); } \
  GRAPHC_INLINE double name(double x, double y) { return ::whole(x, y); }
GRAPHC_BINARY(pow, powf, pow)
GRAPHC_BINARY(atan2, atan2f, atan2)
GRAPHC_BINARY(hypot, hypotf, hypot)
GRAPHC_BINARY(copysign, copysignf, copysign)
GRAPHC_BINARY(fmod, fmodf, fmod)
GRAPHC_BINARY(nextafter, nextafterf, nextafter)
#undef GRAPHC_BINARY
// a * b + c, rounded once.
GRAPHC_INLINE float fma(float a, float b, float c) { return ::fmaf(a, b, c); }
GRAPHC_INLINE double fma(double a, double b, double c) { return ::fma(a, b, c); }
template <class T>
GRAPHC_INLINE T fma(T a, T b, T c) {
  static_assert(T(0.5) == T(0), "integers, which are exact either way");
  return a * b + c;
}
template <class T>
GRAPHC_INLINE mask signbit(T x) {
  return copysign(T(1), x) < T(0);
}

// Wraps at the most negative number, as NumPy does.
GRAPHC_INLINE int abs(int x) { return x < 0 ? static_cast<int>(0u - x) : x; }
GRAPHC_INLINE long long abs(long long x) { return x < 0 ? static_cast<long long>(0ull - x) : x; }

template <class T>
GRAPHC_INLINE bool negative(T x) {
  if constexpr (T(-1) < T(0)) return x < T(0);
  else return false;  // a comparison that can only fail is a warning
}

// Rounded towards minus infinity; for integers, 0 where b is 0, and wrapping.
// Floats from the exact remainder: a / b may round up to the next integer.
template <class T>
GRAPHC_INLINE T exact_floor_divide(T a, T b) {
  const T rest = fmod(a, b), whole = (a - rest) / b;
  const T quotient = rest != T(0) && (rest < T(0)) != (b < T(0)) ? whole - T(1) : whole;
  const T below = floor(quotient);
  const T near = quotient - below > T(0.5) ? below + T(1) : below;
  return b == T(0) ? a / b : near == T(0) ? copysign(near, a / b) : near;
}
GRAPHC_INLINE float floor_divide(float a, float b) { return exact_floor_divide(a, b); }
GRAPHC_INLINE double floor_divide(double a, double b) { return exact_floor_divide(a, b); }
template <class T>
GRAPHC_INLINE T floor_divide(T a, T b) {
  if (b == T(0)) return 0;
  if (T(-1) < T(0) && b == T(-1)) return static_cast<T>(0ull - static_cast<unsigned long long>(a));
  return a / b - ((a % b != 0) & (negative(a) != negative(b)));
}

// What floor_divide leaves over, with the sign of b; for integers, 0 where b is 0.
template <class T>
GRAPHC_INLINE T exact_remainder(T a, T b) {
  const T rest = fmod(a, b);
  if (rest == T(0)) return copysign(rest, b);
  return (rest < T(0)) != (b < T(0)) ? rest + b : rest;
}
GRAPHC_INLINE float remainder(float a, float b) { return exact_remainder(a, b); }
GRAPHC_INLINE double remainder(double a, double b) { return exact_remainder(a, b); }
template <class T>
GRAPHC_INLINE T remainder(T a, T b) {
  if (b == T(0) || (T(-1) < T(0) && b == T(-1))) return 0;
  const T rest = a % b;
  return rest + (((rest != 0) & (negative(rest) != negative(b))) ? b : T(0));
}

// What a quotient cut towards 0 leaves over; 0 where b is 0.
template <class T>
GRAPHC_INLINE T fmod(T a, T b) {
  return b == T(0) || (T(-1) < T(0) && b == T(-1)) ? T(0) : static_cast<T>(a % b);
}

// Shifts by a number of bits that the type has not leave the sign alone, or nothing.
template <class T>
GRAPHC_INLINE T left_shift(T a, T b) {
  const bool exists = static_cast<unsigned long long>(b) < 8 * sizeof(T);
  return exists ? static_cast<T>(static_cast<unsigned long long>(a) << b) : T(0);
}
template <class T>
GRAPHC_INLINE T right_shift(T a, T b) {
  const bool exists = static_cast<unsigned long long>(b) < 8 * sizeof(T);
  return exists ? static_cast<T>(a >> b) : static_cast<T>(negative(a) ? -1 : 0);
}

template <class T>
GRAPHC_INLINE T sigmoid(T x) {
  return T(1) / (T(1) + exp(-x));
}

template <class T>
GRAPHC_INLINE mask isnan(T x) {
  return x != x;
}

// NaN if any argument is NaN.
GRAPHC_INLINE float maximum(float a, float b) { return maximum_nan(a, b); }
GRAPHC_INLINE float minimum(float a, float b) { return minimum_nan(a, b); }
template <class T>
GRAPHC_INLINE T maximum(T a, T b) {
  return a > b || a != a ? a : b;
}
template <class T>
GRAPHC_INLINE T minimum(T a, T b) {
  return a < b || a != a ? a : b;
}
GRAPHC_INLINE mask maximum(mask a, mask b) { return a | b; }
GRAPHC_INLINE mask minimum(mask a, mask b) { return a & b; }
template <class T>
GRAPHC_INLINE T relu(T x) {
  return x <= T(0) ? T(0) : x;
}
// d where y is above 0 or NaN.
template <class T>
GRAPHC_INLINE T relu_grad(T d, T y) {
  return y <= T(0) ? T(0) : d;
}

// Uniform in [0, 1) from 24 bits of one word of Philox4x32-10; the key is (seed, number), the
// counter (index's low word, its high word, step, 0).
GRAPHC_INLINE float philox_uniform(unsigned seed, unsigned number, unsigned step, long long index,
                                   unsigned word = 0) {
  unsigned a = static_cast<unsigned>(index), b = static_cast<unsigned>(index >> 32);
  unsigned c = step, d = 0;
#pragma unroll
  for (int round = 0; round < 10; round++) {
    const unsigned long long left = 0xD2511F53ull * a, right = 0xCD9E8D57ull * c;
    a = static_cast<unsigned>(right >> 32) ^ b ^ seed;
    c = static_cast<unsigned>(left >> 32) ^ d ^ number;
    b = static_cast<unsigned>(right);
    d = static_cast<unsigned>(left);
    seed += 0x9E3779B9u;
    number += 0xBB67AE85u;
  }
  const unsigned chosen = word == 0 ? a : word == 1 ? b : word == 2 ? c : d;
  return static_cast<float>(chosen >> 8) * 0x1p-24f;
}

}  // namespace graphc

#include "cuda/shared/special.cuh"
