// attend_serialized.cuh: the gradients of attention with five products, where
// attend_tensor_gradient.cuh takes seven: a block of keys computes the scores' gradients for all
// three results.
//
// A block of Warps warps owns 16 * M * Warps keys, whose dk and dv are sums in registers. Tiles of
// Queries stream past from the last to the first, under causality to that of its own keys. Of a tile
// each warp computes scores and their gradients of its keys, Columns queries at a time, and leaves the
// latter in shared memory; then the warps share the tile's product with all of the block's keys.
//
// That product is one of the terms of dq. They are added in the order of keys, by the blocks in turns:
// the first stores its term in `workspace`, as its threads hold it, each of the others adds its own,
// and the last stores dq. A counter for each tile is the number of terms that are there; it is 0 before
// and behind a launch. All blocks go the same way, and each waits for blocks of lower numbers alone:
// they are numbered by heads that are `Together`, then keys, of which the first see most queries, then
// those heads.
//
// One thread asks for the turn before the scores and, if it has not come then, waits behind them; another
// one passes it on behind the barrier with which the next tile begins. So a turn takes no barrier of
// its own, and a block follows the one before it by half a tile.
//
// Shared memory: dynamic, aligned to 16 bytes, shared_bytes. Workspace: workspace_floats for each n,
// head and tile, aligned to 16 bytes. Block: 32 * Warps threads. Grid: one block per keys, n and head.
#pragma once
#include "cuda/attention/attend_tensor.cuh"

namespace graphc::attend {

// The gradients of scores, of keys and queries, in shared memory, where they are the left operand of a
// product over keys: lines of queries if of two bytes, which ldmatrix turns, else of keys.
template <class T, int Keys, int Queries>
struct Exchange {
  static constexpr bool narrow = sizeof(T) == 2;
  using Tile = Lines<T, narrow ? Queries : Keys>;
  static constexpr int lines = narrow ? Keys : Queries, bytes = Tile::template bytes<lines>;

  // What as_left gives of the fragments from `key` and `query` on.
  GRAPHC_INLINE static void store(T* tile, int key, int query, const unsigned (&left)[4]) {
    const int lane = threadIdx.x % 32, y = lane / 4, x = lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if constexpr (narrow)
        *reinterpret_cast<unsigned*>(tile + Tile::further(Tile::at(y, x), query + i / 2 * 8) +
                                     (key + i % 2 * 8) * Tile::line) = left[i];
      else  // keys in the order in which Lines::load takes them
        tile[Tile::further(Tile::at(x + i / 2, y / 2 + y % 2 * 4), key + i % 2 * 8) +
             query * Tile::line]
            .value = __uint_as_float(left[i]);
    }
  }
  GRAPHC_INLINE static void load(unsigned (&to)[4], const T* tile, int query, int key) {
    const int lane = threadIdx.x % 32;
    if constexpr (narrow)
      load_matrices<true>(
          to, tile + Tile::further(Tile::at(lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8), query) +
                  key * Tile::line);
    else
      load_matrices<false>(
          to, tile + Tile::further(Tile::template first<false>(), key) + query * Tile::line);
  }
};

// sum += the products of the left operands and the features of b's places from `first` on.
template <class Tile, int M, class T>
GRAPHC_INLINE void multiply_values(const unsigned (&left)[M][4], const T* b, int first,
                                   float (&sum)[M][Tile::width / 8][4]) {
#pragma unroll
  for (int n = 0; n < Tile::width / 8; n += 2) {
    unsigned right[1][4];
    Tile::load(right[0], b, n * 8, first);
    Product<T>::split(right);
#pragma unroll
    for (int m = 0; m < M; m++) {
      multiply(T{}, sum[m][n], left[m], {right[0][0], right[0][1]});
      multiply(T{}, sum[m][n + 1], left[m], {right[0][2], right[0][3]});
    }
  }
}

