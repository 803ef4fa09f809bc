// attend: attention and its gradients, without a matrix of weights in memory; the algorithm is
// FlashAttention-2 (Dao, 2023).
//
// A block of queries (forward, dq) or of keys (dk, dv) lies in the lanes: up to REGISTERS registers of W places per feature. What
// belongs to the block is copied once, feature by feature; running maxima and sums are registers. The other side streams past in
// steps of STEP places from a multiple of STEP on, read in place as scalars that multiply registers. All products are of one form,
//
//   out[r][place] = start + sum over s of a[r * ROW + s * STRIDE] * b[s][place]
//
// with r, s = key, feature for scores and feature, key for what the weights multiply; only the strides differ. Under a causal mask
// registers that see nothing of a step are left out of it, and a step ends with the last place that any register sees.
//
// The order of sums. A score adds features in ascending order. A step adds its weights key by key to a sum of its own, which is then
// added to that of the steps before; weights times v it adds key by key to what the steps before have left, times the factor of the
// new maximum. In the gradients dq adds keys, and dk and dv heads and then queries, in ascending order. What a mask hides adds zeros.
// So neither the size of blocks nor W changes a bit.
//
// A Shape holds the constants: T; the extents N, HEADS, KEY_HEADS, QUERIES, KEYS, FEATURES (of q and k) and VALUES (of v); CAUSAL;
// SCALE; MASKED and the mask's element type Mask; DROPOUT, SEED and NUMBER; Rounded, as what weights are multiplied; the Strides Q, K, V, DY (rows are places,
// columns features), LOGS and DELTA (rows are queries), MASK (queries by keys), and of the results Y, or DQ, DK, DV, whose
// features are neighbours; QUERY_REGISTERS and KEY_REGISTERS of a block. The result logs is row-major, [n][head][query].
#pragma once
#include "cpu/shared/elementary.h"
#include "cpu/shared/random.h"
#include "cpu/shared/transpose.h"

#define INLINED __attribute__((always_inline))  // behind the parameters of a lambda
#define NOINLINE __attribute__((noinline))

