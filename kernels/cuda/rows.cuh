// rows.cuh: a product whose blocks own rows: each computes all columns of BM rows, for the loops of a
// joined launch. What one iteration writes of some rows the same block reads in the next, so that
// no block waits for another; and the columns' operand, small enough for L1, is read from there by
// each iteration after the first.
//
// Problem, accesses and Epilogue are those of contract.cuh, of float operands in memory, no batch, no
// splits, no taps and no borders; all are copied 16 bytes at a time, rows along k. Quads of k are
// dealt out to groups of threads, whose sums are added in a fixed order: where the columns' operand
// lies along k a group is every eighth thread, so that eight threads read 128 neighbouring bytes.
//
// Block: Tile::threads threads. Grid: M / BM. Shared memory: the rows and all groups' sums.
#pragma once
#include "contract.cuh"

namespace graphc {

template <int BM_, int Threads>
struct Rows {
  static constexpr int BM = BM_, threads = Threads;
};

template <class Problem, class Tile>
struct RowProduct {
  using A = typename Problem::A;
  using B = typename Problem::B;
  using T = typename Problem::Sum;
  using Quad = Run<T, 4>;
  static constexpr int N = Problem::N, K = Problem::K, BM = Tile::BM, threads = Tile::threads;
  static constexpr int sections = Problem::sections, section = N / sections;
  static constexpr bool along_k = B::along_k;
  static constexpr int lanes = along_k ? 8 : 1;  // of a warp, that share the k of its columns
  static constexpr int across = along_k ? threads / lanes : N / 4, groups = threads / across;
  static constexpr int held = along_k ? N / across : 4;  // columns of a thread
  static constexpr int stored = groups / lanes, all = BM * N;
  static_assert(Problem::M % BM == 0 && N % across == 0, "whole blocks, whole threads");
  static_assert(K / 4 % groups == 0 && BM * held % lanes == 0, "whole shares");

  GRAPHC_INLINE static int column(int x, int j) { return along_k ? j * across + x : 4 * x + j; }

  template <class Block, class Epilogue>
  GRAPHC_INLINE static void run(const Block& block, const T* a, const T* b,
                                const Epilogue& epilogue) {
    T* const rows = block.template shared<T, BM * K + stored * all>();
    T* const ring = rows + BM * K;
    const int m0 = block.x() * BM, thread = threadIdx.x;
    for (int i = thread * 4; i < BM * K; i += threads * 4)
      *reinterpret_cast<Quad*>(rows + i) = quad<A>(a, A::outer(0, m0 + i / K), i % K);
    block.sync();
    const int group = along_k ? thread % lanes : thread / across;
    const int x = along_k ? thread / lanes : thread % across;
    T sum[BM * held] = {};
#pragma unroll 1  // unrolled further, reads are hoisted until registers spill
    for (int k = group * 4; k < K; k += groups * 4) {
      Quad row[BM];
#pragma unroll
      for (int m = 0; m < BM; m++) row[m] = *reinterpret_cast<const Quad*>(rows + m * K + k);
#pragma unroll
      for (int j = 0; j < (along_k ? held : 4); j++) {
        const Quad part =
            quad<B>(b, B::outer(0, along_k ? column(x, j) : 4 * x), along_k ? k : k + j);
#pragma unroll
        for (int m = 0; m < BM; m++)
#pragma unroll
          for (int i = 0; i < 4; i++)
            if constexpr (along_k) sum[m * held + j] += row[m].at[i] * part.at[i];
            else sum[m * held + i] += row[m].at[j] * part.at[i];
      }
    }
    const int first = add_lanes<lanes / 2, BM * held / 2>(sum, thread);
#pragma unroll
    for (int i = 0; i < BM * held / lanes; i++) {
      const int n = first + i;
      ring[group / lanes * all + n / held * N + column(x, n % held)] = sum[i];
    }
    block.sync();
    for (int i = thread; i < BM * section; i += threads) {
      const int m = i / section, unit = i % section;
      T total[sections];
#pragma unroll
      for (int s = 0; s < sections; s++) {
        const T* const part = ring + m * N + s * section + unit;
        total[s] = *part;
#pragma unroll
        for (int other = 1; other < stored; other++) total[s] += part[other * all];
      }
      if constexpr (sections == 1) epilogue(0, m0 + m, unit, total[0]);
      else epilogue(0, m0 + m, unit, total);
    }
  }

  // Four neighbours along the operand's contiguous axis.
  template <class Access, class Outer>
  GRAPHC_INLINE static Quad quad(const T* base, const Outer& outer, int k) {
    return *reinterpret_cast<const Quad*>(base + Access::at(outer, Access::depth(k)).offset);
  }

  // Adds the sums of lanes up to 2 * Apart - 1 away, of which each is left with a share of the first
  // 2 * Left; returns where that begins.
  template <int Apart, int Left>
  GRAPHC_INLINE static int add_lanes(T (&sum)[BM * held], int lane) {
    if constexpr (Apart == 0) return 0;
    else {
      const bool upper = lane & Apart;
#pragma unroll
      for (int i = 0; i < Left; i++) {
        const T given = upper ? sum[i] : sum[i + Left], kept = upper ? sum[i + Left] : sum[i];
        sum[i] = kept + shuffle_xor(given, Apart);
      }
      return (upper ? Left : 0) + add_lanes<Apart / 2, Left / 2>(sum, lane);
    }
  }
};

}  // namespace graphc
