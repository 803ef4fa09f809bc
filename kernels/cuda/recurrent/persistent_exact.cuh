// persistent_exact.cuh: the products of persistent.cuh of floats that are not rounded, which registers
// multiply: the same blocks have the same rows, columns and k, and hold as much.
//
// Of a sixteen of k each half of a warp has eight, and each of its lanes a column. It goes through 16
// rows, which lie in shared memory and which all lanes of a half read at once; the sums of both halves
// are added by shuffles, and those of all warps as in persistent.cuh.
//
// Block: 256 threads. Grid: ceil(M / 16) * across. Shared memory: 4 KB for each warp, at most, or the
// sums of all warps, 8 KB for each section, if that is more.
#pragma once
#include "cuda/recurrent/persistent.cuh"

namespace graphc {

// Adds to the sums of 16 rows the products of eight of k, of each of Count columns of a lane. A row is
// `pitch` floats behind the one before it.
template <int Count>
GRAPHC_INLINE void add_eight(float (&sum)[PATCH][Count], const float* rows, int pitch,
                             const float (&weights)[Count][8]) {
#pragma unroll
  for (int first = 0; first < 8; first += 4)
#pragma unroll
    for (int m = 0; m < PATCH; m++) {
      const auto row = *reinterpret_cast<const Run<float, 4>*>(rows + m * pitch + first);
#pragma unroll
      for (int j = 0; j < 4; j++)
#pragma unroll
        for (int i = 0; i < Count; i++)
          sum[m][i] = fma(row.at[j], weights[i][first + j], sum[m][i]);
    }
}

// Adds the sums of both halves of a warp: the lower has those of the first eight rows, the upper those
// of the others, in the first eight places.
template <int Count>
GRAPHC_INLINE void add_halves(float (&sum)[PATCH][Count]) {
  const bool upper = threadIdx.x & 16;
#pragma unroll
  for (int m = 0; m < 8; m++)
#pragma unroll
    for (int i = 0; i < Count; i++) {
      const float given = upper ? sum[m][i] : sum[m + 8][i];
      const float kept = upper ? sum[m + 8][i] : sum[m][i];
      sum[m][i] = kept + shuffle_xor(given, 16);
    }
}

// Eight neighbours of k of a column, from `k` on of a part that begins at `first`.
template <class Access, int Length, class Outer>
GRAPHC_INLINE void load_eight(float (&to)[8], const float* base, const Outer& outer, int k,
                              int first = 0) {
#pragma unroll
  for (int i = 0; i < 8; i += 4) {
    unsigned four[4];
    load_four<Access, Length>(four, base, outer, k + i, first);
#pragma unroll
    for (int j = 0; j < 4; j++) to[i + j] = __uint_as_float(four[j]);
  }
}

template <class Problem, int Strips = 1>
struct ExactProduct : PersistentProduct<Problem, Strips> {
  using Base = PersistentProduct<Problem, Strips>;
  using A = typename Problem::A;
  using B = typename Problem::B;
  static constexpr int M = Base::M, K = Base::K, sections = Base::sections;
  static constexpr int section = Base::section, across = Base::across, each = Base::each;
  static constexpr int warps = Base::warps, tile = Base::tile;
  static constexpr bool whole = each * warps == Base::shares;
  static constexpr int at_once = smaller(each, 4), pitch = at_once * PATCH;
  static constexpr int size = warps * PATCH * (pitch > sections * PATCH ? pitch : sections * PATCH);

  struct Weights {
    float at[each][sections][8];
  };

  GRAPHC_INLINE static void hold(Weights& to, unsigned block, const float* b) {
    const int lane = threadIdx.x % 32, first = block % across * PATCH + lane % 16;
#pragma unroll
    for (int i = 0; i < each; i++)
#pragma unroll
      for (int s = 0; s < sections; s++) {
        const int column = s * section + smaller(first, section - 1);
#pragma unroll
        for (int j = 0; j < 8; j++) to.at[i][s][j] = 0;
        if (whole || Base::share(i) < K)
          load_eight<B, K>(to.at[i][s], b, B::outer(0, column), Base::share(i) + lane / 16 * 8);
      }
  }

