// transpose: conversion between row-major and lanes, by W x W blocks in registers.
//
// A value [n][m] (m: the elements behind the axis with lanes) under lanes lies as [n / W][m][W]. One block is W rows of n by W
// columns of m; a tile is all blocks of one n / W and a run of m.
#pragma once
#include "cpu/shared/simd.h"

namespace graphc {
// Swaps the lanes of a that have bit S with those of b that have not.
template <int S, class V, int... L> INLINE void exchange(V& a, V& b, Lanes<L...>) {
  const V x = shuffle(a, b, Lanes<((L & S) ? W + L - S : L)...>{});
  b = shuffle(a, b, Lanes<((L & S) ? W + L : L + S)...>{});
  a = x;
}
template <int S, class V> INLINE void exchange_rows(V (&r)[W]) {
  if constexpr (S < W) {
#pragma GCC unroll 16
    for (int i = 0; i < W; i++)
      if (!(i & S)) exchange<S>(r[i], r[i + S], AllLanes{});
    exchange_rows<2 * S>(r);
  }
}

// ROWS rows of `from`, of whose columns COLUMNS are live, become columns of `to`: rows of `to` are W wide if LANED, else ROWS wide.
template <int ROWS, int COLUMNS, bool LANED, class T, class U> SHARED void transpose(
    const T* from, long from_stride, U* to, long to_stride) {
  vec<T> r[W];
#pragma GCC unroll 16
  for (int i = 0; i < W; i++) r[i] = i < ROWS ? load<COLUMNS>(from + i * from_stride) : vec<T>{};
  exchange_rows<1>(r);
#pragma GCC unroll 16
  for (int i = 0; i < W; i++)
    if (i < COLUMNS) store<LANED ? W : ROWS>(to + i * to_stride, r[i]);
}

// COLUMNS rows of `from`, W wide, become ROWS rows of `to`.
template <int ROWS, int COLUMNS, class T> SHARED void transpose_rest(const T* from, T* to,
                                                                     long to_stride) {
  vec<T> r[W];
#pragma GCC unroll 16
  for (int i = 0; i < W; i++) r[i] = i < COLUMNS ? load(from + i * W) : vec<T>{};
  exchange_rows<1>(r);
#pragma GCC unroll 16
  for (int i = 0; i < ROWS; i++) store<COLUMNS>(to + i * to_stride, r[i]);
}

// Columns [begin, end) of m of the block of ROWS rows of n that begin at x (row-major) and at y (lanes).
template <int ROWS, long M, class T> INLINE void to_lanes(const T* x, T* y, long begin, long end) {
  long m = begin;
  for (; m + W <= end; m += W) transpose<ROWS, W, true>(x + m, M, y + m * W, W);
  if constexpr (M % W != 0)
    if (m < end) transpose<ROWS, M % W, true>(x + m, M, y + m * W, W);
}
template <int ROWS, long M, class T> INLINE void from_lanes(const T* y, T* x, long begin,
                                                            long end) {
  long m = begin;
  for (; m + W <= end; m += W) transpose<W, ROWS, false>(y + m * W, W, x + m, M);
  if constexpr (M % W != 0)
    if (m < end) {
      constexpr int columns = M % W;
      transpose_rest<ROWS, columns>(y + m * W, x + m, M);
    }
}

// Tiles [begin, end) of REPEATS values [N][M], which lie behind one another: n / W outside, runs of RUN elements of m inside.
template <bool TO_LANES, long REPEATS, long N, long M, long RUN, class T> INLINE void relayout(
    const T* from, T* to, long begin, long end) {
  constexpr long runs = (M + RUN - 1) / RUN, full = N / W, blocks = (N + W - 1) / W;
  constexpr int rest = N % W ? N % W : W;
  for (long tile = begin; tile < end; tile++) {
    const long repeat = REPEATS == 1 ? 0 : tile / (runs * blocks);
    const long block = tile / runs - repeat * blocks, first = tile % runs * RUN,
               last = least(first + RUN, M);
    const long plain = (repeat * N + block * W) * M, laned = (repeat * blocks + block) * W * M;
    const T* x = from + (TO_LANES ? plain : laned);
    T* y = to + (TO_LANES ? laned : plain);
    if (block < full) {
      if constexpr (TO_LANES) to_lanes<W, M>(x, y, first, last);
      else from_lanes<W, M>(x, y, first, last);
    } else {
      if constexpr (TO_LANES) to_lanes<rest, M>(x, y, first, last);
      else from_lanes<rest, M>(x, y, first, last);
    }
  }
}
}  // namespace graphc