template <class S, int Warps, int M, int Queries, int Columns, int Together>
struct TurnGradient {
  using E = typename S::Element;
  using K = Lines<E, S::FEATURES>;
  using V = Lines<E, S::VALUES>;
  static constexpr int rows = 16 * M * Warps, threads = 32 * Warps, fragments = Columns / 8;
  static constexpr int group = S::HEADS / S::KEY_HEADS;
  static constexpr int depth = 32 / sizeof(E);
  static constexpr int blocks = ceil_div(S::KEYS, rows), tiles = ceil_div(S::QUERIES, Queries);
  using DS = Exchange<E, rows, Queries>;
  static constexpr int keys = K::template bytes<rows>, own = keys + V::template bytes<rows>;
  static constexpr int queries = K::template bytes<Queries>;
  static constexpr int pair = queries + V::template bytes<Queries>;
  static constexpr int slot = pair + 2 * 4 * Queries;  // logs and delta behind q and dy
  static constexpr int shared_bytes = own + 2 * slot + DS::bytes;
  static constexpr int workspace_floats = Queries * K::width;
  // A warp's part of a tile of dq.
  static constexpr int across = K::width % 32 ? 1 : 2, down = Warps / across;
  static constexpr int dq_rows = Queries / down / 16, dq_columns = K::width / across / 8;
  static constexpr int runs = dq_rows * dq_columns;
  static_assert(Warps > 1 && Queries % (16 * down) == 0 && Queries % Columns == 0, "whole parts");
  using Sums = float[dq_rows][dq_columns][4];

  // What a block owns: keys from `first` on, of a head of keys. `steps` tiles of each of its heads see them.
  struct Place {
    int block, first, steps, n, head;
    GRAPHC_INLINE explicit Place(unsigned number) {
      static_assert(S::N * S::KEY_HEADS % Together == 0, "whole groups of heads");
      const unsigned within = number % (Together * blocks);
      const unsigned all = number / (Together * blocks) * Together + within % Together;
      block = static_cast<int>(within / Together);
      first = block * rows;
      steps = tiles - (S::CAUSAL ? smaller(first / Queries, tiles) : 0);
      n = static_cast<int>(all / S::KEY_HEADS);
      head = static_cast<int>(all % S::KEY_HEADS);
    }
  };
  // The tile of a step of a block.
  struct Step {
    const Place at;
    int head, tile, last;  // the last block that adds to it

    GRAPHC_INLINE explicit Step(int i) : at(block_anew()) {
      const int before = group == 1 ? 0 : i / at.steps;
      head = at.head * group + before;
      tile = tiles - 1 - (i - before * at.steps);
      last = S::CAUSAL ? smaller(blocks - 1, ((tile + 1) * Queries - 1) / rows) : blocks - 1;
    }
    GRAPHC_INLINE long long index() const {
      return (static_cast<long long>(at.n) * S::HEADS + head) * tiles + tile;
    }
    // The turn to add to a tile is awaited by one thread, and passed on by another one. The former asks
    // early, so that it need not ask late what it knows.
    GRAPHC_INLINE bool waits() const { return blocks > 1 && at.block > 0 && threadIdx.x == 32; }
    GRAPHC_INLINE bool has_turn(const unsigned* counters) const {
      return !waits() || has_word(counters + index(), static_cast<unsigned>(at.block));
    }
    GRAPHC_INLINE void await_turn(unsigned* counters, bool known) const {
      if (!known) await_word(counters + index(), static_cast<unsigned>(at.block));
      if (waits() && at.block == last) put_word(counters + index(), 0);
    }
    GRAPHC_INLINE void pass_turn(unsigned* counters) const {
      if (blocks == 1 || at.block == last || threadIdx.x != 0) return;
      device_fence();
      put_word(counters + index(), static_cast<unsigned>(at.block) + 1);
    }
  };

