// attend_gradient: the gradients of attention. Blocks of queries stream the keys and give dq;
// blocks of keys stream the queries and give dk and dv, summed over the heads that share them. Both
// recompute the weights from the logarithm of their sums.
#pragma once
#include "cpu/attention/attend.h"

namespace graphc::attend {
constexpr int DIAGONAL = 24;  // queries of a step that a causal mask cuts

// A block of queries, what it has gathered, and its sums.
template <class S> struct QueryBlock {
  using T = typename S::T;
  static constexpr int PITCH = S::QUERY_REGISTERS * W;
  alignas(64) T q[S::FEATURES * PITCH], dy[S::VALUES * PITCH], weights[STEP * PITCH];
  alignas(64) T dq[S::FEATURES * PITCH] = {};
  vec<T> logs[S::QUERY_REGISTERS], delta[S::QUERY_REGISTERS];
};

// Keys [u, u + count) for the registers [first, first + V) of a block of queries from t on.
template <class S, int V>
NOINLINE void query_step(QueryBlock<S>& block, const Arrays<S>& in, long t, long u, long count,
                         int first) {
  using T = typename S::T;
  constexpr int P = QueryBlock<S>::PITCH;
  T* const weights = block.weights + first * W;
  vec<T> one[V];
  for (int v = 0; v < V; v++) one[v] = splat(T(1));
  const long from = t + first * W;
  product<V, P, S::KEYS % ROWS, S::K::row, S::K::column>(
      in.k + u * S::K::row, block.q + first * W, count, S::FEATURES,
      [&](long r, int v, vec<T> x) INLINED {
        x = seen<S, true>(x, in, from + v * W, u + r, S::QUERIES - from - v * W);
        store(weights + r * P + v * W, x);
      });
  for (long r = 0; r < count; r++)
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) {
      T* const w = weights + r * P + v * W;
      store(w, exp(load(w) - block.logs[first + v]));
    }
  product<V, P, S::KEYS % ROWS, S::V::row, S::V::column>(
      in.v + u * S::V::row, block.dy + first * W, count, S::VALUES,
      [&](long r, int v, vec<T> x) INLINED {
        T* const w = weights + r * P + v * W;
        const vec<T> dw = kept<S, true>(x, in, from + v * W, u + r) - block.delta[first + v];
        store(w, rounded<S>(load(w) * dw));
      });
  accumulate<V, P, S::FEATURES, S::K::column, S::K::row>(in.k + u * S::K::row, weights, count,
                                                         block.dq + first * W, one);
}

template <class S, int V> INLINE void query_block(const Arrays<S>& in, long t, typename S::T* dq) {
  using T = typename S::T;
  using Block = QueryBlock<S>;
  const long live = S::QUERIES - t;
  Block block;
  gather_places<V, Block::PITCH, typename S::Q, S::FEATURES>(in.q + t * S::Q::row, live,
                                                             T(S::SCALE), block.q);
  gather_places<V, Block::PITCH, typename S::DY, S::VALUES>(in.dy + t * S::DY::row, live, T(1),
                                                            block.dy);
  vec<T> scale[V];
  for (int v = 0; v < V; v++) {
    block.logs[v] = load_places<S::LOGS::row>(in.logs + (t + v * W) * S::LOGS::row, live - v * W);
    block.delta[v] =
        load_places<S::DELTA::row>(in.delta + (t + v * W) * S::DELTA::row, live - v * W);
    scale[v] = splat(T(S::SCALE));
  }
  each_key_step<S, V>(t, [&]<int N>(long u, long count, int first)
                             INLINED { query_step<S, N>(block, in, t, u, count, first); });
  scatter_places<V, Block::PITCH, S::DQ::row, S::FEATURES>(block.dq, live, scale,
                                                           dq + t * S::DQ::row);
}

template <class S> struct KeyBlock {
  using T = typename S::T;
  static constexpr int PITCH = S::KEY_REGISTERS * W;
  alignas(64) T k[S::FEATURES * PITCH], v[S::VALUES * PITCH], weights[STEP * PITCH],
      dweights[STEP * PITCH];
  alignas(64) T dk[S::FEATURES * PITCH] = {}, dv[S::VALUES * PITCH] = {};
};

