// What is done to blocks of attention's scores whatever the extents; attention.cpp puts it together.
//
// A block has REGISTERS registers of queries, or of keys, beside each other, in rows of PITCH elements. Products are those of
// attend.h: rows that are fewer than ROWS are taken by two and by one, as each row's sum is its own.
#pragma once
#include "cpu/attention/attend_gradient.h"

namespace graphc::attend {
// Where element (n, head, row, column) lies. `memory` is the number of an argument, or one of these.
enum : int64_t { ABSENT = -1, WITHIN = -2 };  // WITHIN: behind the description
struct Operand {
  int64_t memory, offset;  // the offset in bytes, strides in elements
  int64_t n, head, row, column;
};
enum { Q, K, V, DY, LOGS, DELTA, MASK, COUNTER, OPERANDS };
enum { PLAIN, TO_TF32, TO_BFLOAT, TO_HALF };  // what weights are rounded to

// What kernels/prebuilt/attention.py writes.
struct Description {
  int64_t forward, chunks;
  int64_t heads, key_heads, queries, keys, features, values;
  int64_t query_registers, key_registers, query_units, key_units;
  int64_t causal, boolean_mask, rounded, seed, number;
  double scale, dropout;
  Operand operands[OPERANDS], results[3];
};

constexpr int REGISTERS = W == 16 ? 4 : 2, PITCH = REGISTERS * W;
using Floats = vec<float>;

// Rows and columns from the first element on.
template <class T> struct Matrix {
  T* first;
  long row, column;
  Matrix from(long r) const { return {first + r * row, row, column}; }
  Matrix transposed() const { return {first, column, row}; }
};

// out[r][v] = out[r][v] * factor[v], or 0 without factors, + sum over s of a(r, s) * b[s][v], for registers v < count.
inline void multiply(int count, Matrix<const float> a, long rows, const float* b, long steps,
                     float* out, const Floats* factor) {
  with_registers<REGISTERS>(count, [&]<int COUNT>() {
    long r = 0;
    const auto take = [&]<int N>() INLINED {
      tile<N, COUNT, PITCH>(a.first + r * a.row, a.row, a.column, b, steps, out + r * PITCH,
                            factor);
      r += N;
    };
    while (r + ROWS <= rows) take.template operator()<ROWS>();
    while (r + 2 <= rows) take.template operator()<2>();
    if (r < rows) take.template operator()<1>();
  });
}

// A block of elements, W rows of W, to its transpose.
NOINLINE inline void transpose_block(const float* from, long from_row, float* to, long to_row) {
  Floats r[W];
#pragma GCC unroll 16
  for (int i = 0; i < W; i++) r[i] = load(from + i * from_row);
  exchange_rows<1>(r);
#pragma GCC unroll 16
  for (int i = 0; i < W; i++) store(to + i * to_row, r[i]);
}

// to[f][place] = from(place, f) * factor; places from `live` on are as the last one and are never stored.
inline void gather(Matrix<const float> from, long live, int count, long features, float factor,
                   float* to) {
  for (int place = 0; place < count * W; place += W) {
    long f = 0;
    if (from.column == 1 && place + W <= live)
      for (; f + W <= features; f += W)
        transpose_block(from.first + place * from.row + f, from.row, to + f * PITCH + place, PITCH);
    for (int l = 0; l < W; l++) {
      const float* const x = from.first + least(place + l, live - 1) * from.row;
      for (long g = f; g < features; g++) to[g * PITCH + place + l] = x[g * from.column];
    }
  }
  const Floats factors = splat(factor);
  for (long f = 0; f < features; f++)
    for (int v = 0; v < count; v++) {
      float* const x = to + f * PITCH + v * W;
      store(x, load(x) * factors);
    }
}
// to(place, f) = from[f][place] * factor[place / W] for the first `live` places; `from` is changed.
inline void scatter(float* from, long live, int count, long features, const Floats* factor,
                    Matrix<float> to) {
  for (long f = 0; f < features; f++)
    for (int v = 0; v < count; v++) {
      float* const x = from + f * PITCH + v * W;
      store(x, load(x) * factor[v]);
    }
  for (long place = 0; place < count * W && place < live; place += W) {
    long f = 0;
    if (place + W <= live)
      for (; f + W <= features; f += W)
        transpose_block(from + f * PITCH + place, PITCH, to.first + place * to.row + f, to.row);
    for (long l = place; l < least(place + W, live); l++)
      for (long g = f; g < features; g++) to.first[l * to.row + g] = from[g * PITCH + l];
  }
}

// The first `live` lanes from p[lane * stride]; the others are 0, or as the last.
template <class T, class E> INLINE vec<T> gather_lanes(const E* p, long stride, long live) {
  vec<T> v{};
  if (stride == 0) return splat<T>(T(*p));
  if constexpr (__is_same(T, E))
    if (stride == 1 && live >= W) return load(p);
  for (long l = 0; l < least(live, W); l++) v[l] = T(p[l * stride]);
  return v;
}

// x, whose register v of row r belongs to the place (r, v * W) of the mask, where lanes are `across` elements apart, as the mask
// leaves it.
NOINLINE inline void mask_scores(float* x, long rows, int count, const void* mask, bool boolean,
                                 long down, long across, long live) {
  for (long r = 0; r < rows; r++)
    for (int v = 0; v < count; v++) {
      float* const own = x + r * PITCH + v * W;
      const long at = r * down + v * W * across;
      const Floats score = load(own);
      if (boolean) {
        const auto m = gather_lanes<int32_t>((const bool*)mask + at, across, live - v * W);
        store(own, select(as_mask(m != 0), score, splat(-infinity<float>)));
      } else store(own, score + gather_lanes<float>((const float*)mask + at, across, live - v * W));
    }
}
// The same for a causal mask: queries from t on and keys from u on, of which one are rows and the others lie in the lanes.
NOINLINE inline void hide_later(float* x, long rows, int count, long t, long u,
                                bool queries_in_lanes) {
  const Floats hidden = splat(-infinity<float>);
  for (long r = 0; r < rows; r++)
    for (int v = 0; v < count; v++) {
      float* const own = x + r * PITCH + v * W;
      const long ahead = queries_in_lanes ? u + r - t - v * W : t + r - u - v * W;
      if (queries_in_lanes && ahead > 0)
        store(own, select(as_mask(lanes() < int(least(ahead, W))), hidden, load(own)));
      if (!queries_in_lanes && ahead < W - 1)
        store(own, select(as_mask(lanes() > int(most(ahead, -1))), hidden, load(own)));
    }
}

// to = exp(x - base), with register v of row r of the bases at `base + r * down + v * across`.
NOINLINE inline void exponentials(float* to, const float* x, long rows, int count,
                                  const float* base, long down, long across) {
  for (long r = 0; r < rows; r++)
    for (int v = 0; v < count; v++) {
      const long place = r * PITCH + v * W;
      store(to + place, exp(load(x + place) - load(base + r * down + v * across)));
    }
}

// Dropout of x: 0 or x / (1 - dropout). Register v of row r has the weights with numbers from number + r * down + v * W * across on.
NOINLINE inline void drop(float* x, long rows, int count, const Description& d, int32_t step,
                          long number, long down, long across) {
  const float factor = 1 / (1 - double(float(d.dropout)));
  for (long r = 0; r < rows; r++)
    for (int v = 0; v < count; v++) {
      float* const own = x + r * PITCH + v * W;
      const vec<uint64_t> index = splat(uint64_t(number + r * down + v * W * across)) +
                                  lanes<uint64_t>() * uint64_t(across);
      const Floats uniform = philox(uint32_t(d.seed), uint32_t(d.number), splat(step), index);
      store(own, select(as_mask(uniform >= float(d.dropout)), load(own) * factor, Floats{}));
    }
}

// Weights as they are multiplied.
inline void round_weights(float* x, long rows, int count, long kind) {
  for (long r = 0; r < rows; r++)
    for (int v = 0; v < count; v++) {
      float* const own = x + r * PITCH + v * W;
      const Floats weight = load(own);
      store(own, kind == TO_TF32     ? to_tf32(weight)
                 : kind == TO_BFLOAT ? convert<bfloat>(weight)
                                     : convert<half>(weight));
    }
}
}  // namespace graphc::attend