  GRAPHC_INLINE static void run(unsigned char* memory, const Arrays<S>& arrays, float* dq,
                                float* dk, float* dv, float* workspace, unsigned* counters) {
    const int row = static_cast<int>(threadIdx.x / 32) * 16 * M;
    const int count = group * Place(block_anew()).steps;
    E *const k = reinterpret_cast<E*>(memory), *const v = reinterpret_cast<E*>(memory + keys);
    E* const ds = reinterpret_cast<E*>(memory + own + 2 * slot);
    const auto load = [&](int i, int to) {
      const Step step(i);
      const Arrays<S> in = arrays.at(step.at.n, step.head);
      if (i == 0) {
        start_copy<typename S::K, S::KEYS, S::FEATURES, S::VECTOR_K, rows, threads>(k, in.k,
                                                                                    step.at.first);
        start_copy<typename S::V, S::KEYS, S::VALUES, S::VECTOR_V, rows, threads>(v, in.v,
                                                                                  step.at.first);
      }
      load_queries<S, Queries, threads>(in, step.tile * Queries, memory + own + to * slot);
    };
    float dk_sum[M][K::width / 8][4] = {}, dv_sum[M][V::width / 8][4] = {};
    stream(count, load, [&](int i, int slot_of) {
      if (i > 0) Step(i - 1).pass_turn(counters);
      const bool known = Step(i).has_turn(counters);
#pragma unroll 1
      for (int x = 0; x < Queries; x += Columns)
        add_columns(arrays, i, memory, memory + own + slot_of * slot, row, x, dk_sum, dv_sum);
      Step(i).await_turn(counters, known);
      __syncthreads();  // the gradients of scores are there, and it is this block's turn
      add_queries(i, ds, k, workspace, dq);
    });
    __syncthreads();
    if (count > 0) Step(count - 1).pass_turn(counters);

    const Place at(block_anew());
    const float scale[2] = {static_cast<float>(S::SCALE), static_cast<float>(S::SCALE)};
    const float one[2] = {1, 1};
#pragma unroll
    for (int m = 0; m < M; m++) {
      const int u = at.first + row + m * 16;
      if (dk)
        store_sums<typename S::DK, S::FEATURES, S::KEYS, S::PAIRS != 0>(dk, at.n, at.head, u, scale,
                                                                        dk_sum[m]);
      if (dv)
        store_sums<typename S::DV, S::VALUES, S::KEYS, S::PAIRS != 0>(dv, at.n, at.head, u, one,
                                                                      dv_sum[m]);
    }
  }

  // What Columns queries, from the x-th of step i on, add to dk and dv of a warp's keys, which are those
  // from `row` on of the block; and the gradients of their scores, to shared memory.
  GRAPHC_INLINE static void add_columns(const Arrays<S>& arrays, int i, unsigned char* memory,
                                        const unsigned char* from, int row, int x,
                                        float (&dk_sum)[M][K::width / 8][4],
                                        float (&dv_sum)[M][V::width / 8][4]) {
    const E* const k = reinterpret_cast<const E*>(memory);
    const E* const v = reinterpret_cast<const E*>(memory + keys);
    const E* const q = reinterpret_cast<const E*>(from);
    const E* const dy = reinterpret_cast<const E*>(from + queries);
    const float* const words = reinterpret_cast<const float*>(from + pair);
    E* const ds = reinterpret_cast<E*>(memory + own + 2 * slot);
    const Step step(i);
    const Arrays<S> in = arrays.at(step.at.n, step.head);
    const int t = step.tile * Queries, u = step.at.first + row;
    const int lane = threadIdx.x % 32, y = lane / 4, two = lane % 4 * 2;
    float w[M][fragments][4], dw[M][fragments][4];
    tensor_scores<K, 2>(k, row, q, x, w);
#pragma unroll
    for (int m = 0; m < M; m++) as_scores<S, true>(in, t + x, u + m * 16, w[m]);
#pragma unroll
    for (int c = 0; c < fragments; c += depth / 8) {
      unsigned left[M][4];
      float kept[M][depth / 8][4];
#pragma unroll
      for (int d = 0; d < depth / 8; d++) {
        const int column = x + (c + d) * 8 + two;
        const auto log = *reinterpret_cast<const Run<float, 2>*>(words + column);
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
          for (int j = 0; j < 4; j++) {
            float& weight = w[m][c + d][j];
            weight = power(weight - log.at[j % 2]);
            kept[m][d][j] = in.kept(weight, t + column + j % 2, u + m * 16 + y + j / 2 * 8);
          }
      }
#pragma unroll
      for (int m = 0; m < M; m++) as_left(E{}, left[m], kept[m]);
      multiply_values<V>(left, dy, x + c * 8, dv_sum);
    }
    tensor_scores<V, 2>(v, row, dy, x, dw);
#pragma unroll
    for (int c = 0; c < fragments; c += depth / 8) {
      unsigned left[M][4];
#pragma unroll
      for (int d = 0; d < depth / 8; d++) {
        const int column = x + (c + d) * 8 + two;
        const auto delta = *reinterpret_cast<const Run<float, 2>*>(words + Queries + column);
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
          for (int j = 0; j < 4; j++)
            w[m][c + d][j] *=
                in.kept(dw[m][c + d][j], t + column + j % 2, u + m * 16 + y + j / 2 * 8) -
                delta.at[j % 2];
      }
#pragma unroll
      for (int m = 0; m < M; m++) {
        as_left(E{}, left[m], w[m] + c);
        DS::store(ds, row + m * 16, x + c * 8, left[m]);
      }
      multiply_values<K>(left, q, x + c * 8, dk_sum);
    }
  }

