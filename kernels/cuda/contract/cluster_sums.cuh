// cluster_sums.cuh: contractions whose k is cut in parts that the blocks of a cluster compute. Each
// leaves its sums where its tiles were; behind a barrier of the cluster each adds its share of them
// from the memory of all, in ascending order of the parts, and calls the epilogue. That is what
// finish_splits does (split_k.cuh), to the same bits, without a second launch and without a workspace.
//
// Grid: (tiles * batches * parts), in clusters of as many blocks as there are parts. Needs sm_90.
#pragma once
#include "cuda/shared/bulk.cuh"
#include "cuda/shared/memory.cuh"

namespace graphc {

// A block of a launch whose clusters have Parts blocks, one for each part of a tile's k.
template <int Parts>
struct ClusterBlock : WholeBlock {
  static constexpr int parts = Parts;
  GRAPHC_INLINE static int x() { return blockIdx.x / Parts; }
  GRAPHC_INLINE static int y() { return blockIdx.x % Parts; }  // its number in the cluster too

  GRAPHC_INLINE static void meet() {
    cluster_arrive();
    cluster_wait();
  }

  // How many rows of sums fit where the tiles were.
  template <class Contract, class Tile>
  GRAPHC_INLINE static constexpr int rows_at_once() {
    int rows = Tile::BM;
    while (Tile::groups * rows * Tile::pitch * static_cast<int>(sizeof(typename Contract::T)) >
           Contract::shared_bytes)
      rows /= 2;
    return rows;
  }

  // The end of Contract::run_in: the cluster's sums of the tile at m0, n0 go to the epilogue.
  template <class Contract, class Tile, class Sums, class Epilogue>
  GRAPHC_INLINE void add_parts(int batch, int m0, int n0, const Sums& sums, unsigned char* tiles,
                               const Epilogue& epilogue) const {
    using T = typename Contract::T;
    constexpr int M = Contract::M, N = Contract::N, rows = rows_at_once<Contract, Tile>();
    constexpr int run = N % 4 == 0 ? 4 : 1, across = Tile::BN / run;
    static_assert(Tile::BN % 4 == 0 && Tile::pitch % 4 == 0 && sizeof(T) == 4, "runs are aligned");
    for (int first = 0; first < Tile::BM; first += rows) {
      if (first > 0) meet();  // all have read what comes before
      const T* const ring = Contract::template exchange<rows>(*this, sums, tiles, first);
      meet();
      for (int i = y() * Tile::threads + threadIdx.x; i < rows * across;
           i += Parts * Tile::threads) {
        const int row = i / across, m = m0 + first + row, n = i % across * run;
        if (m >= M || n0 + n >= N) continue;
        const auto from = reinterpret_cast<const Run<T, run>*>(ring + row * Tile::pitch + n);
        Run<T, run> total = {};
#pragma unroll
        for (int p = 0; p < Parts; p++) {
          const auto part = cluster_read(from, p);
#pragma unroll
          for (int j = 0; j < run; j++) total.at[j] += part.at[j];
        }
        if constexpr (run > 1 && Epilogue::run == run) epilogue(batch, m, n0 + n, total);
        else {
#pragma unroll
          for (int j = 0; j < run; j++) epilogue(batch, m, n0 + n + j, total.at[j]);
        }
      }
    }
    meet();  // no block ends while another reads its sums
  }
};

}  // namespace graphc
