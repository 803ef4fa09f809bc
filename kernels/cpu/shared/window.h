// window: pooling of [n, c, h, w] and its gradients, one register of outputs at a time, read in place.
//
// The functions take the input at row 0 and column 0 of the outputs' image, and the output's row and column in lane 0; LP and LQ are
// what these grow by from lane to lane. Where both are 0 (the batch or the channel lies in the lanes) all lanes share their window.
#pragma once
#include "cpu/shared/elementary.h"

#define GRAPHC_WINDOWS INLINE
#define GRAPHC_ROLLED
#include "windows.h"
#undef GRAPHC_ROLLED
#undef GRAPHC_WINDOWS

namespace graphc {
template <class T, class I> struct Pooled {
  vec<T> y;
  vec<I> index;
};

// Calls f(condition, value, place) for the places of the window, first row first; the condition is bool or a mask. Where lanes have
// windows of their own and all of them are inside, nothing is tested.
template <int N, class D, class R, int LP, int LQ, class T, class F> INLINE void each_place(
    const T* x, long p, long q, const F& f) {
  constexpr int step = R::LANE + LP * D::DH * R::ROW + LQ * D::DW * R::COLUMN;
  constexpr int down = (N - 1) * LP * D::DH, right = (N - 1) * LQ * D::DW;
  const long top = p * D::DH - D::PH, left = q * D::DW - D::PW;
  if (!D::PADDED || ((LP || LQ) && top >= 0 && left >= 0 && top + down + D::KH <= D::H &&
                     left + right + D::KW <= D::WIDTH)) {
#pragma GCC unroll 8
    for (int r = 0; r < D::KH; r++)
#pragma GCC unroll 8
      for (int s = 0; s < D::KW; s++)
        f(true, load<N, step>(x + (top + r) * R::ROW + (left + s) * R::COLUMN), r * D::KW + s);
  } else {
#pragma GCC unroll 8
    for (int r = 0; r < D::KH; r++)
#pragma GCC unroll 8
      for (int s = 0; s < D::KW; s++) {
        const long at = (top + r) * R::ROW + (left + s) * R::COLUMN;
        const auto here =
            both(inside<LP * D::DH, D::H, 1>(top + r), inside<LQ * D::DW, D::WIDTH, 1>(left + s));
        f(here, load_if<N, step, 1>(here, x + at, 0), r * D::KW + s);
      }
  }
}

template <int N, class I, class D, class R, int LP, int LQ, class T> INLINE Pooled<T, I> max_pool2d(
    const T* x, long p, long q) {
  vec<T> best = splat<element<vec<T>>>(-__builtin_inff());
  vec<int32_t> index{};
  mask none = ~mask{};
  each_place<N, D, R, LP, LQ>(
      x, p, q, [&](auto here, vec<T> v, int place) __attribute__((always_inline)) {
        const mask better = both(here, none | (~as_mask(v <= best) & ~isnan(best)));
        best = select(better, v, best);
        index = select(better, splat<int32_t>(place), index);
        none &= ~both(here, ~mask{});
      });
  return {best, convert<I>(index)};
}

template <int N, class D, class R, int LP, int LQ, class T> INLINE vec<T> avg_pool2d(const T* x,
                                                                                     long p,
                                                                                     long q) {
  vec<T> total{}, count{};
  each_place<N, D, R, LP, LQ>(x, p, q,
                              [&](auto here, vec<T> v, int) __attribute__((always_inline)) {
                                total += v;
                                count += select(here, splat<T>(1), vec<T>{});
                              });
  return total / (D::PAD_COUNTS ? splat<T>(D::KH * D::KW) : count);
}

template <class V> INLINE element<V> first_lane(V v) { return v[0]; }

// The first lanes of v at every STEP-th lane from lane FIRST on, zeros elsewhere.
template <int STEP, int FIRST, class V, int... L> INLINE V spread(V v, Lanes<L...>) {
  return shuffle(v, V{},
                 Lanes<(L >= FIRST && (L - FIRST) % STEP == 0 ? (L - FIRST) / STEP : W + L)...>{});
}

// Of N neighbours in a row of dx: those that meet column s of a window are D::DW apart, and their windows are neighbours in a row of dy.
template <int N, class D, class R, class S, class T, class I>
INLINE vec<T> max_pool2d_grad_row(const T* dy, const I* index, long h, long w) {
  constexpr int windows = (N + D::DW - 1) / D::DW;
  vec<T> total{};
  for (long p = D::first_row(h); p < D::end_row(h); p++) {
    const int row = (h + D::PH - p * D::DH) * D::KW;
#pragma GCC unroll 8
    for (int s = D::KW - 1; s >= 0; s--) {  // the windows in ascending order
      const long place = w + D::PW - s, q = (place + D::DW - 1) >> (D::DW - 1);
      const T* share = dy + p * R::ROW + q;
      const I* named = index + p * S::ROW + q;
      vec<T> part{};
      if (q >= 0 && q + windows <= D::Q)
        part = select(as_mask(convert<int32_t>(load<windows>(named)) == row + s),
                      load<windows>(share), part);
      else
        for (int m = 0; m < windows; m++)
          if (q + m >= 0 && q + m < D::Q && named[m] == row + s) part[m] = share[m];
      if constexpr (D::DW == 1) total += part;
      else total += place & 1 ? spread<2, 1>(part, AllLanes{}) : spread<2, 0>(part, AllLanes{});
    }
  }
  return total;
}

template <int N, class D, class R, class S, int LP, int LQ, class T, class I>
INLINE vec<T> max_pool2d_grad(const T* dy, const I* index, long h, long w) {
  constexpr bool neighbours =
      LP == 0 && LQ == 1 && R::LANE == 0 && S::LANE == 0 && R::COLUMN == 1 && S::COLUMN == 1;
  vec<T> total{};
  if constexpr (neighbours && D::DW <= 2 && N > 1 && __is_same(T, float))
    return max_pool2d_grad_row<N, D, R, S>(dy, index, h, w);
  if constexpr (LP == 0 && LQ == 0) {
    each_window<D>(h, w, [&](long p, long q, int place) __attribute__((always_inline)) {
      const vec<int32_t> named =
          convert<int32_t>(load<N, S::LANE>(index + p * S::ROW + q * S::COLUMN));
      const vec<T> share = select(as_mask(named == place),
                                  load<N, R::LANE>(dy + p * R::ROW + q * R::COLUMN), vec<T>{});
      total += share;
    });
  } else
    for (int l = 0; l < N; l++)
      total[l] = first_lane(max_pool2d_grad<1, D, R, S, 0, 0>(dy + l * R::LANE, index + l * S::LANE,
                                                              h + l * LP, w + l * LQ));
  return total;
}

template <int N, class D, class R, int LP, int LQ, class T> INLINE vec<T> avg_pool2d_grad(
    const T* dy, long h, long w) {
  vec<T> total{};
  if constexpr (LP == 0 && LQ == 0) {
    each_window<D>(h, w, [&](long p, long q, int) __attribute__((always_inline)) {
      total += load<N, R::LANE>(dy + p * R::ROW + q * R::COLUMN) / T(D::count(p, q));
    });
  } else
    for (int l = 0; l < N; l++)
      total[l] =
          first_lane(avg_pool2d_grad<1, D, R, 0, 0>(dy + l * R::LANE, h + l * LP, w + l * LQ));
  return total;
}
}  // namespace graphc
