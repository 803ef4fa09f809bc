// registers.cuh: the plain tile of contract.cuh, whose sums are in the registers of all threads.
#pragma once
#include "cuda/contract/tiles/loader.cuh"

namespace graphc {

// Registers of a thread for sums and what is read for them. Of compute capability 8.0 a multiply-add
// takes two slots of issue, so that ptxas hoists more, and shorter reads cost no time.
#if __CUDA_ARCH__ == 800
constexpr int most_held = 96;
#else
constexpr int most_held = 128;
#endif

// Each thread holds TM x TN sums; a warp covers 4 x 8 threads. With several Groups of threads all
// sums are held by each, which adds its share of each step; the groups are added in ascending order.
template <int BM_, int BN_, int BK_, int TM, int TN, int Stages, int Groups = 1>
struct Registers {
  static constexpr int BM = BM_, BN = BN_, BK = BK_, stages = Stages, groups = Groups;
  static constexpr int rows = BM / TM, columns = BN / TN, threads = rows * columns * Groups;
  static constexpr bool exchanges = Groups > 1, asynchronous = false;
  static constexpr int ahead = Stages - 1;  // steps whose copies are under way
  // Rows of a warp's sums, four of eight, meet all banks.
  static constexpr int pitch = Groups > 1 ? BN : BN + 8;
  template <class Access, int Outer>
  using Shared = SharedTile<Access, Outer, BK>;
  static_assert(rows % 4 == 0 && columns % 8 == 0, "warps of 4 x 8 threads");

  // The Count places of one axis that a thread holds, of `across` threads: interleaved where
  // shared lines run along k, so that neighbours read neighbouring lines, else in vectors.
  template <class Shared, int Count, int Across, class Sum>
  struct Strip {
    using T = typename Shared::T;
    static constexpr int quad = 16 / sizeof(Sum);
    static constexpr int vector = Shared::along_k ? 1 : smaller(Count, quad);
    static_assert(Count % vector == 0, "whole vectors");
    GRAPHC_INLINE static int place(int i, int thread) {
      return i / vector * (Across * vector) + thread * vector + i % vector;
    }
    // to[i][j] is the element at the thread's place first + i and at k + j.
    template <int Some, int Deep>
    GRAPHC_INLINE static void load(Sum (&to)[Some][Deep], const T* tile, int thread, int k,
                                   int first = 0) {
#pragma unroll
      for (int i = 0; i < Some; i += vector)
        if constexpr (Shared::along_k) {
          const auto part =
              shared_at<const Run<T, Deep>>(tile, Shared::at(place(first + i, thread), k));
#pragma unroll
          for (int j = 0; j < Deep; j++) to[i][j] = decode(part.at[j]);
        } else {
#pragma unroll
          for (int j = 0; j < Deep; j++) {
            const auto part =
                shared_at<const Run<T, vector>>(tile, Shared::at(place(first + i, thread), k + j));
#pragma unroll
            for (int v = 0; v < vector; v++) to[i + v][j] = decode(part.at[v]);
          }
        }
    }
  };

  template <class SharedA, class SharedB, class T>
  struct Sums {
    using StripA = Strip<SharedA, TM, rows, T>;
    using StripB = Strip<SharedB, TN, columns, T>;
    static constexpr int quad = StripA::quad;
    // How much of k is read at once: half a quad where quads of rows and one line of columns leave
    // few of 128 registers for all else, which ptxas would spill, or narrow columns become wider ones.
    static constexpr bool narrow = sizeof(typename SharedB::T) < sizeof(T);
    static constexpr int most = !SharedB::along_k ? most_held : narrow ? 96 : 255;
    static constexpr bool crowded = SharedA::along_k && TM * (TN + quad) + TN > most;
    static constexpr int deep = crowded ? quad / 2 : quad;
    static constexpr int share = BK / Groups;  // of a step's k
    static_assert(share % quad == 0, "a share is read 16 bytes at a time");
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % (rows * columns / 32);
    const int y = warp % (rows / 4) * 4 + lane / 8, x = warp / (rows / 4) * 8 + lane % 8;
    const int group = Groups > 1 ? threadIdx.x / (rows * columns) : 0;
    static constexpr int run = StripB::vector;  // neighbours along n that a thread holds
    T sum[TM][TN] = {};

    GRAPHC_INLINE void step(const typename SharedA::T* tile_a, const typename SharedB::T* tile_b) {
#pragma unroll 1  // unrolled further, reads are hoisted until registers spill
      for (int k = group * share; k < (group + 1) * share; k += deep) {
        // Quads of k of all rows and columns at once would take as many registers as the sums.
        constexpr int at_once = SharedA::along_k && SharedB::along_k ? 1 : TM;
        T b[TN][deep];
        StripB::load(b, tile_b, x, k);
#pragma unroll
        for (int first = 0; first < TM; first += at_once) {
          T a[at_once][deep];
          StripA::load(a, tile_a, y, k, first);
#pragma unroll
          for (int j = 0; j < deep; j++)
#pragma unroll
            for (int m = 0; m < at_once; m++)
#pragma unroll
              for (int n = 0; n < TN; n++)
                sum[first + m][n] = fma(a[m][j], b[n][j], sum[first + m][n]);
        }
      }
    }
    // Calls visitor(m, n, sum), or for the Run of sums that begins at n.
    template <int Length = 1, class Visitor>
    GRAPHC_INLINE void visit(const Visitor& visitor) const {
#pragma unroll
      for (int m = 0; m < TM; m++)
#pragma unroll
        for (int n = 0; n < TN; n += Length) {
          const int row = StripA::place(m, y), column = StripB::place(n, x);
          if constexpr (Length == 1) visitor(row, column, sum[m][n]);
          else {
            Run<T, Length> sums;
#pragma unroll
            for (int i = 0; i < Length; i++) sums.at[i] = sum[m][n + i];
            visitor(row, column, sums);
          }
        }
    }
  };
};

}  // namespace graphc