// Queries [t, t + count) for the first V registers of a block of keys from u on.
template <class S, int V> NOINLINE void key_step(KeyBlock<S>& block, const Arrays<S>& in, long t,
                                                 long u, long count) {
  using T = typename S::T;
  constexpr int P = KeyBlock<S>::PITCH;
  const T *const q = in.q + t * S::Q::row, *const dy = in.dy + t * S::DY::row;
  vec<T> one[V];
  for (int v = 0; v < V; v++) one[v] = splat(T(1));
  constexpr bool differs = S::DROPOUT != 0 || !__is_same(typename S::Rounded, T);
  T* const plain = differs ? block.dweights : block.weights;  // as they are not multiplied
  constexpr int rest = S::QUERIES % ROWS;
  product<V, P, rest, S::Q::row, S::Q::column>(
      q, block.k, count, S::FEATURES, [&](long r, int v, vec<T> x) INLINED {
        x = seen<S, false>(x, in, t + r, u + v * W, S::KEYS - u - v * W);
        store(block.weights + r * P + v * W, x);
      });
  for (long r = 0; r < count; r++) {
    const vec<T> l = splat(in.logs[(t + r) * S::LOGS::row]);
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) {
      const long place = r * P + v * W;
      const vec<T> w = exp(load(block.weights + place) - l);
      store(plain + place, w);
      if (differs)
        store(block.weights + place, rounded<S>(kept<S, false>(w, in, t + r, u + v * W)));
    }
  }
  accumulate<V, P, S::VALUES, S::DY::column, S::DY::row>(dy, block.weights, count, block.dv, one);
  product<V, P, rest, S::DY::row, S::DY::column>(
      dy, block.v, count, S::VALUES, [&](long r, int v, vec<T> x) INLINED {
        const vec<T> delta = splat(in.delta[(t + r) * S::DELTA::row]);
        const vec<T> w = load(plain + r * P + v * W);
        store(block.dweights + r * P + v * W,
              rounded<S>(w * (kept<S, false>(x, in, t + r, u + v * W) - delta)));
      });
  accumulate<V, P, S::FEATURES, S::Q::column, S::Q::row>(q, block.dweights, count, block.dk, one);
}

// dk and dv (either may be null) of keys [u, u + V * W) of one n and key head, summed over its heads.
template <class S, int V>
INLINE void key_block(const Arrays<S>& all, long n, long key_head, long u, typename S::T* dk,
                      typename S::T* dv) {
  using T = typename S::T;
  using Block = KeyBlock<S>;
  constexpr long GROUP = S::HEADS / S::KEY_HEADS;
  const long live = S::KEYS - u, begin = S::CAUSAL ? u / ROWS * ROWS : 0;
  Block block;
  const Arrays<S> first = all.at(n, key_head * GROUP);
  gather_places<V, Block::PITCH, typename S::K, S::FEATURES>(first.k + u * S::K::row, live,
                                                             T(S::SCALE), block.k);
  gather_places<V, Block::PITCH, typename S::V, S::VALUES>(first.v + u * S::V::row, live, T(1),
                                                           block.v);
  for (long head = 0; head < GROUP; head++) {
    const Arrays<S> in = all.at(n, key_head * GROUP + head);
    for (long t = begin, count; t < S::QUERIES; t += count) {
      count = least(S::CAUSAL && t < u + V * W ? DIAGONAL : STEP, S::QUERIES - t);
      const auto step = [&]<int M>() INLINED { key_step<S, M>(block, in, t, u, count); };
      if constexpr (S::CAUSAL) with_registers<V>((t + count - 1 - u) / W + 1, step);
      else step.template operator()<V>();
    }
  }
  vec<T> scale[V], one[V];
  for (int v = 0; v < V; v++) {
    scale[v] = splat(T(S::SCALE));
    one[v] = splat(T(1));
  }
  if (dk) scatter_places<V, Block::PITCH, S::DK::row, S::FEATURES>(block.dk, live, scale, dk);
  if (dv) scatter_places<V, Block::PITCH, S::DV::row, S::VALUES>(block.dv, live, one, dv);
}

// Units [begin, end) of N * HEADS * QueryBlocks::COUNT.
template <class S> INLINE void query_gradient(const Arrays<S>& all, typename S::T* dq, long begin,
                                              long end) {
  constexpr long count = QueryBlocks<S>::COUNT;
  for (long unit = begin; unit < end; unit++) {
    const long n = unit / count / S::HEADS, head = unit / count % S::HEADS;
    auto* const rows = dq + n * S::DQ::n + head * S::DQ::head;
    QueryBlocks<S>::call(
        unit % count, [&]<int V>(long t) INLINED { query_block<S, V>(all.at(n, head), t, rows); });
  }
}
// Units [begin, end) of N * KEY_HEADS * KeyBlocks::COUNT.
template <class S>
INLINE void key_gradient(const Arrays<S>& all, typename S::T* dk, typename S::T* dv, long begin,
                         long end) {
  constexpr long count = KeyBlocks<S>::COUNT;
  for (long unit = begin; unit < end; unit++) {
    const long n = unit / count / S::KEY_HEADS, head = unit / count % S::KEY_HEADS;
    KeyBlocks<S>::call(unit % count, [&]<int V>(long u) INLINED {
      auto* const to_dk = dk ? dk + n * S::DK::n + head * S::DK::head + u * S::DK::row : nullptr;
      auto* const to_dv = dv ? dv + n * S::DV::n + head * S::DV::head + u * S::DV::row : nullptr;
      key_block<S, V>(all, n, head, u, to_dk, to_dv);
    });
  }
}
}  // namespace graphc::attend
