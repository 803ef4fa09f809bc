// rounding.cuh: the instructions that round and compare floats, as those of intrinsics.cuh.
#pragma once
#include "cuda/shared/intrinsics.cuh"

namespace graphc {

// The float with 10 bits of fraction that is nearest, ties to even.
GRAPHC_INLINE float float_to_tf32(float a) {
#if defined(GRAPHC_SIM) || __CUDA_ARCH__ < 900
  const unsigned bits = static_cast<unsigned>(__float_as_int(a));
  const unsigned near = (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu;
  return __int_as_float(static_cast<int>(a == a ? near : 0x7fffffff));
#else
  unsigned c;
  asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(c) : "f"(a));
  return __int_as_float(static_cast<int>(c));
#endif
}

// The float that 16 bits stand for as IEEE's half, and the half nearest to a float, ties to even.
GRAPHC_INLINE float half_to_float(unsigned short bits) {
#ifdef GRAPHC_SIM
  const unsigned size = bits & 0x7fff, sign = (bits & 0x8000u) << 16;
  if (size < 0x400) {
    const float small = static_cast<float>(size) * 0x1p-24f;
    return sign ? -small : small;
  }
  const unsigned moved = size << 13;
  const unsigned whole = size < 0x7c00 ? moved + (112u << 23) : moved | 0x7f800000u;
  return __int_as_float(static_cast<int>(whole | sign));
#else
  float c;
  asm("cvt.f32.f16 %0, %1;" : "=f"(c) : "h"(bits));
  return c;
#endif
}
GRAPHC_INLINE unsigned short float_to_half(float a) {
#ifdef GRAPHC_SIM
  const unsigned bits = static_cast<unsigned>(__float_as_int(a)), size = bits & 0x7fffffff;
  unsigned h = 0x7c00;
  if (size > 0x7f800000) h = 0x7fff;
  else if (size < 0x38800000)  // the sum's last digit is the one wanted
    h = static_cast<unsigned>(__float_as_int(__int_as_float(static_cast<int>(size)) + 0.5f)) -
        0x3f000000;
  else if (size < 0x47800000) h = (size - (112u << 23) + 0xfff + (size >> 13 & 1)) >> 13;
  return static_cast<unsigned short>(h | (bits >> 16 & 0x8000));
#else
  unsigned short c;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(c) : "f"(a));
  return c;
#endif
}
// The upper half of the float nearest to one, ties to even, that has no lower half.
GRAPHC_INLINE unsigned short float_to_bfloat(float a) {
#if defined(GRAPHC_SIM) || defined(GRAPHC_TURING)
  const unsigned bits = static_cast<unsigned>(__float_as_int(a));
  if (a != a) return 0x7fff;
  return static_cast<unsigned short>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
#else
  unsigned short c;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(c) : "f"(a));
  return c;
#endif
}
// Two floats' nearest halves, or upper halves, in one register; the first has the lower bits.
GRAPHC_INLINE unsigned floats_to_halves(float low, float high) {
#if defined(GRAPHC_SIM) || defined(GRAPHC_TURING)
  return float_to_half(low) | static_cast<unsigned>(float_to_half(high)) << 16;
#else
  unsigned c;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(c) : "f"(high), "f"(low));
  return c;
#endif
}
GRAPHC_INLINE unsigned floats_to_bfloats(float low, float high) {
#if defined(GRAPHC_SIM) || defined(GRAPHC_TURING)
  return float_to_bfloat(low) | static_cast<unsigned>(float_to_bfloat(high)) << 16;
#else
  unsigned c;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(c) : "f"(high), "f"(low));
  return c;
#endif
}
// The half, or the upper half of a float, nearest to a float, as a float again: in pairs with zero,
// which is an instruction of the arithmetic units; one by itself goes to the special functions.
GRAPHC_INLINE float round_to_half(float a) {
#if defined(GRAPHC_SIM) || defined(GRAPHC_TURING)
  return half_to_float(float_to_half(a));
#else
  unsigned c;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(c) : "f"(0.0f), "f"(a));
  return half_to_float(static_cast<unsigned short>(c));
#endif
}
GRAPHC_INLINE float round_to_bfloat(float a) {
#if defined(GRAPHC_SIM) || defined(GRAPHC_TURING)
  return __int_as_float(static_cast<int>(float_to_bfloat(a)) << 16);
#else
  int c;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(c) : "f"(a), "f"(0.0f));
  return __int_as_float(c);
#endif
}

// The larger and the smaller of two floats; NaN if either is NaN.
GRAPHC_INLINE float maximum_nan(float a, float b) {
#if defined(GRAPHC_SIM) || defined(GRAPHC_TURING)
  return a > b || a != a ? a : b;
#else
  float c;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
#endif
}
GRAPHC_INLINE float minimum_nan(float a, float b) {
#if defined(GRAPHC_SIM) || defined(GRAPHC_TURING)
  return a < b || a != a ? a : b;
#else
  float c;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
#endif
}

}  // namespace graphc
