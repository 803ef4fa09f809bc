// The number W of lanes of a register, whatever its elements, and definitions that all headers use.
// It includes no standard headers except the integer types: headers would take most of a kernel's
// compile time.
#pragma once
#include <stdint.h>

#define INLINE inline __attribute__((always_inline))
// A function of its own, once for all kernels of a translation unit, whatever they hand it.
#if defined(__clang__)
#define SHARED static __attribute__((noinline))
#else
#define SHARED static __attribute__((noipa))
#endif
#if !defined(GRAPHC_LANES)
#if defined(__AVX512F__)
#define GRAPHC_LANES 16
#elif defined(__AVX2__)
#define GRAPHC_LANES 8
#else
#define GRAPHC_LANES 4
#endif
#endif
#if defined(__AVX512F__) && GRAPHC_LANES == 16 && !defined(__clang__)
#define GRAPHC_AVX512 1
#endif
#if defined(__AVX2__) && GRAPHC_LANES == 8 && !defined(__clang__)
#define GRAPHC_AVX2 1
#endif

namespace graphc {
constexpr int W = GRAPHC_LANES;

constexpr long least(long a, long b) { return a < b ? a : b; }
constexpr long most(long a, long b) { return a > b ? a : b; }

// The numbers of the lanes, as a pack, and those of a half.
template <int... L> struct Lanes {};
#if GRAPHC_LANES == 16
using AllLanes = Lanes<0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15>;
using HalfLanes = Lanes<0, 1, 2, 3, 4, 5, 6, 7>;
#elif GRAPHC_LANES == 8
using AllLanes = Lanes<0, 1, 2, 3, 4, 5, 6, 7>;
using HalfLanes = Lanes<0, 1, 2, 3>;
#else
using AllLanes = Lanes<0, 1, 2, 3>;
using HalfLanes = Lanes<0, 1>;
#endif
}  // namespace graphc
