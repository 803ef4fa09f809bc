// attend.cuh: attention and its gradients, without a matrix of weights in memory (Dao,
// FlashAttention-2, 2023).
//
// A block of threads owns 16 * Rows places: queries (forward, query_gradient) or keys
// (key_gradient). The other side streams past, Columns places at a time: `scores` computes the
// products of both sides' features, each thread Rows x 4 of them; what the softmax makes of them
// goes to shared memory, and `values` adds its product with the streamed side's features to sums
// that stay in registers, Rows x ceil(features / 16) per thread. Exact multiply-adds, in a fixed
// order; the sums over a row's 16 threads are by halving distances.
//
// A Shape holds T; the extents N, HEADS, KEY_HEADS, QUERIES, KEYS, FEATURES (of q and k) and VALUES
// (of v); CAUSAL; SCALE; MASKED and the mask's element type Mask; DROPOUT, SEED and NUMBER; the
// Element of q, k, v and dy, whose register is T, and Rounded, as what weights are multiplied;
// and the Strides Q, K, V, DY (places by features), LOGS and DELTA (queries), MASK (queries by
// keys), and of the results Y, or DQ, DK, DV, whose features are neighbours. The result logs is
// row-major, [n][head][query].
//
// Block: 256 threads, the 16 of a row adjacent. Grid: one block per 16 * Rows places of each n and
// head (of key_gradient: key head), the places fastest. Shared memory: static, below 48 KiB for at
// most 256 features.
#pragma once
#include "cuda/reduce/reduce.cuh"
#include "cuda/shared/memory.cuh"

namespace graphc::attend {

template <long long N, long long Head, long long Row, long long Column>
struct Strides {
  static constexpr long long n = N, head = Head, row = Row, column = Column;
};

constexpr int threads = 256, Columns = 64, per_thread = Columns / 16;
template <int Features>
constexpr int strips = (Features + 15) / 16;
template <class T>
constexpr int slice = 64 / sizeof(T);  // features, or streamed places, in shared memory at once
template <class T>
GRAPHC_INLINE T infinity() {
  return static_cast<T>(__builtin_inf());
}

// The arrays, and in at() those of one n and head; first is that of its weights' numbers.
template <class S>
struct Arrays {
  using T = typename S::T;
  const typename S::Element *q, *k, *v, *dy;
  const T *logs, *delta;
  const typename S::Mask* mask;
  const int* counter;
  long long first;

