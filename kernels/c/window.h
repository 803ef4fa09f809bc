// Pooling of [n, c, h, w] and its gradients in plain C, one output at a time.
//
// The functions take the input at row 0 and column 0 of the outputs' image, and the output's row p and column q (of a gradient the
// pixel's row h and column w). LP and LQ are without meaning here.
#pragma once
#include "c/memory.h"

// Kernel size, stride, padding, input pixels, output pixels; whether an average counts the places of the padding.
struct pooling {
  int64_t kh, kw, dh, dw, ph, pw, h, w, p, q;
  bool pad_counts;
};
// The elements from one row and column to the next.
struct reads {
  int64_t lane, row, column;
};
#define GRAPHC_POOLING(kh, kw, dh, dw, ph, pw, h, w, p, q, pad_counts, ...) \
  ((struct pooling){kh, kw, dh, dw, ph, pw, h, w, p, q, pad_counts})
#define Pooling(...) GRAPHC_POOLING(__VA_ARGS__, true, )
#define Reads(...) ((struct reads){__VA_ARGS__})

// The part [first, stop) of `size` places from `start` on that an image of `extent` pixels has.
struct range {
  int64_t first, stop;
};
static inline struct range clipped(int64_t start, int64_t size, int64_t extent) {
  return (struct range){most(0, -start), least(size, extent - start)};
}
// The outputs whose windows hold a pixel.
static inline struct range windows_of(int64_t pixel, int64_t size, int64_t stride, int64_t count) {
  return (struct range){most(pixel - size + stride, 0) / stride, least(pixel / stride + 1, count)};
}
// Places that the average of output pixel (p, q) divides by.
static inline int64_t counted(struct pooling d, int64_t p, int64_t q) {
  const struct range rows = clipped(p * d.dh - d.ph, d.kh, d.h);
  const struct range columns = clipped(q * d.dw - d.pw, d.kw, d.w);
  if (d.pad_counts) return d.kh * d.kw;
  return (rows.stop - rows.first) * (columns.stop - columns.first);
}
static inline int64_t index_at(const void* index, size_t size, int64_t place) {
  return size == 1 ? ((const uint8_t*)index)[place] : ((const int32_t*)index)[place];
}

// Of memory of type T, whose numbers are of type V.
#define GRAPHC_WINDOWS(T, V, S)                                                                 \
  static inline V max_pool2d_##S(struct pooling d, struct reads r, const T* x, int64_t p,       \
                                 int64_t q, int64_t* index) {                                   \
    const int64_t top = p * d.dh - d.ph, left = q * d.dw - d.pw;                                \
    const struct range rows = clipped(top, d.kh, d.h), columns = clipped(left, d.kw, d.w);      \
    V best = (V) - INFINITY;                                                                    \
    bool none = true;                                                                           \
    *index = 0;                                                                                 \
    for (int64_t i = rows.first; i < rows.stop; i++)                                            \
      for (int64_t j = columns.first; j < columns.stop; j++) {                                  \
        const V v = value(x[(top + i) * r.row + (left + j) * r.column]);                        \
        if (!none && (v <= best || best != best)) continue;                                     \
        best = v, none = false;                                                                 \
        *index = i * d.kw + j;                                                                  \
      }                                                                                         \
    return best;                                                                                \
  }                                                                                             \
  static inline V avg_pool2d_##S(struct pooling d, struct reads r, const T* x, int64_t p,       \
                                 int64_t q) {                                                   \
    const int64_t top = p * d.dh - d.ph, left = q * d.dw - d.pw;                                \
    const struct range rows = clipped(top, d.kh, d.h), columns = clipped(left, d.kw, d.w);      \
    V total = 0;                                                                                \
    for (int64_t i = rows.first; i < rows.stop; i++)                                            \
      for (int64_t j = columns.first; j < columns.stop; j++)                                    \
        total += value(x[(top + i) * r.row + (left + j) * r.column]);                           \
    return total / (V)counted(d, p, q);                                                         \
  }                                                                                             \
  static inline V max_pool2d_grad_##S(struct pooling d, struct reads r, struct reads s,         \
                                      const T* dy, const void* index, size_t size, int64_t h,   \
                                      int64_t w) {                                              \
    const struct range rows = windows_of(h + d.ph, d.kh, d.dh, d.p);                            \
    const struct range columns = windows_of(w + d.pw, d.kw, d.dw, d.q);                         \
    V total = 0;                                                                                \
    for (int64_t p = rows.first; p < rows.stop; p++)                                            \
      for (int64_t q = columns.first; q < columns.stop; q++) {                                  \
        const int64_t place = (h + d.ph - p * d.dh) * d.kw + (w + d.pw - q * d.dw);             \
        if (index_at(index, size, p * s.row + q * s.column) == place)                           \
          total += value(dy[p * r.row + q * r.column]);                                         \
      }                                                                                         \
    return total;                                                                               \
  }                                                                                             \
  static inline V avg_pool2d_grad_##S(struct pooling d, struct reads r, const T* dy, int64_t h, \
                                      int64_t w) {                                              \
    const struct range rows = windows_of(h + d.ph, d.kh, d.dh, d.p);                            \
    const struct range columns = windows_of(w + d.pw, d.kw, d.dw, d.q);                         \
    V total = 0;                                                                                \
    for (int64_t p = rows.first; p < rows.stop; p++)                                            \
      for (int64_t q = columns.first; q < columns.stop; q++)                                    \
        total += value(dy[p * r.row + q * r.column]) / (V)counted(d, p, q);                     \
    return total;                                                                               \
  }
GRAPHC_WINDOWS(float, float, f32)
GRAPHC_WINDOWS(double, double, f64)
GRAPHC_WINDOWS(half, float, half)
GRAPHC_WINDOWS(bfloat, float, bfloat)
#undef GRAPHC_WINDOWS
#define GRAPHC_WINDOW(name, x) \
  _Generic((x)[0], float: name##_f32, double: name##_f64, half: name##_half, bfloat: name##_bfloat)

#define max_pool2d(I, D, R, LP, LQ, x, p, q, y, index)          \
  do {                                                          \
    int64_t place;                                              \
    *(y) = GRAPHC_WINDOW(max_pool2d, x)(D, R, x, p, q, &place); \
    *(index) = (I)place;                                        \
  } while (0)
#define avg_pool2d(D, R, LP, LQ, x, p, q) GRAPHC_WINDOW(avg_pool2d, x)(D, R, x, p, q)
#define max_pool2d_grad(D, R, S, LP, LQ, dy, index, h, w) \
  GRAPHC_WINDOW(max_pool2d_grad, dy)(D, R, S, dy, index, sizeof((index)[0]), h, w)
#define avg_pool2d_grad(D, R, LP, LQ, dy, h, w) GRAPHC_WINDOW(avg_pool2d_grad, dy)(D, R, dy, h, w)
