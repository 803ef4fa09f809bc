// attend_tensor.cuh: attention and its gradients on tensor cores, for operands of type Element:
// half, bfloat or tf32. Weights, and the corresponding factors of gradients, are rounded to it
// before products; all sums are float32.
//
// A block of Warps warps owns 16 * Warps places: queries, or keys (key_gradient). Each warp has 16 of
// them, and its sums stay in its registers. The other side streams past, Columns places at a time,
// through two slots of shared memory that cp.async fills in turn. What `scores` gives a thread, by
// fragments of 16 x 8 sums, is what `values` needs of the left operand: no weight ever leaves its
// thread. Four lanes share a row. Forward is here, the gradients are in attend_tensor_gradient.cuh.
// Each runs as block number `block`, so that a launch may have the blocks of both gradients.
//
// Shared memory: dynamic, aligned to 16 bytes; Forward, QueryGradient and KeyGradient say how much. A
// Shape is that of attend.cuh, with VECTOR_Q, _K, _V, _DY, the elements of each operand that are
// copied as one, and PAIRS: whether two neighbouring features of all results are stored at once.
// Block: 32 * Warps threads. Grid: as in attend.cuh.
#pragma once
#include "cuda/attention/attend.cuh"
#include "cuda/contract/tiles/tensor.cuh"

namespace graphc::attend {

// Where places by features lie in shared memory: lines of 16-byte chunks, permuted so that a chunk of
// eight neighbouring lines meets all banks once. Features beyond the last one are zeros.
template <class Element, int Features>
struct Lines {
  using T = Element;
  static constexpr bool along_k = true;
  static constexpr int quad = 16 / sizeof(T), width = ceil_div(Features, 16) * 16;
  static constexpr int chunks = width / quad;
  static constexpr int padded = chunks > 4 ? ceil_div(chunks, 8) * 8 : chunks > 2 ? 4 : chunks;
  static constexpr int line = padded * quad;
  template <int Places>
  static constexpr int bytes = Places * padded * 16;

