// attend_tensor_gradient.cuh: the gradients of attention on tensor cores; see attend_tensor.cuh.
#pragma once
#include "cuda/attention/attend_tensor.cuh"

namespace graphc::attend {

template <class S, int Warps, int Columns>
struct QueryGradient {
  using E = typename S::Element;
  using K = Lines<E, S::FEATURES>;
  using V = Lines<E, S::VALUES>;
  static constexpr int rows = 16 * Warps, threads = 32 * Warps, fragments = Columns / 8;
  static constexpr int queries = K::template bytes<rows>, own = queries + V::template bytes<rows>;
  static constexpr int keys = K::template bytes<Columns>;
  static constexpr int slot = keys + V::template bytes<Columns>;
  static constexpr int shared_bytes = own + 2 * slot;

  GRAPHC_INLINE static void run(unsigned block, unsigned char* memory, const Arrays<S>& arrays,
                                float* dq) {
    const Queries<S, Warps> at(block);
    const Arrays<S> in = arrays.at(at.n, at.head);
    const int lane = threadIdx.x % 32, t0 = at.first + lane / 4;
    E *const q = reinterpret_cast<E*>(memory), *const dy = reinterpret_cast<E*>(memory + queries);
    const auto k_of = [&](int i) { return reinterpret_cast<E*>(memory + own + i * slot); };
    const auto v_of = [&](int i) { return reinterpret_cast<E*>(memory + own + i * slot + keys); };
    const auto load = [&](int i, int to) {
      if (i == 0) {
        start_copy<typename S::Q, S::QUERIES, S::FEATURES, S::VECTOR_Q, rows, threads>(q, in.q,
                                                                                       at.block);
        start_copy<typename S::DY, S::QUERIES, S::VALUES, S::VECTOR_DY, rows, threads>(dy, in.dy,
                                                                                       at.block);
      }
      start_copy<typename S::K, S::KEYS, S::FEATURES, S::VECTOR_K, Columns, threads>(k_of(to), in.k,
                                                                                     i * Columns);
      start_copy<typename S::V, S::KEYS, S::VALUES, S::VECTOR_V, Columns, threads>(v_of(to), in.v,
                                                                                   i * Columns);
    };
    float sum[K::width / 8][4] = {}, logs[2], delta[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int t = smaller(t0 + i * 8, S::QUERIES - 1);
      logs[i] = in.logs[t * S::LOGS::row];
      delta[i] = in.delta[t * S::DELTA::row];
    }
    stream(key_steps<S, Columns>(at.block, rows), load, [&](int number, int slot_of) {
      const int u0 = number * Columns;
      float w[fragments][4], dw[fragments][4];
      tensor_scores<K>(q, at.row, k_of(slot_of), w);
      as_scores<S, false>(in, at.first, u0, w);
      tensor_scores<V>(dy, at.row, v_of(slot_of), dw);
#pragma unroll
      for (int c = 0; c < fragments; c++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const int t = t0 + i / 2 * 8, u = u0 + c * 8 + lane % 4 * 2 + i % 2;
          w[c][i] = power(w[c][i] - logs[i / 2]) * (in.kept(dw[c][i], t, u) - delta[i / 2]);
        }
      tensor_values<K>(w, k_of(slot_of), sum);
    });
    const float scale[2] = {static_cast<float>(S::SCALE), static_cast<float>(S::SCALE)};
    store_sums<typename S::DQ, S::FEATURES, S::QUERIES, S::PAIRS != 0>(dq, at.n, at.head, at.first,
                                                                       scale, sum);
  }
};

// dk and dv, of which either may be null, summed over the heads of a key head.
template <class S, int Warps, int Columns>
struct KeyGradient {
  using E = typename S::Element;
  using K = Lines<E, S::FEATURES>;
  using V = Lines<E, S::VALUES>;
  static constexpr int rows = 16 * Warps, threads = 32 * Warps, fragments = Columns / 8;
  static constexpr int keys = K::template bytes<rows>, own = keys + V::template bytes<rows>;
  static constexpr int queries = K::template bytes<Columns>;
  static constexpr int tiles = queries + V::template bytes<Columns>;
  static constexpr int slot = tiles + 2 * 4 * Columns;  // logs and delta behind q and dy
  static constexpr int shared_bytes = own + 2 * slot;

