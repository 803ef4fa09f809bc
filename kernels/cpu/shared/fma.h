// Products and sums that are rounded once. Kernels are compiled without leave to fuse others: what is not written so is rounded
// twice, whatever the compiler and the instruction set.
#pragma once
#include "cpu/shared/convert.h"

// Whether an instruction does it; without one, the builtins call a function of the C library.
#if defined(__FMA__) || defined(__AVX512F__) || defined(__aarch64__) ||            \
    defined(__ARM_FEATURE_FMA) || (defined(__riscv_flen) && __riscv_flen >= 32) || \
    defined(__wasm_relaxed_simd__)  // for engines that fuse; an export's loader finds out
#define GRAPHC_FMA 1
#else
#define GRAPHC_FMA 0
#endif
#if GRAPHC_FMA && defined(__clang__)  // from clang 16 on; else each lane is a scalar instruction
#define GRAPHC_ELEMENTWISE_FMA __has_builtin(__builtin_elementwise_fma)
#else
#define GRAPHC_ELEMENTWISE_FMA 0
#endif

namespace graphc {
// p + c as a float rounds it, where p is exact, from doubles that convert to it: the sum is cut at
// 53 bits, the last of which is set if anything was lost. That keeps apart what lies between two
// floats and what is one, or halfway between two, however few bits the float has. D is double, or
// doubles, and I are its bits.
template <class I, class D> INLINE D sum_cut(D p, D c) {
  const D sum = p + c, part = sum - p, lost = (p - (sum - part)) + (c - part);
  I bits = __builtin_bit_cast(I, sum);
  // The nearest sum is one too far from 0 if what was lost has the other sign.
  const I step = ((__builtin_bit_cast(I, lost) ^ bits) >> 63) | 1;
  const I inexact = lost > 0 | lost < 0;  // of NaN neither
  bits += step & (__is_same(D, double) ? -inexact : inexact) & ((bits & 1) - 1);
  return __builtin_bit_cast(D, bits);
}

INLINE float fma(float a, float b, float c) {
#if defined(__wasm_relaxed_simd__)
  using Four = float __attribute__((vector_size(16)));
  return __builtin_wasm_relaxed_madd_f32x4(Four{a}, Four{b}, Four{c})[0];
#elif GRAPHC_FMA
  return __builtin_fmaf(a, b, c);
#else
  return float(sum_cut<int64_t>(double(a) * double(b), double(c)));
#endif
}
INLINE double fma(double a, double b, double c) {
#if defined(__wasm_relaxed_simd__)
  using Two = double __attribute__((vector_size(16)));
  return __builtin_wasm_relaxed_madd_f64x2(Two{a}, Two{b}, Two{c})[0];
#else
  return __builtin_fma(a, b, c);
#endif
}

#if !GRAPHC_FMA
// In line, a kernel's code would be four times as large, and take nine tenths of the time (LeNet's
// training step, SSE2).
SHARED vec<float> fma(vec<float> a, vec<float> b, vec<float> c) {
  const auto x = halved(a, HalfLanes{}), y = halved(b, HalfLanes{}), z = halved(c, HalfLanes{});
  const auto half = [](Half<float> a, Half<float> b, Half<float> c) __attribute__((always_inline)) {
    const Half<double> product = convert_half<double>(a) * convert_half<double>(b);
    return convert_half<float>(sum_cut<Half<int64_t> >(product, convert_half<double>(c)));
  };
  return whole<float>(half(x.low, y.low, z.low), half(x.high, y.high, z.high), AllLanes{});
}
#else
INLINE vec<float> fma(vec<float> a, vec<float> b, vec<float> c) {
#if defined(__wasm_relaxed_simd__)
  return __builtin_wasm_relaxed_madd_f32x4(a, b, c);
#elif GRAPHC_ELEMENTWISE_FMA
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
#endif
INLINE Half<double> fma(Half<double> a, Half<double> b, Half<double> c) {
#if defined(__wasm_relaxed_simd__)
  return __builtin_wasm_relaxed_madd_f64x2(a, b, c);
#elif GRAPHC_ELEMENTWISE_FMA
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
