// persistent.cuh: a product whose blocks hold what their columns need of an operand, in registers, for the
// loops of a joined launch: an iteration then reads the rows alone. A block computes 16 rows of 16
// columns, of each section 16, by tensor cores; block i has the columns i % across of the rows
// i / across, so that blocks whose numbers differ by a multiple of `across` hold the same.
//
// Problem, accesses and Epilogue are those of contract.cuh, of operands that are halves or bfloats, or
// floats rounded to tf32 or to bfloats where they are read (as_bfloat), both of one element; no batch,
// no splits, no taps and no borders; the extents may be any. What the epilogue loads, `loaded(batch, m,
// n)` gives it before there are sums, so that it waits for that and for the operands at once.
//
// Sixteens of k are dealt out to eight warps, whose sums are added in ascending order. A lane reads
// four neighbours of k of two rows at once, and they are fragments as they are: places 4 c to 4 c + 3
// of a sixteen are k = c and c + 4 of two products of eight; of two bytes k = 2 c, 2 c + 1, 2 c + 8 and
// 2 c + 9 of one. In the same way the columns of a pair of fragments are dealt so that a lane's sums are
// four neighbours.
//
// Block: 256 threads. Grid: ceil(M / 16) * across. Shared memory: the sums of all warps, 8 KB for each
// section.
#pragma once
#include "cuda/contract/tiles/tensor.cuh"

namespace graphc {

constexpr int PATCH = 16;  // rows and columns of a block, and k of a share

// What four neighbours of k are in registers: two for each of the products that they take part in.
template <class T>
struct Fours {
  static constexpr int products = 1, words = 2;
  using Multiplied = T;
  GRAPHC_INLINE static unsigned word(const T* x, int i) {
    return x[2 * i].bits | static_cast<unsigned>(x[2 * i + 1].bits) << 16;
  }
};
template <>
struct Fours<as_bfloat> {
  static constexpr int products = 1, words = 2;
  using Multiplied = bfloat;
  GRAPHC_INLINE static unsigned word(const as_bfloat* x, int i) {
    return floats_to_bfloats(x[2 * i].value, x[2 * i + 1].value);
  }
};
template <>
struct Fours<float> {  // which no tensor core multiplies as they are: persistent_exact.cuh
  static constexpr int products = 2, words = 4;
  GRAPHC_INLINE static unsigned word(const float* x, int i) { return __float_as_uint(x[i]); }
};
template <>
struct Fours<tf32> {
  static constexpr int products = 2, words = 4;
  using Multiplied = tf32;
  GRAPHC_INLINE static unsigned word(const tf32* x, int i) {
    return __float_as_uint(float_to_tf32(x[i].value));
  }
};

// Four neighbours along k of a row or column of an operand, from `k` in a part on that begins at
// `first` and is Length long; zeros beyond it.
template <class Access, int Length, class Outer, class T>
GRAPHC_INLINE void load_four(unsigned (&to)[Fours<T>::words], const T* base, const Outer& outer,
                             int k, int first = 0) {
  constexpr int vector =
      Access::along_k ? smaller(smaller(Access::vector, 4), Length % 4 ? Length % 2 ? 1 : 2 : 4)
                      : 1;
  T four[4] = {};
#pragma unroll
  for (int i = 0; i < 4; i += vector) {
    if (Length % PATCH && k + i >= Length) continue;
    const auto part = *reinterpret_cast<const Run<T, vector>*>(
        base + Access::at(outer, Access::depth(first + k + i)).offset);
#pragma unroll
    for (int j = 0; j < vector; j++) four[i + j] = part.at[j];
  }
#pragma unroll
  for (int i = 0; i < Fours<T>::words; i++) to[i] = Fours<T>::word(four, i);
}

// What a block does: the product of its rows by what it holds of `b`, or reads if it holds nothing, for
// the epilogue or as partial sums.
template <class Product, class Block, class T, class Results>
GRAPHC_INLINE void multiply_held(const Block& block, const T* a, const T* b,
                                 const Results& results) {
  if constexpr (Block::holds) Product::multiply(block, block.held, a, results);
  else {
    typename Product::Weights weights;
    Product::hold(weights, block.x(), b);
    Product::multiply(block, weights, a, results);
  }
}

// Of one section, Strips parts of the columns, equally wide, are a block's as sections would be.
template <class Problem, int Strips = 1>
struct PersistentProduct {
  using A = typename Problem::A;
  using B = typename Problem::B;
  using T = typename A::element;
  using Four = Fours<T>;
  static constexpr int M = Problem::M, K = Problem::K;
  static constexpr int sections = Problem::sections * Strips;
  static constexpr int section = Problem::N / sections, across = ceil_div(section, PATCH);
  static constexpr int warps = 8, shares = ceil_div(K, PATCH), each = ceil_div(shares, warps);
  static constexpr int tile = PATCH * PATCH;
  static_assert(Strips == 1 || (Problem::sections == 1 && Problem::N % Strips == 0),
                "whole strips");

  // Of each share of the warp, of its products, of each section, of a pair of fragments.
  struct Weights {
    unsigned at[each][Four::products][sections][2][2];
  };