  GRAPHC_INLINE Arrays at(int n, int head) const {
    const int key_head = head / (S::HEADS / S::KEY_HEADS);
    Arrays x = *this;
    x.q += n * S::Q::n + head * S::Q::head;
    x.k += n * S::K::n + key_head * S::K::head;
    x.v += n * S::V::n + key_head * S::V::head;
    x.dy += n * S::DY::n + head * S::DY::head;
    x.logs += n * S::LOGS::n + head * S::LOGS::head;
    x.delta += n * S::DELTA::n + head * S::DELTA::head;
    x.mask += n * S::MASK::n + head * S::MASK::head;
    x.first = (static_cast<long long>(n) * S::HEADS + head) * S::QUERIES * S::KEYS;
    return x;
  }
  // The score of query t and key u from the product of their features: -infinity if not seen.
  GRAPHC_INLINE T score(T product, int t, int u) const {
    if (t >= S::QUERIES || u >= S::KEYS || (S::CAUSAL && u > t)) return -infinity<T>();
    T x = product * static_cast<T>(S::SCALE);
    if constexpr (S::MASKED) {
      const auto m = mask[t * S::MASK::row + u * S::MASK::column];
      if constexpr (sizeof(m) == 1) x = m ? x : -infinity<T>();
      else x += decode(m);
    }
    return x;
  }
  // x as dropout keeps it: 0 or x / (1 - DROPOUT).
  GRAPHC_INLINE T kept(T x, int t, int u) const {
    if constexpr (S::DROPOUT == 0) {
      return x;
    } else {
      const long long number = first + static_cast<long long>(t) * S::KEYS + u;
      const float uniform = philox_uniform<1, 1>(S::SEED, S::NUMBER, *counter, number);
      return uniform >= S::DROPOUT ? x * static_cast<T>(1 / (1 - double(S::DROPOUT))) : T(0);
    }
  }
};

// Element (place, f) of an array of Extent places; 0 outside.
template <class Strides, int Extent, class Element>
struct Matrix {
  const Element* p;
  int first;
  GRAPHC_INLINE auto operator()(int place, int f) const {
    const int at = first + place;
    return decode(at < Extent ? p[at * Strides::row + f * Strides::column] : Element{});
  }
};

// A weight as it is multiplied.
template <class S>
GRAPHC_INLINE typename S::T rounded(typename S::T x) {
  if constexpr (sizeof(x) == 8) return x;
  else return decode(encode<typename S::Rounded>(x));
}

// sum[i][j] = sum over f of a(row, f) * b(column, f); rows y * Rows + i, columns x + 16 * j.
template <int Rows, int Features, class T, class A, class B>
GRAPHC_INLINE void scores(T* stage, const A& a, const B& b, T (&sum)[Rows][per_thread]) {
  constexpr int depth = slice<T>, pitch = depth + 1, places = 16 * Rows;
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll
  for (int i = 0; i < Rows; i++)
#pragma unroll
    for (int j = 0; j < per_thread; j++) sum[i][j] = 0;
  for (int first = 0; first < Features; first += depth) {
    __syncthreads();
#pragma unroll 4
    for (int i = threadIdx.x; i < (places + Columns) * depth; i += threads) {
      const int place = i / depth, f = first + i % depth;
      const bool exists = f < Features;
      stage[place * pitch + i % depth] = !exists          ? T(0)
                                         : place < places ? a(place, f)
                                                          : b(place - places, f);
    }
    __syncthreads();
#pragma unroll 4
    for (int f = 0; f < depth; f++) {
      T left[Rows], right[per_thread];
#pragma unroll
      for (int i = 0; i < Rows; i++) left[i] = stage[(y * Rows + i) * pitch + f];
#pragma unroll
      for (int j = 0; j < per_thread; j++) right[j] = stage[(places + x + 16 * j) * pitch + f];
#pragma unroll
      for (int i = 0; i < Rows; i++)
#pragma unroll
        for (int j = 0; j < per_thread; j++) sum[i][j] = fma(left[i], right[j], sum[i][j]);
    }
  }
}

constexpr int pitch = Columns + 1;  // of the weights in shared memory

template <int Rows, class T>
GRAPHC_INLINE void share(T* weights, const T (&w)[Rows][per_thread]) {
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll
  for (int i = 0; i < Rows; i++)
#pragma unroll
    for (int j = 0; j < per_thread; j++) weights[(y * Rows + i) * pitch + x + 16 * j] = w[i][j];
}

// sum[i][j] += sum over columns c of weights[row][c] * b(c, f); rows as above, f = x + 16 * j.
template <int Rows, int Features, class T, class B>
GRAPHC_INLINE void values(T* stage, const T* weights, const B& b,
                          T (&sum)[Rows][strips<Features>]) {
  constexpr int depth = slice<T>, count = strips<Features>, width = 16 * count;
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  for (int first = 0; first < Columns; first += depth) {
    __syncthreads();
#pragma unroll 4
    for (int i = threadIdx.x; i < depth * width; i += threads) {
      const int f = i % width;
      stage[i] = f < Features ? b(first + i / width, f) : T(0);
    }
    __syncthreads();
#pragma unroll 2
    for (int c = 0; c < depth; c++) {
      T left[Rows];
#pragma unroll
      for (int i = 0; i < Rows; i++) left[i] = weights[(y * Rows + i) * pitch + first + c];
#pragma unroll
      for (int j = 0; j < count; j++) {
        const T right = stage[c * width + x + 16 * j];
#pragma unroll
        for (int i = 0; i < Rows; i++) sum[i][j] = fma(left[i], right, sum[i][j]);
      }
    }
  }
}

// Stores a thread's sums times a factor at a unit's places.
template <class Strides, int Rows, int Features, int Extent, class Unit, class T>
GRAPHC_INLINE void store_rows(T* to, const Unit& unit, T factor,
                              const T (&sum)[Rows][strips<Features>]) {
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  T* const base = to + unit.n * Strides::n + unit.head * Strides::head;
#pragma unroll
  for (int i = 0; i < Rows; i++)
#pragma unroll
    for (int j = 0; j < strips<Features>; j++) {
      const int place = unit.first + y * Rows + i, f = x + 16 * j;
      if (place < Extent && f < Features) base[place * Strides::row + f] = sum[i][j] * factor;
    }
}

// What a row's 16 threads combine to.
template <class T, class Combine>
GRAPHC_INLINE T across(T value, const Combine& combine) {
#pragma unroll
  for (int lanes = 1; lanes < 16; lanes *= 2) value = combine(value, shuffle_xor(value, lanes));
  return value;
}

__host__ __device__ constexpr int larger(int a, int b) { return a > b ? a : b; }
// Elements of shared memory for what `scores` and `values` stage.
template <class T, int Rows, int Features>
constexpr int stage_size =
    larger((16 * Rows + Columns) * (slice<T> + 1), slice<T> * 16 * strips<Features>);

// Where a block works: its n, its head, its first place.
template <int Rows, int Heads, int Extent>
struct Unit {
  static constexpr int blocks = (Extent + 16 * Rows - 1) / (16 * Rows);
  const int first = static_cast<int>(blockIdx.x % blocks) * 16 * Rows;
  const int head = static_cast<int>(blockIdx.x / blocks % Heads);
  const int n = static_cast<int>(blockIdx.x / blocks / Heads);
};

// y and logs, of which either may be null.
template <class S, int Rows>
GRAPHC_INLINE void forward(const Arrays<S>& arrays, typename S::T* out, typename S::T* logs) {
  using T = typename S::T;
  __shared__ T stage[stage_size<T, Rows, S::VALUES>];
  __shared__ T weights[16 * Rows * pitch];
  const Unit<Rows, S::HEADS, S::QUERIES> unit;
  const Arrays<S> in = arrays.at(unit.n, unit.head);
  const int x = threadIdx.x % 16, y = threadIdx.x / 16, t0 = unit.first + y * Rows;
  const Matrix<typename S::Q, S::QUERIES, typename S::Element> q{in.q, unit.first};
  T sum[Rows][strips<S::VALUES>] = {}, largest[Rows], total[Rows];
#pragma unroll
  for (int i = 0; i < Rows; i++) {
    largest[i] = -infinity<T>();
    total[i] = 0;
  }
  const int past = unit.first + 16 * Rows, end = S::CAUSAL && past < S::KEYS ? past : S::KEYS;
  for (int u0 = 0; u0 < end; u0 += Columns) {
    T w[Rows][per_thread];
    scores<Rows, S::FEATURES>(stage, q,
                              Matrix<typename S::K, S::KEYS, typename S::Element>{in.k, u0}, w);
#pragma unroll
    for (int i = 0; i < Rows; i++) {
      T top = largest[i];
#pragma unroll
      for (int j = 0; j < per_thread; j++) {
        w[i][j] = in.score(w[i][j], t0 + i, u0 + x + 16 * j);
        top = w[i][j] > top ? w[i][j] : top;
      }
      top = across(top, [](T a, T b) { return a > b ? a : b; });
      const T base = top == -infinity<T>() ? T(0) : top, factor = exp(largest[i] - base);
      largest[i] = top;
      total[i] *= factor;
#pragma unroll
      for (int j = 0; j < strips<S::VALUES>; j++) sum[i][j] *= factor;
      T added = 0;
#pragma unroll
      for (int j = 0; j < per_thread; j++) {
        w[i][j] = exp(w[i][j] - base);
        added += w[i][j];
        w[i][j] = rounded<S>(in.kept(w[i][j], t0 + i, u0 + x + 16 * j));
      }
      total[i] += added;
    }
    share(weights, w);
    values<Rows, S::VALUES>(stage, weights,
                            Matrix<typename S::V, S::KEYS, typename S::Element>{in.v, u0}, sum);
  }
#pragma unroll
  for (int i = 0; i < Rows; i++) {
    const T all = across(total[i], [](T a, T b) { return a + b; });
    const T inverse = all == 0 ? T(0) : 1 / all;
#pragma unroll
    for (int j = 0; j < strips<S::VALUES>; j++) sum[i][j] *= inverse;
    if (logs && x == 0 && t0 + i < S::QUERIES)
      logs[(static_cast<long long>(unit.n) * S::HEADS + unit.head) * S::QUERIES + t0 + i] =
          all == 0 ? infinity<T>() : largest[i] + log(all);
  }
  if (out) store_rows<typename S::Y, Rows, S::VALUES, S::QUERIES>(out, unit, T(1), sum);
}

template <class S, int Rows>
GRAPHC_INLINE void query_gradient(const Arrays<S>& arrays, typename S::T* dq) {
  using T = typename S::T;
  __shared__ T stage[stage_size<T, Rows, S::FEATURES>];
  __shared__ T weights[16 * Rows * pitch];
  const Unit<Rows, S::HEADS, S::QUERIES> unit;
  const Arrays<S> in = arrays.at(unit.n, unit.head);
  const int x = threadIdx.x % 16, y = threadIdx.x / 16, t0 = unit.first + y * Rows;
  const Matrix<typename S::Q, S::QUERIES, typename S::Element> q{in.q, unit.first};
  const Matrix<typename S::DY, S::QUERIES, typename S::Element> dy{in.dy, unit.first};
  T sum[Rows][strips<S::FEATURES>] = {}, logs[Rows], delta[Rows];
#pragma unroll
  for (int i = 0; i < Rows; i++) {
    const int t = t0 + i < S::QUERIES ? t0 + i : S::QUERIES - 1;
    logs[i] = in.logs[t * S::LOGS::row];
    delta[i] = in.delta[t * S::DELTA::row];
  }
  const int past = unit.first + 16 * Rows, end = S::CAUSAL && past < S::KEYS ? past : S::KEYS;
  for (int u0 = 0; u0 < end; u0 += Columns) {
    const Matrix<typename S::K, S::KEYS, typename S::Element> k{in.k, u0};
    T w[Rows][per_thread], dw[Rows][per_thread];
    scores<Rows, S::FEATURES>(stage, q, k, w);
    scores<Rows, S::VALUES>(stage, dy,
                            Matrix<typename S::V, S::KEYS, typename S::Element>{in.v, u0}, dw);
#pragma unroll
    for (int i = 0; i < Rows; i++)
#pragma unroll
      for (int j = 0; j < per_thread; j++) {
        const int t = t0 + i, u = u0 + x + 16 * j;
        const T weight = exp(in.score(w[i][j], t, u) - logs[i]);
        w[i][j] = rounded<S>(weight * (in.kept(dw[i][j], t, u) - delta[i]));
      }
    share(weights, w);
    values<Rows, S::FEATURES>(stage, weights, k, sum);
  }
  store_rows<typename S::DQ, Rows, S::FEATURES, S::QUERIES>(dq, unit, static_cast<T>(S::SCALE),
                                                            sum);
}

// dk and dv, of which either may be null, summed over the heads of a key head.
template <class S, int Rows>
GRAPHC_INLINE void key_gradient(const Arrays<S>& arrays, typename S::T* dk, typename S::T* dv) {
  using T = typename S::T;
  __shared__ T stage[larger(stage_size<T, Rows, S::FEATURES>, stage_size<T, Rows, S::VALUES>)];
  __shared__ T weights[16 * Rows * pitch];
  constexpr int group = S::HEADS / S::KEY_HEADS;
  const Unit<Rows, S::KEY_HEADS, S::KEYS> unit;
  const int x = threadIdx.x % 16, y = threadIdx.x / 16, u0 = unit.first + y * Rows;
  T dk_sum[Rows][strips<S::FEATURES>] = {}, dv_sum[Rows][strips<S::VALUES>] = {};
  for (int head = unit.head * group; head < (unit.head + 1) * group; head++) {
    const Arrays<S> in = arrays.at(unit.n, head);
    const Matrix<typename S::K, S::KEYS, typename S::Element> k{in.k, unit.first};
    const Matrix<typename S::V, S::KEYS, typename S::Element> v{in.v, unit.first};
    for (int t0 = S::CAUSAL ? unit.first / Columns * Columns : 0; t0 < S::QUERIES; t0 += Columns) {
      const Matrix<typename S::Q, S::QUERIES, typename S::Element> q{in.q, t0};
      const Matrix<typename S::DY, S::QUERIES, typename S::Element> dy{in.dy, t0};
      T w[Rows][per_thread], dw[Rows][per_thread];
      scores<Rows, S::FEATURES>(stage, k, q, w);
#pragma unroll
      for (int j = 0; j < per_thread; j++) {
        const int t = t0 + x + 16 * j;
        const T log = t < S::QUERIES ? in.logs[t * S::LOGS::row] : T(0);
#pragma unroll
        for (int i = 0; i < Rows; i++) {
          w[i][j] = exp(in.score(w[i][j], t, u0 + i) - log);
          dw[i][j] = rounded<S>(in.kept(w[i][j], t, u0 + i));
        }
      }
      share(weights, dw);
      values<Rows, S::VALUES>(stage, weights, dy, dv_sum);
      scores<Rows, S::VALUES>(stage, v, dy, dw);
#pragma unroll
      for (int j = 0; j < per_thread; j++) {
        const int t = t0 + x + 16 * j;
        const T delta = t < S::QUERIES ? in.delta[t * S::DELTA::row] : T(0);
#pragma unroll
        for (int i = 0; i < Rows; i++)
          w[i][j] = rounded<S>(w[i][j] * (in.kept(dw[i][j], t, u0 + i) - delta));
      }
      share(weights, w);
      values<Rows, S::FEATURES>(stage, weights, q, dk_sum);
    }
  }
  const T scale = static_cast<T>(S::SCALE);
  if (dk) store_rows<typename S::DK, Rows, S::FEATURES, S::KEYS>(dk, unit, scale, dk_sum);
  if (dv) store_rows<typename S::DV, Rows, S::VALUES, S::KEYS>(dv, unit, T(1), dv_sum);
}

}  // namespace graphc::attend