  GRAPHC_INLINE static int at(int place, int f) {
    const int moved = place / (padded < 8 ? 8 / padded : 1) % smaller(padded, 8);
    return place * line + (f / quad ^ moved) * quad + f % quad;
  }
  // Where the features lie that are f, a multiple of quad, behind those at `at`: the chunks of these have
  // none of the bits of f's.
  GRAPHC_INLINE static int further(int at, int f) {
    constexpr int eight = 8 * quad;
    return (at ^ f % eight) + f / eight * eight;
  }
  // What a lane reads first of rows of A or, ForB, of B, of which one ldmatrix gives 16.
  template <bool ForB>
  GRAPHC_INLINE static int first() {
    const int lane = threadIdx.x % 32, low = lane / 8 % 2, high = lane / 16;
    return at((ForB ? high : low) * 8 + lane % 8, (ForB ? low : high) * quad);
  }
  // 16 features from n on by what one product takes of places from k on, as B's fragments are. Of
  // floats a product takes places in the order 0, 2, 4, 6, 1, 3, 5, 7, as as_left gives them.
  GRAPHC_INLINE static void load(unsigned (&to)[4], const T* tile, int n, int k) {
    const int lane = threadIdx.x % 32;
    if constexpr (sizeof(T) == 2) {
      load_matrices<true>(to, tile + further(at(lane % 16, lane / 16 * 8), n) + k * line);
    } else {
#pragma unroll
      for (int i = 0; i < 4; i++)
        to[i] = __float_as_uint(
            tile[further(at(lane % 4 * 2 + i % 2, lane / 4), n + i / 2 * 8) + k * line].value);
    }
  }
};

// Starts to copy Places places from `first` on; those of Extent and beyond are zeros.
template <class Strides, int Extent, int Features, int Vector, int Places, int Threads, class T>
GRAPHC_INLINE void start_copy(T* to, const T* from, int first) {
  using Tile = Lines<T, Features>;
  constexpr int per_line = Tile::width / Vector, bytes = Vector * sizeof(T);
  constexpr int count = Places * per_line, rounds = ceil_div(count, Threads);
  const unsigned thread = thread_anew();
#pragma unroll 4
  for (int round = 0; round < rounds; round++) {
    const unsigned i = round * Threads + thread;
    if (count % Threads && i >= count) break;
    const int place = i / per_line, f = i % per_line * Vector;
    const bool exists = first + place < Extent && f < Features;
    const T* const x = from + (exists ? (first + place) * Strides::row + f * Strides::column : 0);
    if constexpr (bytes >= 4) copy_async<bytes>(to + Tile::at(place, f), x, exists ? bytes : 0);
    else to[Tile::at(place, f)] = exists ? *x : T{};
  }
}

// step(number, slot) for each of `count` numbers, whose data load(number, slot) has started to copy.
template <class Load, class Step>
GRAPHC_INLINE void stream(int count, const Load& load, const Step& step) {
  if (count > 0) load(0, 0);
  copy_commit();
  for (int i = 0; i < count; i++) {
    copy_wait<0>();
    __syncthreads();  // number i has arrived for all, and all have left the other slot
    if (i + 1 < count) load(i + 1, (i + 1) % 2);
    copy_commit();
    step(i, i % 2);
  }
}

// sum[m][c] = the products of the features of rows row + 16 m ... and columns column + 8 c ... of b. Few
// steps `Unrolled` are few registers of fragments that are on their way.
template <class Tile, int Unrolled, int M, int N, class T>
GRAPHC_INLINE void tensor_scores(const T* a, int row, const T* b, int column,
                                 float (&sum)[M][N][4]) {
  constexpr int line = Tile::line;
  const int first_a = row * line + Tile::template first<false>();
  const int first_b = column * line + Tile::template first<true>();
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int c = 0; c < N; c++)
#pragma unroll
      for (int i = 0; i < 4; i++) sum[m][c][i] = 0;
#pragma unroll(Unrolled)
  for (int k = 0; k < Tile::width; k += 2 * Tile::quad) {
    unsigned left[M][1][4];
#pragma unroll
    for (int m = 0; m < M; m++) {
      load_matrices<false>(left[m][0], a + Tile::further(first_a, k) + m * 16 * line);
      Product<T>::split(left[m]);
    }
#pragma unroll
    for (int c = 0; c < N; c += 2) {
      unsigned right[1][4];
      load_matrices<false>(right[0], b + Tile::further(first_b, k) + c * 8 * line);
      Product<T>::split(right);
#pragma unroll
      for (int m = 0; m < M; m++) {
        multiply(T{}, sum[m][c], left[m][0], {right[0][0], right[0][1]});
        multiply(T{}, sum[m][c + 1], left[m][0], {right[0][2], right[0][3]});
      }
    }
  }
}
template <class Tile, int N, class T>
GRAPHC_INLINE void tensor_scores(const T* a, int row, const T* b, float (&sum)[N][4]) {
  tensor_scores<Tile, 4>(a, row, b, 0, reinterpret_cast<float (&)[1][N][4]>(sum));
}

// The left operand of a product, from sums of the fragments that begin at w[0], rounded.
GRAPHC_INLINE void as_left(bfloat, unsigned (&to)[4], const float (*w)[4]) {
#pragma unroll
  for (int i = 0; i < 4; i++)
    to[i] = floats_to_bfloats(w[i / 2][i % 2 * 2], w[i / 2][i % 2 * 2 + 1]);
}
GRAPHC_INLINE void as_left(half, unsigned (&to)[4], const float (*w)[4]) {
#pragma unroll
  for (int i = 0; i < 4; i++)
    to[i] = floats_to_halves(w[i / 2][i % 2 * 2], w[i / 2][i % 2 * 2 + 1]);
}
GRAPHC_INLINE void as_left(tf32, unsigned (&to)[4], const float (*w)[4]) {
#pragma unroll
  for (int i = 0; i < 4; i++) to[i] = __float_as_uint(float_to_tf32(w[0][i % 2 * 2 + i / 2]));
}

// sum += the products of the weights of a warp's rows and the features of b's places.
template <class Tile, int Columns, class T>
GRAPHC_INLINE void tensor_values(const float (&w)[Columns][4], const T* b,
                                 float (&sum)[Tile::width / 8][4]) {
  constexpr int step = 4 / sizeof(T);  // fragments of weights in a product
#pragma unroll
  for (int c = 0; c < Columns; c += step) {
    unsigned left[4];
    as_left(T{}, left, w + c);
#pragma unroll
    for (int n = 0; n < Tile::width / 8; n += 2) {
      unsigned right[1][4];
      Tile::load(right[0], b, n * 8, c * 8);
      Product<T>::split(right);
      multiply(T{}, sum[n], left, {right[0][0], right[0][1]});
      multiply(T{}, sum[n + 1], left, {right[0][2], right[0][3]});
    }
  }
}