  GRAPHC_INLINE static int share(int i) { return (threadIdx.x / 32 * each + i) * PATCH; }

  GRAPHC_INLINE static void hold(Weights& to, unsigned block, const T* b) {
    const int lane = threadIdx.x % 32, first = block % across * PATCH + lane / 8 * 4 + lane / 4 % 2;
#pragma unroll
    for (int i = 0; i < each; i++)
#pragma unroll
      for (int s = 0; s < sections; s++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const int column = s * section + smaller(first + 2 * h, section - 1);
          unsigned four[Four::words] = {};
          if (each * warps == shares || share(i) < K)
            load_four<B, K>(four, b, B::outer(0, column), share(i) + lane % 4 * 4);
#pragma unroll
          for (int j = 0; j < Four::words; j++) to.at[i][j / 2][s][h][j % 2] = four[j];
        }
  }

  template <class Block, class Epilogue>
  GRAPHC_INLINE static void multiply(const Block& block, const Weights& weights, const T* a,
                                     const Epilogue& epilogue) {
    float* const ring = block.template shared<float, warps * sections * tile>();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = lane / 4, four = lane % 4 * 4;
    const int m0 = block.x() / across * PATCH, n0 = block.x() % across * PATCH;
    const int m = m0 + threadIdx.x / PATCH, n = n0 + threadIdx.x % PATCH;
    const auto loads = loaded(m, n, epilogue);
    const auto low = A::outer(0, smaller(m0 + row, M - 1));
    const auto high = A::outer(0, smaller(m0 + row + 8, M - 1));
    float sum[sections][2][4] = {};
    constexpr int at_once = smaller(each, 4);  // shares whose loads are under way together
#pragma unroll
    for (int begin = 0; begin < each; begin += at_once) {
      unsigned rows[at_once][2][Four::words] = {};
#pragma unroll
      for (int i = 0; i < at_once; i++)
        if (begin + i < each && (each * warps == shares || share(begin + i) < K)) {
          load_four<A, K>(rows[i][0], a, low, share(begin + i) + four);
          load_four<A, K>(rows[i][1], a, high, share(begin + i) + four);
        }
#pragma unroll
      for (int i = 0; i < at_once; i++)
#pragma unroll
        for (int j = 0; j < Four::products; j++) {
          const unsigned fragment[4] = {rows[i][0][2 * j], rows[i][1][2 * j], rows[i][0][2 * j + 1],
                                        rows[i][1][2 * j + 1]};
          if (begin + i < each)
#pragma unroll
            for (int s = 0; s < sections; s++)
#pragma unroll
              for (int h = 0; h < 2; h++)
                graphc::multiply(typename Four::Multiplied{}, sum[s][h], fragment,
                                 weights.at[begin + i][j][s][h]);
        }
    }
#pragma unroll
    for (int s = 0; s < sections; s++)
#pragma unroll
      for (int i = 0; i < 4; i += 2)
        *reinterpret_cast<Run<float, 4>*>(
            ring + ((warp * sections + s) * PATCH + row + i * 4) * PATCH + four) = {
            sum[s][0][i], sum[s][0][i + 1], sum[s][1][i], sum[s][1][i + 1]};
    block.sync();
    if (m < M && n < section) add_warps(ring, m, n, epilogue, loads);
  }

  // What the epilogue loads of an element of each strip, or of that which is nearest.
  template <class Epilogue>
  GRAPHC_INLINE static auto loaded(int m, int n, const Epilogue& epilogue) {
    struct {
      decltype(epilogue.loaded(0, m, n)) at[Strips];
    } loads;
#pragma unroll
    for (int s = 0; s < Strips; s++)
      loads.at[s] = epilogue.loaded(0, smaller(m, M - 1), s * section + smaller(n, section - 1));
    return loads;
  }

  // Gives the epilogue the sums of all warps, which lie [warp][section][row][column], of one element.
  template <class Epilogue, class Loads>
  GRAPHC_INLINE static void add_warps(const float* ring, int m, int n, const Epilogue& epilogue,
                                      const Loads& loads) {
    float total[sections];
#pragma unroll
    for (int s = 0; s < sections; s++) {
      const float* const part = ring + s * tile + threadIdx.x;
      total[s] = *part;
#pragma unroll
      for (int w = 1; w < warps; w++) total[s] += part[w * sections * tile];
    }
    if constexpr (Problem::sections > 1) epilogue(0, m, n, total, loads.at[0]);
    else
#pragma unroll
      for (int s = 0; s < Strips; s++) epilogue(0, m, s * section + n, total[s], loads.at[s]);
  }
};

// The same where k is `Parts` times as long as the columns are many, section for section: block i has
// of each part of k the sixteen i % across, of all columns, of which a warp has some sixteens. Its sums
// go to partial[row tile][sixteen of columns][across][16][16], and `finish` adds those of 16 columns:
// quarters of them side by side, each in ascending order, and then the quarters.
template <class Problem, int Parts>
struct PersistentParts {
  using A = typename Problem::A;
  using B = typename Problem::B;
  using T = typename A::element;
  using Four = Fours<T>;
  static constexpr int M = Problem::M, N = Problem::N, across = ceil_div(N, PATCH);
  static constexpr int warps = 8, each = ceil_div(across, warps), tile = PATCH * PATCH;
  static_assert(Problem::K == Parts * N && Problem::sections == 1, "parts of k are columns");

