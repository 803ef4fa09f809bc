// window.cuh: pooling of [n, c, h, w] and its gradients, read in place, of one element or of a run
// of Live neighbours with the same pixels, such as channels in channels-last images.
//
// The functions take the inputs at row 0 and column 0 of the element's own image, or the first's, and
// the element's row and column. The names and arguments are those of kernels/cpu/shared/window.h; strides
// from lane to lane play no part here. Memory of runs is aligned to them, as memory.cuh has it.
#pragma once
#include "cuda/shared/memory.cuh"

namespace graphc {

// Kernel size, stride, padding, input pixels and output pixels, each (rows, columns). PadCounts: an
// average counts the places of the padding.
template <int KH_, int KW_, int DH_, int DW_, int PH_, int PW_, int H_, int W_, int P_, int Q_,
          bool PadCounts_ = true>
struct Pooling {
  static constexpr int KH = KH_, KW = KW_, DH = DH_, DW = DW_, PH = PH_, PW = PW_;
  static constexpr int H = H_, W = W_, P = P_, Q = Q_;
  static constexpr bool PadCounts = PadCounts_;
};
// How a value is read: the elements from one lane, row and column to the next.
template <long long LaneStride, long long Row_, long long Column_>
struct Reads {
  static constexpr long long Row = Row_, Column = Column_;
};
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

GRAPHC_INLINE int least(int a, int b) { return a < b ? a : b; }
GRAPHC_INLINE int most(int a, int b) { return a < b ? b : a; }

// The places [begin, end) of one axis that a window or a pixel has to do with.
struct Span {
  int begin, end;
};
// The taps of output o that lie within the input: all, if there is no padding.
template <int Taps, int Stride, int Padding, int Extent>
GRAPHC_INLINE Span taps(int o) {
  if (Padding == 0) return {0, Taps};
  const int start = o * Stride - Padding;
  return {most(-start, 0), least(Extent - start, Taps)};
}
// The outputs whose windows hold input pixel i.
template <int Taps, int Stride, int Padding, int Outputs>
GRAPHC_INLINE Span outputs(int i) {
  const int after = i + Padding + Stride;
  return {most(after - Taps, 0) / Stride, least(after / Stride, Outputs)};
}

// Calls f(row, column, place) for the input pixels of the window of output (p, q), in order.
template <class D, class F>
GRAPHC_INLINE void each_pixel(int p, int q, const F& f) {
  const Span rows = taps<D::KH, D::DH, D::PH, D::H>(p);
  const Span columns = taps<D::KW, D::DW, D::PW, D::W>(q);
  for (int r = rows.begin; r < rows.end; r++)
    for (int s = columns.begin; s < columns.end; s++)
      f(p * D::DH - D::PH + r, q * D::DW - D::PW + s, r * D::KW + s);
}
// Calls f(p, q, place) for the outputs whose windows hold input pixel (h, w), and its place there.
template <class D, class F>
GRAPHC_INLINE void each_window(int h, int w, const F& f) {
  if constexpr (D::KH == D::DH && D::KW == D::DW && D::PH == 0 && D::PW == 0) {
    const int p = h / D::DH, q = w / D::DW;  // windows that tile the pixels, but for the last ones
    if ((D::P * D::DH == D::H || p < D::P) && (D::Q * D::DW == D::W || q < D::Q))
      f(p, q, (h - p * D::DH) * D::KW + w - q * D::DW);
    return;
  }
  const Span rows = outputs<D::KH, D::DH, D::PH, D::P>(h);
  const Span columns = outputs<D::KW, D::DW, D::PW, D::Q>(w);
#pragma unroll 1  // there are few, and how many is not known
  for (int p = rows.begin; p < rows.end; p++)
#pragma unroll 1
    for (int q = columns.begin; q < columns.end; q++)
      f(p, q, (h + D::PH - p * D::DH) * D::KW + w + D::PW - q * D::DW);
}

// The first of the largest elements and its place in the window; the first NaN if there is one.
template <int Live, class I, class D, class R, int LaneRow, int LaneColumn, class T>
GRAPHC_INLINE Pooled<vec<T>, vec<I>, Live> max_pool2d(const T* x, int p, int q) {
  Run<vec<T>, Live> best{};
  Run<vec<I>, Live> index{};
  bool first = true;
  each_pixel<D>(p, q, [&](int h, int w, int place) {
    const Run<T, Live> run = run_at<Live>(x + h * R::Row + w * R::Column);
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
    const Run<T, Live> run = run_at<Live>(x + h * R::Row + w * R::Column);
#pragma unroll
    for (int i = 0; i < Live; i++) total.at[i] += run.at[i];
    count++;
  });
  const T places = T(D::PadCounts ? D::KH * D::KW : count);
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
    const Run<T, Live> run = run_at<Live>(dy + p * R::Row + q * R::Column);
#pragma unroll
    for (int i = 0; i < Live; i++)
      if (largest.at[i] == place) total.at[i] += run.at[i];
  };
  constexpr int down = (D::KH + D::DH - 1) / D::DH, across = (D::KW + D::DW - 1) / D::DW;
  if constexpr (down * across > 1 && down * across <= 4) {  // all are asked at once
    const Span rows = outputs<D::KH, D::DH, D::PH, D::P>(h);
    const Span columns = outputs<D::KW, D::DW, D::PW, D::Q>(w);
    Run<I, Live> largest[down * across];
    int place[down * across];
#pragma unroll
    for (int i = 0; i < down * across; i++) {
      const int p = rows.begin + i / across, q = columns.begin + i % across;
      const bool exists = p < rows.end && q < columns.end;
      place[i] = exists ? (h + D::PH - p * D::DH) * D::KW + w + D::PW - q * D::DW : -1;
      if (exists) largest[i] = run_at<Live>(index + p * S::Row + q * S::Column);
      else largest[i] = {};
    }
#pragma unroll
    for (int i = 0; i < down * across; i++)
      add(largest[i], rows.begin + i / across, columns.begin + i % across, place[i]);
  } else {
    each_window<D>(h, w, [&](int p, int q, int place) {
      add(run_at<Live>(index + p * S::Row + q * S::Column), p, q, place);
    });
  }
  return lanes(total);
}

template <int Live, class D, class R, int LaneRow, int LaneColumn, class T>
GRAPHC_INLINE typename Lanes<T, Live>::type avg_pool2d_grad(const T* dy, int h, int w) {
  Run<T, Live> total{};
  each_window<D>(h, w, [&](int p, int q, int) {
    const Span rows = taps<D::KH, D::DH, D::PH, D::H>(p);
    const Span columns = taps<D::KW, D::DW, D::PW, D::W>(q);
    const int inside = (rows.end - rows.begin) * (columns.end - columns.begin);
    const T places = T(D::PadCounts ? D::KH * D::KW : inside);
    const Run<T, Live> run = run_at<Live>(dy + p * R::Row + q * R::Column);
#pragma unroll
    for (int i = 0; i < Live; i++) total.at[i] += run.at[i] / places;
  });
  return lanes(total);
}

}  // namespace graphc