  GRAPHC_INLINE static void run(unsigned block, unsigned char* memory, const Arrays<S>& arrays,
                                float* dk, float* dv) {
    constexpr int group = S::HEADS / S::KEY_HEADS;
    const Places<S, Warps, S::KEY_HEADS, S::KEYS, false> at(block);
    const int lane = threadIdx.x % 32, u0 = at.first + lane / 4;
    const int begin = S::CAUSAL ? at.block / Columns : 0;
    const int steps = ceil_div(S::QUERIES, Columns) - begin;
    E *const k = reinterpret_cast<E*>(memory), *const v = reinterpret_cast<E*>(memory + keys);
    const auto slot_at = [&](int i) { return memory + own + i * slot; };
    const auto load = [&](int i, int to) {
      const Arrays<S> in = arrays.at(at.n, at.head * group + i / steps);
      const int t0 = (begin + i % steps) * Columns;
      if (i == 0) {
        start_copy<typename S::K, S::KEYS, S::FEATURES, S::VECTOR_K, rows, threads>(k, in.k,
                                                                                    at.block);
        start_copy<typename S::V, S::KEYS, S::VALUES, S::VECTOR_V, rows, threads>(v, in.v,
                                                                                  at.block);
      }
      load_queries<S, Columns, threads>(in, t0, slot_at(to));
    };
    float dk_sum[K::width / 8][4] = {}, dv_sum[V::width / 8][4] = {};
    stream(group * larger(steps, 0), load, [&](int number, int slot_of) {
      const Arrays<S> in = arrays.at(at.n, at.head * group + number / steps);
      const int t0 = (begin + number % steps) * Columns;
      const unsigned char* const memory_of = slot_at(slot_of);
      const E *const q = reinterpret_cast<const E*>(memory_of), *const dy =
                                                                    reinterpret_cast<const E*>(
                                                                        memory_of + queries);
      const float* const words = reinterpret_cast<const float*>(memory_of + tiles);
      float w[fragments][4], dw[fragments][4];
      tensor_scores<K>(k, at.row, q, w);
      as_scores<S, true>(in, t0, at.first, w);
#pragma unroll
      for (int c = 0; c < fragments; c++) {
        const auto log = *reinterpret_cast<const Run<float, 2>*>(words + c * 8 + lane % 4 * 2);
#pragma unroll
        for (int i = 0; i < 4; i++) {
          w[c][i] = power(w[c][i] - log.at[i % 2]);
          dw[c][i] = in.kept(w[c][i], t0 + c * 8 + lane % 4 * 2 + i % 2, u0 + i / 2 * 8);
        }
      }
      tensor_values<V>(dw, dy, dv_sum);
      tensor_scores<V>(v, at.row, dy, dw);
#pragma unroll
      for (int c = 0; c < fragments; c++) {
        const int column = c * 8 + lane % 4 * 2;
        const auto delta = *reinterpret_cast<const Run<float, 2>*>(words + Columns + column);
#pragma unroll
        for (int i = 0; i < 4; i++)
          w[c][i] *= in.kept(dw[c][i], t0 + column + i % 2, u0 + i / 2 * 8) - delta.at[i % 2];
      }
      tensor_values<K>(w, q, dk_sum);
    });
    const float scale[2] = {static_cast<float>(S::SCALE), static_cast<float>(S::SCALE)};
    const float one[2] = {1, 1};
    if (dk)
      store_sums<typename S::DK, S::FEATURES, S::KEYS, S::PAIRS != 0>(dk, at.n, at.head, at.first,
                                                                      scale, dk_sum);
    if (dv)
      store_sums<typename S::DV, S::VALUES, S::KEYS, S::PAIRS != 0>(dv, at.n, at.head, at.first,
                                                                    one, dv_sum);
  }
};

}  // namespace graphc::attend