namespace graphc::attend {
constexpr int ROWS = 6;  // of sums in registers, beside 4 registers of b: 24 sums
constexpr int STEP =
    48;  // streamed places at once: multiples of ROWS, so that only the last ones leave a rest
template <long A, long B, long C, long D> struct Strides {
  static constexpr long n = A, head = B, row = C, column = D;
};
template <class T> constexpr T infinity = T(__builtin_inf());

// Calls body<count>(), count being at most MOST.
template <int MOST, class Body> INLINE void with_registers(long count, const Body& body) {
  if constexpr (MOST > 1)
    if (count < MOST) return with_registers<MOST - 1>(count, body);
  body.template operator()<MOST>();
}

// out[r][v] = out[r][v] * factor[v], or 0 without factors, + sum over s of a[r * row + s * stride] * b[s][v], for R rows of V
// registers: one function for all products of a kernel, which would be most of its text.
template <int R, int V, int PITCH, class T>
SHARED void tile(const T* a, long row, long stride, const T* b, long steps, T* out,
                 const vec<T>* factor) {
  vec<T> sum[R][V];
#pragma GCC unroll 8
  for (int r = 0; r < R; r++)
#pragma GCC unroll 8
    for (int v = 0; v < V; v++)
      sum[r][v] = factor ? load(out + r * PITCH + v * W) * factor[v] : vec<T>{};
#pragma GCC unroll 2
  for (long s = 0; s < steps; s++) {
    vec<T> y[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) y[v] = load(b + s * PITCH + v * W);
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
      const vec<T> x = splat(a[r * row + s * stride]);
#pragma GCC unroll 8
      for (int v = 0; v < V; v++) sum[r][v] = fma(x, y[v], sum[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; r++)
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) store(out + r * PITCH + v * W, sum[r][v]);
}

// The rows are a multiple of ROWS, or REST more.
template <int REST, class Some> INLINE void by_rows(long rows, const Some& some) {
  long row = 0;
  for (; row + ROWS <= rows; row += ROWS) some.template operator()<ROWS>(row);
  if constexpr (REST > 0)
    if (row < rows) some.template operator()<REST>(row);
}
// finish(r, v, sum) takes the sum of register v of row r.
template <int V, int PITCH, int REST, long ROW, long STRIDE, class T, class Finish>
INLINE void product(const T* a, const T* b, long rows, long steps, const Finish& finish) {
  by_rows<REST>(rows, [&]<int R>(long row) INLINED {
    alignas(64) T sums[R * PITCH];
    tile<R, V, PITCH>(a + row * ROW, ROW, STRIDE, b, steps, sums, nullptr);
#pragma GCC unroll 1
    for (int r = 0; r < R; r++)
#pragma GCC unroll 8
      for (int v = 0; v < V; v++) finish(row + r, v, load(sums + r * PITCH + v * W));
  });
}
// out[r][place] = out[r][place] * factor + ... for features r.
template <int V, int PITCH, int FEATURES, long ROW, long STRIDE, class T>
INLINE void accumulate(const T* a, const T* b, long steps, T* out, const vec<T>* factor) {
  by_rows<FEATURES % ROWS>(FEATURES, [&]<int R>(long row) INLINED {
    tile<R, V, PITCH>(a + row * ROW, ROW, STRIDE, b, steps, out + row * PITCH, factor);
  });
}

// to[f][place] = from[place * From::row + f * From::column] * factor; places from `live` on repeat the last one and are never stored.
template <int V, int PITCH, class From, int FEATURES, class T>
INLINE void gather_places(const T* from, long live, T factor, T* to) {
  for (int place = 0; place < V * W; place += W) {
    const long last = most(live - place, 1) - 1;
    const T* const x = from + least(place, live - 1) * From::row;
    const auto columns = [&]<int N>(int f) INLINED {
      vec<T> r[W];
#pragma GCC unroll 16
      for (int i = 0; i < W; i++)
        r[i] = load<N, From::column>(x + least(i, last) * From::row + f * From::column) * factor;
      exchange_rows<1>(r);
#pragma GCC unroll 16
      for (int i = 0; i < N; i++) store(to + (f + i) * PITCH + place, r[i]);
    };
    for (int f = 0; f + W <= FEATURES; f += W) columns.template operator()<W>(f);
    if constexpr (FEATURES % W) columns.template operator()<FEATURES % W>(FEATURES / W * W);
  }
}
// to[place * PLACE + f] = from[f][place] * factor[place / W] for the first `live` places.
template <int V, int PITCH, long PLACE, int FEATURES, class T>
INLINE void scatter_places(const T* from, long live, const vec<T>* factor, T* to) {
  for (int place = 0; place < V * W && place < live; place += W) {
    const auto columns = [&]<int N>(int f) INLINED {
      vec<T> r[W];
#pragma GCC unroll 16
      for (int i = 0; i < W; i++)
        r[i] = i < N ? load(from + (f + i) * PITCH + place) * factor[place / W] : vec<T>{};
      exchange_rows<1>(r);
#pragma GCC unroll 16
      for (int i = 0; i < W; i++)
        if (place + i < live) store<N>(to + (place + i) * PLACE + f, r[i]);
    };
    for (int f = 0; f + W <= FEATURES; f += W) columns.template operator()<W>(f);
    if constexpr (FEATURES % W) columns.template operator()<FEATURES % W>(FEATURES / W * W);
  }
}
// The first `live` lanes from p[lane * STRIDE]; the others are 0, or as the last.
template <long STRIDE, class T> INLINE vec<T> load_places(const T* p, long live) {
  if (STRIDE == 0 || live >= W) return load<W, STRIDE>(p);
  vec<T> v{};
  for (int l = 0; l < live; l++) v[l] = __is_same(T, bool) ? -int(p[l * STRIDE]) : p[l * STRIDE];
  return v;
}
template <class T> INLINE void store_places(T* p, long live, vec<T> v) {
  if (live >= W) return store(p, v);
  for (int l = 0; l < live; l++) p[l] = v[l];
}

// The arrays, then those of one n and head.
template <class S> struct Arrays {
  using T = typename S::T;
  const T *q, *k, *v, *dy, *logs, *delta;
  const typename S::Mask* mask;
  const int32_t* counter;
  long rows = 0;  // of the matrix of weights before those of this n and head

  INLINE Arrays at(long n, long head) const {
    const long key_head = head / (S::HEADS / S::KEY_HEADS);
    Arrays x = *this;
    x.q += n * S::Q::n + head * S::Q::head;
    x.k += n * S::K::n + key_head * S::K::head;
    x.v += n * S::V::n + key_head * S::V::head;
    x.dy += n * S::DY::n + head * S::DY::head;
    x.logs += n * S::LOGS::n + head * S::LOGS::head;
    x.delta += n * S::DELTA::n + head * S::DELTA::head;
    x.mask += n * S::MASK::n + head * S::MASK::head;
    x.rows = (n * S::HEADS + head) * S::QUERIES;
    return x;
  }
};

template <class S> using Register = vec<typename S::T>;

// The scores x of query t and key u, of lane 0, one of which moves on along the lanes, under the masks.
template <class S, bool QUERIES_IN_LANES>
INLINE Register<S> seen(Register<S> x, const Arrays<S>& in, long t, long u, long live) {
  using T = typename S::T;
  if constexpr (S::MASKED) {
    constexpr long stride = QUERIES_IN_LANES ? S::MASK::row : S::MASK::column;
    const auto m = load_places<stride>(in.mask + t * S::MASK::row + u * S::MASK::column, live);
    if constexpr (__is_same(typename S::Mask, bool)) x = select(m, x, splat(-infinity<T>));
    else x += m;
  }
  if constexpr (S::CAUSAL) {
    if (QUERIES_IN_LANES && u > t)
      x = select(as_mask(lanes() < int(least(u - t, W))), splat(-infinity<T>), x);
    if (!QUERIES_IN_LANES && u + W - 1 > t)
      x = select(as_mask(lanes() > int(most(t - u, -1))), splat(-infinity<T>), x);
  }
  return x;
}

// x as dropout keeps it: 0 or x / (1 - DROPOUT), by the weight's number; the rest as above.
template <class S, bool QUERIES_IN_LANES>
INLINE Register<S> kept(Register<S> x, const Arrays<S>& in, long t, long u) {
  if constexpr (S::DROPOUT == 0) return x;
  else {
    constexpr int step = QUERIES_IN_LANES ? S::KEYS : 1;
    constexpr typename S::T factor = 1 / (1 - double(S::DROPOUT));
    const long number = (in.rows + t) * S::KEYS + u;
    const vec<float> uniform =
        philox_uniform<step, 1>(S::SEED, S::NUMBER, splat(*in.counter), number);
    return select(as_mask(uniform >= S::DROPOUT), x * factor, Register<S>{});
  }
}

// Weights as they are multiplied.
template <class S> INLINE Register<S> rounded(Register<S> x) {
  using To = typename S::Rounded;
  if constexpr (__is_same(To, tf32)) return to_tf32(x);
  else if constexpr (!__is_same(To, typename S::T)) return convert<To>(x);
  else return x;
}

// The places of a step from u on if nothing is seen from `end` on: whole rows of tile(), or all that are left of `extent`.
INLINE long step_places(long u, long end, long extent) {
  const long seen = (end - u + ROWS - 1) / ROWS * ROWS;
  return least(least(seen, STEP), extent - u);
}
// Streams the keys past a block of queries: step<registers>(u, count, first register).
template <class S, int V, class Step> INLINE void each_key_step(long t, const Step& step) {
  const long end = S::CAUSAL ? least(S::KEYS, t + V * W) : S::KEYS;
  for (long u = 0; u < end; u += STEP) {
    const long count = step_places(u, end, S::KEYS);
    const long first = S::CAUSAL ? most(u - t, 0) / W : 0;
    const auto call = [&]<int N>() INLINED { step.template operator()<N>(u, count, int(first)); };
    if constexpr (S::CAUSAL) with_registers<V>(V - first, call);
    else step.template operator()<V>(u, count, 0);
  }
}

// How many blocks of REGISTERS registers EXTENT places make; the last one may have fewer.
template <int REGISTERS, long EXTENT> struct Blocks {
  static constexpr long COUNT = (EXTENT + REGISTERS * W - 1) / (REGISTERS * W);
  static constexpr int LAST = (EXTENT - (COUNT - 1) * REGISTERS * W + W - 1) / W;

  // Calls body<registers>(first place) for a block.
  template <class Body> static INLINE void call(long block, const Body& body) {
    const long first = block * REGISTERS * W;
    if constexpr (LAST == REGISTERS) body.template operator()<REGISTERS>(first);
    else if (block + 1 == COUNT) body.template operator()<LAST>(first);
    else if constexpr (COUNT > 1) body.template operator()<REGISTERS>(first);
  }
};
template <class S> using QueryBlocks = Blocks<S::QUERY_REGISTERS, S::QUERIES>;
template <class S> using KeyBlocks = Blocks<S::KEY_REGISTERS, S::KEYS>;

// A block of queries, what it has gathered, and its sums of weights times v.
template <class S> struct ForwardBlock {
  using T = typename S::T;
  static constexpr int PITCH = S::QUERY_REGISTERS * W;
  alignas(64) T q[S::FEATURES * PITCH], weights[STEP * PITCH];
  alignas(64) T o[S::VALUES * PITCH] = {};
  vec<T> largest[S::QUERY_REGISTERS], total[S::QUERY_REGISTERS];
};

// Keys [u, u + count) for the registers [first, first + V) of a block of queries from t on.
template <class S, int V>
NOINLINE void forward_step(ForwardBlock<S>& block, const Arrays<S>& in, long t, long u, long count,
                           int first) {
  using T = typename S::T;
  constexpr int P = ForwardBlock<S>::PITCH;
  T* const weights = block.weights + first * W;
  T* const o = block.o + first * W;
  vec<T> largest[V], factor[V];
  for (int v = 0; v < V; v++) largest[v] = block.largest[first + v];
  const long from = t + first * W;
  product<V, P, S::KEYS % ROWS, S::K::row, S::K::column>(
      in.k + u * S::K::row, block.q + first * W, count, S::FEATURES,
      [&](long r, int v, vec<T> x) INLINED {
        x = seen<S, true>(x, in, from + v * W, u + r, S::QUERIES - from - v * W);
        largest[v] = select(x > largest[v], x, largest[v]);
        store(weights + r * P + v * W, x);
      });
  vec<T> base[V], sum[V];
#pragma GCC unroll 8
  for (int v = 0; v < V; v++) {
    base[v] = select(largest[v] == -infinity<T>, vec<T>{}, largest[v]);
    factor[v] = exp(block.largest[first + v] - base[v]);
    block.largest[first + v] = largest[v];
    sum[v] = vec<T>{};
  }
  for (long r = 0; r < count; r++)
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) {
      const vec<T> w = exp(load(weights + r * P + v * W) - base[v]);
      store(weights + r * P + v * W, rounded<S>(kept<S, true>(w, in, from + v * W, u + r)));
      sum[v] += w;
    }
  for (int v = 0; v < V; v++) block.total[first + v] = block.total[first + v] * factor[v] + sum[v];
  accumulate<V, P, S::VALUES, S::V::column, S::V::row>(in.v + u * S::V::row, weights, count, o,
                                                       factor);
}

// y and logs (either may be null) of queries [t, t + V * W) of one n and head.
template <class S, int V>
INLINE void forward_block(const Arrays<S>& in, long t, typename S::T* y, typename S::T* logs) {
  using T = typename S::T;
  using Block = ForwardBlock<S>;
  const long live = S::QUERIES - t;
  Block block;
  gather_places<V, Block::PITCH, typename S::Q, S::FEATURES>(in.q + t * S::Q::row, live,
                                                             T(S::SCALE), block.q);
  for (int v = 0; v < V; v++) {
    block.largest[v] = splat(-infinity<T>);
    block.total[v] = vec<T>{};
  }
  each_key_step<S, V>(t, [&]<int N>(long u, long count, int first)
                             INLINED { forward_step<S, N>(block, in, t, u, count, first); });
  vec<T> inverse[V];
  for (int v = 0; v < V; v++) {
    const mask nothing = as_mask(block.total[v] == T(0));
    inverse[v] = select(nothing, vec<T>{}, T(1) / block.total[v]);
    const vec<T> l = select(nothing, splat(infinity<T>), block.largest[v] + log(block.total[v]));
    if (logs && v * W < live) store_places(logs + t + v * W, live - v * W, l);
  }
  if (y)
    scatter_places<V, Block::PITCH, S::Y::row, S::VALUES>(block.o, live, inverse,
                                                          y + t * S::Y::row);
}

// Units [begin, end) of N * HEADS * QueryBlocks::COUNT.
template <class S>
INLINE void forward(const Arrays<S>& all, typename S::T* y, typename S::T* logs, long begin,
                    long end) {
  constexpr long count = QueryBlocks<S>::COUNT;
  for (long unit = begin; unit < end; unit++) {
    const long n = unit / count / S::HEADS, head = unit / count % S::HEADS;
    auto* const rows = y ? y + n * S::Y::n + head * S::Y::head : nullptr;
    auto* const sums = logs ? logs + (n * S::HEADS + head) * S::QUERIES : nullptr;
    QueryBlocks<S>::call(unit % count, [&]<int V>(long t) INLINED {
      forward_block<S, V>(all.at(n, head), t, rows, sums);
    });
  }
}
}  // namespace graphc::attend