  template <class Block, class Epilogue>
  GRAPHC_INLINE static void multiply(const Block& block, const Weights& weights, const float* a,
                                     const Epilogue& epilogue) {
    float* const ring = block.template shared<float, size>();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int m0 = block.x() / across * PATCH, n0 = block.x() % across * PATCH;
    const int m = m0 + threadIdx.x / PATCH, n = n0 + threadIdx.x % PATCH;
    const auto loads = Base::loaded(m, n, epilogue);
    float* const rows = ring + warp * PATCH * pitch;  // [row][k of the warp's shares]
    float sum[PATCH][sections] = {};
#pragma unroll
    for (int begin = 0; begin < each; begin += at_once) {
      if (begin) __syncwarp();
#pragma unroll
      for (int first = 0; first < PATCH * pitch / 4; first += 32) {
        const int i = first + lane, k = Base::share(begin) + i % (pitch / 4) * 4;
        unsigned four[4] = {};
        if ((whole && each % at_once == 0) || k < K)
          load_four<A, K>(four, a, A::outer(0, smaller(m0 + i / (pitch / 4), M - 1)), k);
        *reinterpret_cast<Run<unsigned, 4>*>(rows + i * 4) = {four[0], four[1], four[2], four[3]};
      }
      __syncwarp();
#pragma unroll
      for (int i = 0; i < at_once; i++)
        if (begin + i < each)
          add_eight(sum, rows + i * PATCH + lane / 16 * 8, pitch, weights.at[begin + i]);
    }
    add_halves(sum);
    block.sync();
#pragma unroll
    for (int s = 0; s < sections; s++)
#pragma unroll
      for (int i = 0; i < 8; i++)
        ring[((warp * sections + s) * PATCH + lane / 16 * 8 + i) * PATCH + lane % 16] = sum[i][s];
    block.sync();
    if (m < M && n < section) Base::add_warps(ring, m, n, epilogue, loads);
  }
};

template <class Problem, int Parts>
struct ExactParts : PersistentParts<Problem, Parts> {
  using Base = PersistentParts<Problem, Parts>;
  using A = typename Problem::A;
  using B = typename Problem::B;
  static constexpr int M = Base::M, N = Base::N, across = Base::across, each = Base::each;
  static constexpr int warps = Base::warps, tile = Base::tile, quads = Parts * tile / 4;

  struct Weights {
    float at[Parts][each][8];
  };

  GRAPHC_INLINE static void hold(Weights& to, unsigned block, const float* b) {
    const int lane = threadIdx.x % 32, k = block % across * PATCH + lane / 16 * 8;
#pragma unroll
    for (int p = 0; p < Parts; p++)
#pragma unroll
      for (int i = 0; i < each; i++) {
        const int column = smaller(Base::sixteen(i) * PATCH + lane % 16, N - 1);
        load_eight<B, N>(to.at[p][i], b, B::outer(0, column), k, p * N);
      }
  }

  template <class Block>
  GRAPHC_INLINE static void multiply(const Block& block, const Weights& weights, const float* a,
                                     float* partial) {
    float* const rows = block.template shared<float, Parts * tile>();  // [part][row][k]
    const int lane = threadIdx.x % 32;
    const int m0 = block.x() / across * PATCH, k0 = block.x() % across * PATCH;
#pragma unroll
    for (int first = 0; first < quads; first += warps * 32) {
      const int i = first + threadIdx.x;
      if (first + warps * 32 > quads && i >= quads) break;
      const auto outer = A::outer(0, smaller(m0 + i / 4 % PATCH, M - 1));
      unsigned four[4];
      load_four<A, N>(four, a, outer, k0 + i % 4 * 4, i / (tile / 4) * N);
      *reinterpret_cast<Run<unsigned, 4>*>(rows + i * 4) = {four[0], four[1], four[2], four[3]};
    }
    block.sync();
    float sum[PATCH][each] = {};
#pragma unroll
    for (int p = 0; p < Parts; p++)
      add_eight(sum, rows + p * tile + lane / 16 * 8, PATCH, weights.at[p]);
    add_halves(sum);
#pragma unroll
    for (int i = 0; i < each; i++) {
      if (across % warps && Base::sixteen(i) >= across) break;
      const int place =
          (block.x() / across * across + Base::sixteen(i)) * across + block.x() % across;
      float* const to = partial + place * tile + lane / 16 * 8 * PATCH + lane % 16;
#pragma unroll
      for (int m = 0; m < 8; m++) to[m * PATCH] = sum[m][i];
    }
  }
};

}  // namespace graphc
