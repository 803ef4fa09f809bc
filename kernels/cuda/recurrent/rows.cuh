// rows.cuh: a product whose blocks own rows: each computes all columns of BM rows, for the loops of a
// joined launch. What one iteration writes of some rows the same block reads in the next, so that
// no block waits for another. The columns' operand is held in registers for all iterations where it
// takes at most 64 of each thread (Block::holds); else it is small enough for L1, and read from there.
//
// Problem, accesses and Epilogue are those of contract.cuh, of operands of halves, of bfloats or of
// floats, which may be rounded where they are read (elements tf32, as_bfloat); sums are of floats. No
// batch, no splits, no taps and no borders. All are copied four at a time, rows along k. What the
// epilogue loads, `loaded(batch, m, n)` gives it before there are sums.
//
// Quads of k are dealt out to groups of threads, whose sums are added in a fixed order: where the
// columns' operand lies along k a group is every eighth thread, so that eight threads read 128
// neighbouring bytes.
//
// Block: Tile::threads threads. Grid: M / BM. Shared memory: the rows, if they are not near already
// (shared_staging.cuh), and all groups' sums.
#pragma once
#include "cuda/contract/contract.cuh"

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
  using ElementA = typename A::element;
  using ElementB = typename B::element;
  static constexpr int N = Problem::N, K = Problem::K, BM = Tile::BM, threads = Tile::threads;
  static constexpr int sections = Problem::sections, section = N / sections;
  static constexpr bool along_k = B::along_k;
  static constexpr int lanes = along_k ? 8 : 1;  // of a warp, that share the k of its columns
  static constexpr int across = along_k ? threads / lanes : N / 4, groups = threads / across;
  static constexpr int held = along_k ? N / across : 4;  // columns of a thread
  static constexpr int stored = groups / lanes, all = BM * N, turns = K / (4 * groups);
  static_assert(Problem::M % BM == 0 && N % across == 0, "whole blocks, whole threads");
  // Sums of a thread, with some that are none, so that lanes have equal shares.
  static constexpr int sums = ceil_div(BM * held, lanes) * lanes;
  static_assert(K / 4 % groups == 0, "whole shares");
  static_assert(BM * section <= threads, "a thread has one place of the output");

  // Of each turn of a thread through k, of each column, or of each k of four columns.
  struct Weights {
    Quad at[turns][held];
  };

  GRAPHC_INLINE static int group() { return along_k ? threadIdx.x % lanes : threadIdx.x / across; }
  GRAPHC_INLINE static int x() { return along_k ? threadIdx.x / lanes : threadIdx.x % across; }
  GRAPHC_INLINE static int column(int j) { return along_k ? j * across + x() : 4 * x() + j; }
  GRAPHC_INLINE static int k(int turn) { return (turn * groups + group()) * 4; }

  GRAPHC_INLINE static Quad weight(const ElementB* b, int turn, int j) {
    return quad<B>(b, B::outer(0, along_k ? column(j) : 4 * x()), along_k ? k(turn) : k(turn) + j);
  }

  GRAPHC_INLINE static void hold(Weights& to, unsigned, const ElementB* b) {
#pragma unroll
    for (int turn = 0; turn < turns; turn++)
#pragma unroll
      for (int j = 0; j < held; j++) to.at[turn][j] = weight(b, turn, j);
  }

  template <class Block, class Epilogue>
  GRAPHC_INLINE static void run(const Block& block, const ElementA* a, const ElementB* b,
                                const Epilogue& epilogue) {
    constexpr int copied = Block::near ? 0 : BM * K;
    T* const rows = block.template shared<T, copied + stored * all>();
    T* const ring = rows + copied;
    const int m0 = block.x() * BM, thread = threadIdx.x, m = thread / section,
              unit = thread % section;
#pragma unroll
    for (int at = 0; at < copied; at += threads * 4) {
      const int i = at + thread * 4;
      if (BM * K % (threads * 4) && i >= BM * K) break;
      *reinterpret_cast<Quad*>(rows + i) = quad<A>(a, A::outer(0, m0 + i / K), i % K);
    }
    typename Epilogue::Loads loads;
    if (m < BM) loads = epilogue.loaded(0, m0 + m, unit);
    if constexpr (!Block::near) block.sync();
    const auto row = [&](int m, int k) {
      if constexpr (Block::near) return quad<A>(a, A::outer(0, m0 + m), k);
      else return *reinterpret_cast<const Quad*>(rows + m * K + k);
    };
    T sum[sums] = {};
    if constexpr (Block::holds) {
#pragma unroll
      for (int turn = 0; turn < turns; turn++)
        add(sum, row, turn, [&](int j) { return block.held.at[turn][j]; });
    } else {
#pragma unroll 1  // unrolled further, reads are hoisted until registers spill
      for (int turn = 0; turn < turns; turn++)
        add(sum, row, turn, [&](int j) { return weight(b, turn, j); });
    }
    const int first = add_lanes<lanes / 2, sums / 2>(sum, thread);
#pragma unroll
    for (int i = 0; i < sums / lanes; i++) {
      const int n = first + i;
      if (BM * held == sums || n < BM * held)
        ring[group() / lanes * all + n / held * N + column(n % held)] = sum[i];
    }
    block.sync();
    if (m >= BM) return;
    T total[sections];
#pragma unroll
    for (int s = 0; s < sections; s++) {
      const T* const part = ring + m * N + s * section + unit;
      total[s] = *part;
#pragma unroll
      for (int other = 1; other < stored; other++) total[s] += part[other * all];
    }
    if constexpr (sections == 1) epilogue(0, m0 + m, unit, total[0], loads);
    else epilogue(0, m0 + m, unit, total, loads);
  }

  // Adds the products of a quad of k; part(j) are the weights of column j, or of k + j.
  template <class Rows, class Part>
  GRAPHC_INLINE static void add(T (&sum)[sums], const Rows& rows, int turn, const Part& part) {
    Quad row[BM];
#pragma unroll
    for (int m = 0; m < BM; m++) row[m] = rows(m, k(turn));
#pragma unroll
    for (int j = 0; j < held; j++) {
      const Quad weights = part(j);
#pragma unroll
      for (int m = 0; m < BM; m++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
          T& total = sum[m * held + (along_k ? j : i)];
          if constexpr (along_k) total = fma(row[m].at[i], weights.at[i], total);
          else total = fma(row[m].at[j], weights.at[i], total);
        }
    }
  }

  // Four neighbours along the operand's contiguous axis.
  template <class Access, class Outer>
  GRAPHC_INLINE static Quad quad(const typename Access::element* base, const Outer& outer, int k) {
    using Four = Run<typename Access::element, 4>;
    const auto read =
        *reinterpret_cast<const Four*>(base + Access::at(outer, Access::depth(k)).offset);
    return {decode(read.at[0]), decode(read.at[1]), decode(read.at[2]), decode(read.at[3])};
  }

  // Adds the sums of lanes up to 2 * Apart - 1 away, of which each is left with a share of the first
  // 2 * Left; returns where that begins.
  template <int Apart, int Left>
  GRAPHC_INLINE static int add_lanes(T (&sum)[sums], int lane) {
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