  struct Weights {
    unsigned at[Parts][Four::products][each][2][2];
  };

  GRAPHC_INLINE static int sixteen(int i) { return threadIdx.x / 32 * each + i; }

  GRAPHC_INLINE static void hold(Weights& to, unsigned block, const T* b) {
    const int lane = threadIdx.x % 32, k = block % across * PATCH + lane % 4 * 4;
    const int first = lane / 8 * 4 + lane / 4 % 2;
#pragma unroll
    for (int p = 0; p < Parts; p++)
#pragma unroll
      for (int i = 0; i < each; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const int column = sixteen(i) * PATCH + first + 2 * h;
          unsigned four[Four::words] = {};
          if constexpr (N % PATCH == 0 && across % warps == 0) {  // places a constant apart
            const auto begin = B::outer(0, sixteen(0) * PATCH + first);
            load_four<B, N>(four, b + (B::outer(0, column).offset - begin.offset), begin, k, p * N);
          } else load_four<B, N>(four, b, B::outer(0, smaller(column, N - 1)), k, p * N);
#pragma unroll
          for (int j = 0; j < Four::words; j++) to.at[p][j / 2][i][h][j % 2] = four[j];
        }
  }

  template <class Block>
  GRAPHC_INLINE static void multiply(const Block& block, const Weights& weights, const T* a,
                                     float* partial) {
    using Words = Run<unsigned, Four::words>;
    Words* const rows = block.template shared<Words, Parts * tile / 4>();  // [part][row][quarter]
    const int lane = threadIdx.x % 32, row = lane / 4, four = lane % 4 * 4;
    const int m0 = block.x() / across * PATCH, k0 = block.x() % across * PATCH;
#pragma unroll
    for (int first = 0; first < Parts * tile / 4; first += warps * 32) {
      const int i = first + threadIdx.x;
      if (first + warps * 32 > Parts * tile / 4 && i >= Parts * tile / 4) break;
      const auto outer = A::outer(0, smaller(m0 + i / 4 % PATCH, M - 1));
      load_four<A, N>(rows[i].at, a, outer, k0 + i % 4 * 4, i / (tile / 4) * N);
    }
    block.sync();
    float sum[each][2][4] = {};
#pragma unroll
    for (int p = 0; p < Parts; p++) {
      const Words low = rows[p * tile / 4 + lane], high = rows[p * tile / 4 + lane + 32];
#pragma unroll
      for (int j = 0; j < Four::products; j++) {
        const unsigned fragment[4] = {low.at[2 * j], high.at[2 * j], low.at[2 * j + 1],
                                      high.at[2 * j + 1]};
#pragma unroll
        for (int i = 0; i < each; i++)
#pragma unroll
          for (int h = 0; h < 2; h++)
            graphc::multiply(typename Four::Multiplied{}, sum[i][h], fragment,
                             weights.at[p][j][i][h]);
      }
    }
#pragma unroll
    for (int i = 0; i < each; i++) {
      if (across % warps && sixteen(i) >= across) break;
      const int place = (block.x() / across * across + sixteen(i)) * across + block.x() % across;
      float* const to = partial + place * tile + row * PATCH + four;
#pragma unroll
      for (int j = 0; j < 4; j += 2)
        *reinterpret_cast<Run<float, 4>*>(to + j * 4 * PATCH) = {sum[i][0][j], sum[i][0][j + 1],
                                                                 sum[i][1][j], sum[i][1][j + 1]};
    }
  }

  template <class Block, class Epilogue>
  GRAPHC_INLINE static void finish(const Block& block, const float* partial,
                                   const Epilogue& epilogue) {
    float* const ring = block.template shared<float, 4 * tile>();
    const int quarter = threadIdx.x / 64, four = threadIdx.x % 64 * 4;
    const float* const from = partial + block.x() * across * tile + four;
    const int m = block.x() / across * PATCH + threadIdx.x / PATCH;
    const int n = block.x() % across * PATCH + threadIdx.x % PATCH;
    const auto loads = epilogue.loaded(0, smaller(m, M - 1), smaller(n, N - 1));
    Run<float, 4> sum = {};
#pragma unroll 8
    for (int i = quarter * across / 4; i < (quarter + 1) * across / 4; i++) {
      const auto part = *reinterpret_cast<const Run<float, 4>*>(from + i * tile);
#pragma unroll
      for (int j = 0; j < 4; j++) sum.at[j] += part.at[j];
    }
    *reinterpret_cast<Run<float, 4>*>(ring + quarter * tile + four) = sum;
    block.sync();
    if (m >= M || n >= N) return;
    const float* const part = ring + threadIdx.x;
    epilogue(0, m, n, part[0] + part[tile] + (part[2 * tile] + part[3 * tile]), loads);
  }
};

}  // namespace graphc