// What the four lanes of a row combine to.
template <class Combine>
GRAPHC_INLINE float of_row(float value, const Combine& combine) {
  value = combine(value, shuffle_xor(value, 1));
  return combine(value, shuffle_xor(value, 2));
}
GRAPHC_INLINE float power(float x) { return exp2(x * 1.4426950408889634f); }

// Stores a warp's sums times the factor of their row, of a warp that has places from `first` on.
template <class Strides, int Features, int Extent, bool Pairs, int N>
GRAPHC_INLINE void store_sums(float* to, int n, int head, int first, const float (&factor)[2],
                              const float (&sum)[N][4]) {
  const int lane = threadIdx.x % 32;
  float* const base = to + n * Strides::n + head * Strides::head;
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const int place = first + lane / 4 + i * 8;
    if (place >= Extent) continue;
    float* const row = base + place * Strides::row + lane % 4 * 2;
#pragma unroll
    for (int c = 0; c < N; c++) {
      const float x = sum[c][i * 2] * factor[i], y = sum[c][i * 2 + 1] * factor[i];
      const int f = c * 8 + lane % 4 * 2;
      if constexpr (Pairs) {
        if (f < Features) *reinterpret_cast<Run<float, 2>*>(row + c * 8) = {{x, y}};
      } else {
        if (f < Features) row[c * 8] = x;
        if (f + 1 < Features) row[c * 8 + 1] = y;
      }
    }
  }
}

// The weights' scores from products, for rows and columns that are queries and keys or, Turned, keys
// and queries, from t and u on.
template <class S, bool Turned, int Columns>
GRAPHC_INLINE void as_scores(const Arrays<S>& in, int t, int u, float (&w)[Columns][4]) {
  constexpr int rows = 16, columns = Columns * 8;
  const int lane = threadIdx.x % 32, row = lane / 4, column = lane % 4 * 2;
  const int last_u = u + (Turned ? rows : columns) - 1, last_t = t + (Turned ? columns : rows) - 1;
  const bool whole = last_u < S::KEYS && last_t < S::QUERIES && !(S::CAUSAL && last_u > t);
  if (!S::MASKED && whole) {
#pragma unroll
    for (int c = 0; c < Columns; c++)
#pragma unroll
      for (int i = 0; i < 4; i++) w[c][i] *= static_cast<float>(S::SCALE);
    return;
  }
#pragma unroll
  for (int c = 0; c < Columns; c++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int y = row + i / 2 * 8, x = c * 8 + column + i % 2;
      w[c][i] = in.score(w[c][i], t + (Turned ? x : y), u + (Turned ? y : x));
    }
}

// Which places a block has: those that see most come first.
template <class S, int Warps, int Heads, int Extent, bool Last>
struct Places {
  static constexpr int blocks = ceil_div(Extent, 16 * Warps);
  const int block, row, first;  // its first place, its warp's counted from there, and in all
  const int head, n;

  GRAPHC_INLINE explicit Places(unsigned number)
      : block(static_cast<int>(Last ? blocks - 1 - number % blocks : number % blocks) * 16 * Warps),
        row(static_cast<int>(threadIdx.x / 32) * 16),
        first(block + row),
        head(static_cast<int>(number / blocks % Heads)),
        n(static_cast<int>(number / blocks / Heads)) {}
};
template <class S, int Warps>
using Queries = Places<S, Warps, S::HEADS, S::QUERIES, S::CAUSAL>;

// How many steps of Columns keys a block of so many queries from `first` on takes.
template <class S, int Columns>
GRAPHC_INLINE int key_steps(int first, int queries) {
  const int past = first + queries;
  return ceil_div(S::CAUSAL && past < S::KEYS ? past : S::KEYS, Columns);
}

// y and logs, of which either may be null.
template <class S, int Warps, int Columns>
struct Forward {
  using E = typename S::Element;
  using K = Lines<E, S::FEATURES>;
  using V = Lines<E, S::VALUES>;
  static constexpr int rows = 16 * Warps, threads = 32 * Warps, fragments = Columns / 8;
  static constexpr int own = K::template bytes<rows>, keys = K::template bytes<Columns>;
  static constexpr int slot = keys + V::template bytes<Columns>;
  static constexpr int shared_bytes = own + 2 * slot;

