// window.cuh: pooling of [n, c, h, w] and its gradients, read in place, of one element or of a run
// of Live neighbours with the same pixels, such as channels in channels-last images.
//
// The functions take the inputs at row 0 and column 0 of the element's own image, or the first's, and
// the element's row and column. The names and arguments are those of kernels/cpu/shared/window.h;
// strides from lane to lane play no part here. Memory of runs is aligned to them, as memory.cuh has it.
#pragma once
#include "cuda/shared/memory.cuh"

namespace graphc {
GRAPHC_INLINE int least(int a, int b) { return a < b ? a : b; }
GRAPHC_INLINE int most(int a, int b) { return a < b ? b : a; }
}  // namespace graphc
#define GRAPHC_WINDOWS GRAPHC_INLINE
#define GRAPHC_ROLLED _Pragma("unroll 1")  // there are few, and how many is not known
#include "windows.h"
#undef GRAPHC_ROLLED
#undef GRAPHC_WINDOWS

namespace graphc {

// What there is of each element of a run: of a single one no array.
template <class T, int Live>
struct Lanes {
  using type = Run<T, Live>;
};
template <class T>
struct Lanes<T, 1> {
  using type = T;
};
template <class T, int Live>
GRAPHC_INLINE typename Lanes<T, Live>::type lanes(const Run<T, Live>& run) {
  if constexpr (Live == 1) return run.at[0];
  else return run;
}
template <int Live, class T>
GRAPHC_INLINE Run<T, Live> run_at(const T* p) {
  return *reinterpret_cast<const Run<T, Live>*>(p);
}
template <class T, class I, int Live>
struct Pooled {
  typename Lanes<T, Live>::type y;
  typename Lanes<I, Live>::type index;
};

// Calls f(row, column, place) for the input pixels of the window of output (p, q), in order.
template <class D, class F>
GRAPHC_INLINE void each_pixel(int p, int q, const F& f) {
  const int top = p * D::DH - D::PH, left = q * D::DW - D::PW;
  const int last_row = D::PH ? least(D::H - top, D::KH) : D::KH;
  const int last_column = D::PW ? least(D::WIDTH - left, D::KW) : D::KW;
  for (int r = D::PH ? most(-top, 0) : 0; r < last_row; r++)
    for (int s = D::PW ? most(-left, 0) : 0; s < last_column; s++)
      f(top + r, left + s, r * D::KW + s);
}

// The first of the largest elements and its place in the window; the first NaN if there is one.
template <int Live, class I, class D, class R, int LaneRow, int LaneColumn, class T>
GRAPHC_INLINE Pooled<vec<T>, vec<I>, Live> max_pool2d(const T* x, int p, int q) {
  Run<vec<T>, Live> best{};
  Run<vec<I>, Live> index{};
  bool first = true;
  each_pixel<D>(p, q, [&](int h, int w, int place) {
    const Run<T, Live> run = run_at<Live>(x + h * R::ROW + w * R::COLUMN);
#pragma unroll
    for (int i = 0; i < Live; i++) {
      const vec<T> v = decode(run.at[i]);
      if (first || (!(v <= best.at[i]) && best.at[i] == best.at[i])) {
        best.at[i] = v;
        index.at[i] = static_cast<vec<I>>(place);
      }
    }
    first = false;
  });
  return {lanes(best), lanes(index)};
}

template <int Live, class D, class R, int LaneRow, int LaneColumn, class T>
GRAPHC_INLINE typename Lanes<T, Live>::type avg_pool2d(const T* x, int p, int q) {
  Run<T, Live> total{};
  int count = 0;
  each_pixel<D>(p, q, [&](int h, int w, int) {
    const Run<T, Live> run = run_at<Live>(x + h * R::ROW + w * R::COLUMN);
#pragma unroll
    for (int i = 0; i < Live; i++) total.at[i] += run.at[i];
    count++;
  });
  const T places = T(D::PAD_COUNTS ? D::KH * D::KW : count);
#pragma unroll
  for (int i = 0; i < Live; i++) total.at[i] = total.at[i] / places;
  return lanes(total);
}

// Whose largest element each pixel was is known before its gradients are read, where it was any.
template <int Live, class D, class R, class S, int LaneRow, int LaneColumn, class T, class I>
GRAPHC_INLINE typename Lanes<T, Live>::type max_pool2d_grad(const T* dy, const I* index, int h,
                                                            int w) {
  Run<T, Live> total{};
  const auto add = [&](const Run<I, Live>& largest, int p, int q, int place) {
    bool any = false;
#pragma unroll
    for (int i = 0; i < Live; i++) any |= largest.at[i] == place;
    if (!any) return;
    const Run<T, Live> run = run_at<Live>(dy + p * R::ROW + q * R::COLUMN);
#pragma unroll
    for (int i = 0; i < Live; i++)
      if (largest.at[i] == place) total.at[i] += run.at[i];
  };
  constexpr int down = (D::KH + D::DH - 1) / D::DH, across = (D::KW + D::DW - 1) / D::DW;
  if constexpr (down * across > 1 && down * across <= 4) {  // all are asked at once
    const int first_row = D::first_row(h), first_column = D::first_column(w);
    Run<I, Live> largest[down * across];
    int place[down * across];
#pragma unroll
    for (int i = 0; i < down * across; i++) {
      const int p = first_row + i / across, q = first_column + i % across;
      const bool exists = p < D::end_row(h) && q < D::end_column(w);
      place[i] = exists ? (h + D::PH - p * D::DH) * D::KW + w + D::PW - q * D::DW : -1;
      if (exists) largest[i] = run_at<Live>(index + p * S::ROW + q * S::COLUMN);
      else largest[i] = {};
    }
#pragma unroll
    for (int i = 0; i < down * across; i++)
      add(largest[i], first_row + i / across, first_column + i % across, place[i]);
  } else {
    each_window<D>(h, w, [&](int p, int q, int place) {
      add(run_at<Live>(index + p * S::ROW + q * S::COLUMN), p, q, place);
    });
  }
  return lanes(total);
}

template <int Live, class D, class R, int LaneRow, int LaneColumn, class T>
GRAPHC_INLINE typename Lanes<T, Live>::type avg_pool2d_grad(const T* dy, int h, int w) {
  Run<T, Live> total{};
  each_window<D>(h, w, [&](int p, int q, int) {
    const T places = T(D::count(p, q));
    const Run<T, Live> run = run_at<Live>(dy + p * R::ROW + q * R::COLUMN);
#pragma unroll
    for (int i = 0; i < Live; i++) total.at[i] += run.at[i] / places;
  });
  return lanes(total);
}

}  // namespace graphc
