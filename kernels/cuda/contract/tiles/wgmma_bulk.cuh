// wgmma_bulk.cuh: the products of warp groups (wgmma.cuh) whose tiles TMA copies. The last warp of a
// block is the producer: its first lane starts the copies of each step, `stages` steps ahead. All
// others are consumers: their warp groups wait for a step's bytes, multiply, and say when the
// products that read a stage have ended. So no thread computes an address or waits for a barrier of
// the block between steps.
//
// The `Cluster` blocks of a cluster compute tiles below each other and share the columns of B: each
// copies its part of them to all, so that a sum reads fewer bytes from the second-level cache. A
// stage is free when the consumers of all blocks have left it, and full when its bytes are there,
// whoever copied them.
//
// A tile is copied in panels of 64 lines of 128 bytes: 64 of k for 64 rows or columns, or 64 rows or
// columns for each k, as wgmma.cuh has them. What lies beyond the matrix is zero. A map of an operand
// is [outer][k] if its lines run along k, else [k][outer], of elements of two bytes.
//
// Grid: (tiles of columns * clusters of tiles of rows, splits). Block: Tile::threads + 32. Shared
// memory: shared_bytes, dynamic, aligned to 1024 bytes. Needs sm_90a.
#pragma once
#include "cuda/contract/tiles/wgmma.cuh"
#include "cuda/shared/bulk.cuh"

namespace graphc {

template <class Problem, class Tile, int Cluster>
struct BulkContract : Contract<Problem, Tile> {
  using Base = Contract<Problem, Tile>;
  using SharedA = typename Base::SharedA;
  using SharedB = typename Base::SharedB;
  using ElementA = typename Base::ElementA;
  using ElementB = typename Base::ElementB;
  static constexpr int BM = Tile::BM, BN = Tile::BN, BK = Tile::BK, stages = Tile::stages;
  static constexpr int consumers = Tile::threads, panel = 64 * 128;
  static constexpr int tiles_n = Base::tiles_n, stage = Base::stage;
  static constexpr int shared_bytes = Base::shared_bytes + 2 * stages * sizeof(BulkBarrier);
  static constexpr int own_columns = BN / Cluster;  // that a block copies
  static_assert(Problem::batches == 1 && Problem::taps == 0 && Problem::sections == 1, "a matrix");
  static_assert(own_columns % 64 == 0, "whole panels");

  // The block as its consumers are one.
  struct Consumers {
    GRAPHC_INLINE static void sync(GRAPHC_CALLED_ALONE) {
#ifdef GRAPHC_SIM
      graphc_sim_part_barrier(consumers, file, line);
#else
      part_barrier<consumers>();
#endif
    }
  };

  template <class Block, class Epilogue>
  GRAPHC_INLINE static void run(const Block& block, unsigned char* ring, const TensorMap& map_a,
                                const TensorMap& map_b, const Epilogue& epilogue) {
    constexpr int least = Base::steps / Problem::splits, more = Base::steps % Problem::splits;
    const int rank = Cluster > 1 ? cluster_rank() : 0, group = block.x() / Cluster;
    const int m0 = (group / tiles_n * Cluster + rank) * BM, n0 = group % tiles_n * BN;
    const int part = block.y(), count = least + (part < more);
    const int first = (part * least + smaller(part, more)) * BK;
    BulkBarrier* const full = reinterpret_cast<BulkBarrier*>(ring + Base::shared_bytes);
    BulkBarrier* const empty = full + stages;
    if (threadIdx.x == 0) {
      for (int i = 0; i < stages; i++) {
        phase_begin(full + i, 1);
        phase_begin(empty + i, consumers / 32 * Cluster);
      }
      phase_fence();
    }
    all_sync(block);
    if (threadIdx.x >= consumers) {
      if (threadIdx.x == consumers)
        produce(ring, full, empty, map_a, map_b, rank, m0, n0, first, count);
      leave();
    } else {
      consume(ring, full, empty, count, m0, n0, epilogue);
    }
    // No block ends while the other may copy to its memory or arrive at its barriers.
    if constexpr (Cluster > 1) cluster_wait();
  }

  template <class Block>
  GRAPHC_INLINE static void all_sync(const Block& block) {
    if constexpr (Cluster == 1) block.sync();
    else {
      cluster_arrive();
      cluster_wait();
    }
  }
  GRAPHC_INLINE static void leave() {
    if constexpr (Cluster > 1) cluster_arrive();
  }

  // Stage `i % stages` in its turn `i / stages`.
  GRAPHC_INLINE static void produce(unsigned char* ring, BulkBarrier* full, BulkBarrier* empty,
                                    const TensorMap& map_a, const TensorMap& map_b, int rank,
                                    int m0, int n0, int first, int count) {
    constexpr int everyone = (1 << Cluster) - 1;
    const int mine = rank * own_columns;
    for (int i = 0, now = 0, turn = 0; i < count; i++) {
      if (turn > 0) phase_wait(empty + now, (turn - 1) & 1);
      phase_expect(full + now, stage);
      unsigned char* const to = ring + now * stage;
      const int k = first + i * BK;
      copy_panels<SharedA, BM, false>(to, map_a, m0, k, full + now, 0);
      copy_panels<SharedB, own_columns, (Cluster > 1)>(to + SharedA::bytes + mine * 128, map_b,
                                                       n0 + mine, k, full + now, everyone);
      if (++now == stages) {
        now = 0;
        turn++;
      }
    }
  }
  template <class Shared, int Outer, bool Several>
  GRAPHC_INLINE static void copy_panels(unsigned char* to, const TensorMap& map, int outer, int k,
                                        BulkBarrier* barrier, int blocks) {
#pragma unroll
    for (int i = 0; i < Outer; i += 64)
      bulk_copy<Several>(to + i / 64 * panel, map, Shared::along_k ? k : outer + i,
                         Shared::along_k ? outer + i : k, barrier, blocks);
  }

  template <class Epilogue>
  GRAPHC_INLINE static void consume(unsigned char* ring, BulkBarrier* full, BulkBarrier* empty,
                                    int count, int m0, int n0, const Epilogue& epilogue) {
    typename Tile::template Sums<SharedA, SharedB, float> sums;
    for (int i = 0, now = 0, before = stages - 1, parity = 0; i < count; i++) {
      phase_wait(full + now, parity);
      const unsigned char* const tile = ring + now * stage;
      sums.step(reinterpret_cast<const ElementA*>(tile),
                reinterpret_cast<const ElementB*>(tile + SharedA::bytes));
      if (i > 0) release(empty + before);  // those of the step before have ended
      before = now;
      if (++now == stages) {
        now = 0;
        parity ^= 1;
      }
    }
    sums.finish();
    leave();
    Base::finish_sums(Consumers{}, 0, m0, n0, sums, ring, epilogue);
  }
  // Of each warp one lane arrives at the barrier of each block.
  GRAPHC_INLINE static void release(BulkBarrier* barrier) {
    const int lane = threadIdx.x % 32;
    if (lane < Cluster) phase_arrive(barrier, lane);
  }
};

}  // namespace graphc