  GRAPHC_INLINE static void run(unsigned block, unsigned char* memory, const Arrays<S>& arrays,
                                float* out, float* logs) {
    const Queries<S, Warps> at(block);
    const Arrays<S> in = arrays.at(at.n, at.head);
    const int lane = threadIdx.x % 32, t0 = at.first + lane / 4;
    E* const q = reinterpret_cast<E*>(memory);
    const auto k_of = [&](int i) { return reinterpret_cast<E*>(memory + own + i * slot); };
    const auto v_of = [&](int i) { return reinterpret_cast<E*>(memory + own + i * slot + keys); };
    const auto load = [&](int i, int to) {
      if (i == 0)
        start_copy<typename S::Q, S::QUERIES, S::FEATURES, S::VECTOR_Q, rows, threads>(q, in.q,
                                                                                       at.block);
      start_copy<typename S::K, S::KEYS, S::FEATURES, S::VECTOR_K, Columns, threads>(k_of(to), in.k,
                                                                                     i * Columns);
      start_copy<typename S::V, S::KEYS, S::VALUES, S::VECTOR_V, Columns, threads>(v_of(to), in.v,
                                                                                   i * Columns);
    };
    float sum[V::width / 8][4] = {}, total[2] = {};
    float largest[2] = {-infinity<float>(), -infinity<float>()};
    stream(key_steps<S, Columns>(at.block, rows), load, [&](int number, int slot_of) {
      const int u0 = number * Columns;
      float w[fragments][4];
      tensor_scores<K>(q, at.row, k_of(slot_of), w);
      as_scores<S, false>(in, at.first, u0, w);
#pragma unroll
      for (int i = 0; i < 2; i++) {
        float top = largest[i];
#pragma unroll
        for (int c = 0; c < fragments; c++)
#pragma unroll
          for (int j = 0; j < 2; j++) top = w[c][i * 2 + j] > top ? w[c][i * 2 + j] : top;
        top = of_row(top, [](float a, float b) { return a > b ? a : b; });
        const float base = top == -infinity<float>() ? 0.0f : top;
        const float factor = power(largest[i] - base);
        largest[i] = top;
        float added = 0;
#pragma unroll
        for (int c = 0; c < fragments; c++)
#pragma unroll
          for (int j = 0; j < 2; j++) {
            float& x = w[c][i * 2 + j];
            x = power(x - base);
            added += x;
            x = in.kept(x, t0 + i * 8, u0 + c * 8 + lane % 4 * 2 + j);
          }
        total[i] = fma(total[i], factor, added);
#pragma unroll
        for (int c = 0; c < V::width / 8; c++)
#pragma unroll
          for (int j = 0; j < 2; j++) sum[c][i * 2 + j] *= factor;
      }
      tensor_values<V>(w, v_of(slot_of), sum);
    });
    float inverse[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const float all = of_row(total[i], [](float a, float b) { return a + b; });
      inverse[i] = all == 0 ? 0.0f : 1 / all;
      const int t = t0 + i * 8;
      if (logs && lane % 4 == 0 && t < S::QUERIES)
        logs[(static_cast<long long>(at.n) * S::HEADS + at.head) * S::QUERIES + t] =
            all == 0 ? infinity<float>() : largest[i] + log(all);
    }
    if (out)
      store_sums<typename S::Y, S::VALUES, S::QUERIES, S::PAIRS != 0>(out, at.n, at.head, at.first,
                                                                      inverse, sum);
  }
};

// Starts to copy what a gradient of keys reads of `Queries` queries, from `t` on: q, dy and, behind
// these, logs and delta.
template <class S, int Queries, int Threads>
GRAPHC_INLINE void load_queries(const Arrays<S>& in, int t, unsigned char* to) {
  using E = typename S::Element;
  constexpr int queries = Lines<E, S::FEATURES>::template bytes<Queries>;
  constexpr int pair = queries + Lines<E, S::VALUES>::template bytes<Queries>;
  start_copy<typename S::Q, S::QUERIES, S::FEATURES, S::VECTOR_Q, Queries, Threads>(
      reinterpret_cast<E*>(to), in.q, t);
  start_copy<typename S::DY, S::QUERIES, S::VALUES, S::VECTOR_DY, Queries, Threads>(
      reinterpret_cast<E*>(to + queries), in.dy, t);
  float* const words = reinterpret_cast<float*>(to + pair);
  const int thread = static_cast<int>(thread_anew());
#pragma unroll
  for (int first = 0; first < Queries; first += Threads) {
    const int i = first + thread;
    if (i >= Queries) break;
    const bool exists = t + i < S::QUERIES;
    const int from = exists ? t + i : 0;
    copy_async<4>(words + i, in.logs + from * S::LOGS::row, exists ? 4 : 0);
    copy_async<4>(words + Queries + i, in.delta + from * S::DELTA::row, exists ? 4 : 0);
  }
}

}  // namespace graphc::attend