  // The block's term of dq of step i: added to those of the blocks before it, if there are any, and left
  // there or, by the last, stored.
  GRAPHC_INLINE static void add_queries(int i, const E* ds, const E* k, float* terms, float* dq) {
    const Step step(i);
    const unsigned thread = thread_anew();
    const int lane = static_cast<int>(thread % 32), warp = static_cast<int>(thread / 32);
    const int row = warp % down * (16 * dq_rows), f = warp / down * (8 * dq_columns);
    auto* const own = reinterpret_cast<Run<float, 4>*>(terms + step.index() * workspace_floats);
    Sums sum = {};
    if (blocks > 1 && step.at.block > 0)
#pragma unroll
      for (int i = 0; i < runs; i++)
        *reinterpret_cast<Run<float, 4>*>(sum[i / dq_columns][i % dq_columns]) =
            own[i * threads + thread];
#pragma unroll
    for (int u = 0; u < rows; u += depth) {
      unsigned left[dq_rows][4];
#pragma unroll
      for (int m = 0; m < dq_rows; m++) DS::load(left[m], ds, row + m * 16, u);
#pragma unroll
      for (int n = 0; n < dq_columns; n += 2) {
        unsigned right[1][4];
        K::load(right[0], k, f + n * 8, u);
        Product<E>::split(right);
#pragma unroll
        for (int m = 0; m < dq_rows; m++) {
          multiply(E{}, sum[m][n], left[m], {right[0][0], right[0][1]});
          multiply(E{}, sum[m][n + 1], left[m], {right[0][2], right[0][3]});
        }
      }
    }
    if (blocks > 1 && step.at.block < step.last) {
#pragma unroll
      for (int i = 0; i < runs; i++)
        own[i * threads + thread] =
            *reinterpret_cast<const Run<float, 4>*>(sum[i / dq_columns][i % dq_columns]);
      return;
    }
    dq += step.at.n * S::DQ::n + step.head * S::DQ::head;
    store_queries(sum, step.tile * Queries + row + lane / 4, f + lane % 4 * 2, dq);
  }
  GRAPHC_INLINE static void store_queries(const Sums& sum, int t, int f, float* dq) {
#pragma unroll
    for (int i = 0; i < dq_rows * 2; i++) {
      const int place = t + i * 8;
      if (place >= S::QUERIES) continue;
      float* const row = dq + place * S::DQ::row;
#pragma unroll
      for (int c = 0; c < dq_columns; c++) {
        const float x = sum[i / 2][c][i % 2 * 2] * static_cast<float>(S::SCALE);
        const float y = sum[i / 2][c][i % 2 * 2 + 1] * static_cast<float>(S::SCALE);
        const int g = f + c * 8;
        if constexpr (S::PAIRS != 0) {
          if (g < S::FEATURES) *reinterpret_cast<Run<float, 2>*>(row + g) = {{x, y}};
        } else {
          if (g < S::FEATURES) row[g] = x;
          if (g + 1 < S::FEATURES) row[g + 1] = y;
        }
      }
    }
  }
};

}  // namespace graphc::attend
