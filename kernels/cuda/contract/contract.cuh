// contract.cuh: out[m, n] = epilogue(sum over k of A(m, k) * B(n, k)), for each batch: an implicit
// matrix product. A block computes a tile of BM x BN sums. Shared memory holds a ring of Stages
// pairs of tiles, BK deep in k, which cp.async fills Stages - 1 steps ahead of the arithmetic; a
// step costs one barrier. Sums are exact float32 (or T) multiply-adds with k ascending.
//
// What depends on the problem enters through types that the generator prints:
//   Problem   M, N, K, batches, splits, taps, the type Sum of sums, and the accesses A and B; with
//             `sections` > 1 the epilogue takes that many sums at once: a tile's columns are `units`
//             of each section in turn (N counts whole tiles), of one that has `section` columns
//   access    where the element (outer, k) of an operand lies, outer being m or n:
//     element           type in memory and in shared tiles
//     along_k           whether neighbours in memory are neighbours along k, else along outer
//     vector            elements that lie side by side and are copied as one, aligned to their
//                       size; the last of them, or all, may be padding zeros
//     again             whether a tile's copies meet elements again that one before has read
//     outer(batch, m), depth(k)  what depends on one index alone; the loop over k computes one of
//                       them once and the other at each step
//     at(outer, depth)  the Place of both together
//   Epilogue  operator()(batch, m, n, sum) stores what it makes of a sum, of the Run of `run` sums that
//             begins at column n (1: it takes none), or of the sums of column n of each section,
//             which meet in shared memory. With a type Results it also adds to a thread's results
//             of a run of columns, operator()(batch, m, n, sum, results), which are stored as
//             partial ones of a tile's rows (columns.cuh).
// Taps: where k is `taps` > 0 equal parts, Problem::live_taps(i) says which of them any row of tile i
// of rows meets; steps of no such part are left out.
// Splits: block row s covers its share of k and stores partial sums; finish_splits adds them in
// ascending order and calls the epilogue; or the last block of a tile (tickets.cuh), or the blocks of a
// cluster do (cluster_sums.cuh). The number of splits is fixed by the problem.
//
// A tile type says who holds which sums: step() adds one pair of shared tiles, visit(f) calls
// f(m, n, sum). Registers is the plain one; tensor.cuh has that of tensor cores. It also says how an
// operand's tile lies in shared memory, and whether sums `exchange` threads before they are stored.
//
// Grid: (tiles * batches, splits). Shared memory: Contract::shared_bytes, static below 48 KiB with
// run(), else given to run_in().
#pragma once
#include "cuda/contract/split_k.cuh"
#include "cuda/contract/tiles/loader.cuh"
#include "cuda/contract/tiles/registers.cuh"
#include "cuda/reduce/columns.cuh"

namespace graphc {

template <class Problem, class Tile>
struct Contract {
  using A = typename Problem::A;
  using B = typename Problem::B;
  using T = typename Problem::Sum;
  using ElementA = typename A::element;
  using ElementB = typename B::element;
  static constexpr int M = Problem::M, N = Problem::N, K = Problem::K;
  static constexpr int batches = Problem::batches, splits = Problem::splits;
  static constexpr int BM = Tile::BM, BN = Tile::BN, BK = Tile::BK, stages = Tile::stages;
  static constexpr int tiles_n = ceil_div(N, BN), tiles = ceil_div(M, BM) * tiles_n;
  static constexpr int steps = ceil_div(K, BK);
  static constexpr bool skips = Problem::taps > 1;  // one tap is all of k, or nothing
  using SharedA = typename Tile::template Shared<A, BM>;
  using SharedB = typename Tile::template Shared<B, BN>;
  static constexpr int stage = SharedA::bytes + SharedB::bytes;
  static constexpr int shared_bytes = stages * stage;
  // Copies of a step go where the step was that all have left: one step back, or two where products
  // of the last one may be under way.
  static constexpr int ahead = Tile::ahead, behind = stages - ahead;

  template <class Block, class Epilogue>
  GRAPHC_INLINE static void run(const Block& block, const ElementA* a, const ElementB* b,
                                const Epilogue& epilogue) {
    static_assert(shared_bytes <= 48 * 1024, "static shared memory");
    run_in(block, block.template shared<unsigned char, shared_bytes>(), a, b, epilogue);
  }
  // `ring` has shared_bytes.
  template <class Block, class Epilogue>
  GRAPHC_INLINE static void run_in(const Block& block, unsigned char* ring, const ElementA* a,
                                   const ElementB* b, const Epilogue& epilogue) {
    // Neighbouring blocks share rows of A, so that those are read into L2 once.
    const int batch = block.x() / tiles, tile = block.x() % tiles;
    const int m0 = tile / tiles_n * BM, n0 = tile % tiles_n * BN;
    // Of all steps the first steps % splits parts have one more; of those that a tile needs each
    // part has every splits-th.
    constexpr int least = steps / splits, more = steps % splits;
    const int part = block.y();
    const unsigned taps = live_taps(tile / tiles_n);
    const int first = part * least + smaller(part, more), count = taps ? least + (part < more) : 0;
    int next = skips ? live_step(taps, 0, part) : 0, loaded = 0;
    const Loader<A, SharedA, M, K, Tile::threads> load_a(batch, m0);
    const Loader<B, SharedB, N, K, Tile::threads> load_b(batch, n0);
    auto load = [&](int i, unsigned char* to) {
      if (skips ? next < steps : i < count) {
        const int k = (skips ? next : first + i) * BK;
        if (K % BK == 0 && k > K - BK) __builtin_unreachable();  // drops the tests of the tail
        load_a.start(reinterpret_cast<ElementA*>(to), a, k);
        load_b.start(reinterpret_cast<ElementB*>(to + SharedA::bytes), b, k);
        if (skips) next = live_step(taps, next + 1, splits - 1);
        loaded++;
      }
      copy_commit();  // also where nothing was copied, so that copy_wait counts steps
    };
    typename Tile::template Sums<SharedA, SharedB, T> sums;
#pragma unroll
    for (int i = 0; i < ahead; i++) load(i, ring + i * stage);
    for (int i = 0, now = 0; i < (skips ? loaded : count); i++) {
      copy_wait<ahead - 1>();
      if constexpr (Tile::asynchronous) fence_async_proxy();
      block.sync();  // step i has arrived for all, and all have left the tile that load fills
      load(i + ahead, ring + (now < behind ? now + ahead : now - behind) * stage);
      const unsigned char* const tile_a = ring + now * stage;
      sums.step(reinterpret_cast<const ElementA*>(tile_a),
                reinterpret_cast<const ElementB*>(tile_a + SharedA::bytes));
      now = now + 1 == stages ? 0 : now + 1;
    }
    if constexpr (Tile::asynchronous) sums.finish();
    if constexpr (Block::draws) {
      if (!block.template adds_parts<splits, Tile::threads, T>(sums)) return;
    }
    if constexpr (Block::parts > 1)
      block.template add_parts<Contract, Tile>(batch, m0, n0, sums, ring, epilogue);
    else if constexpr (sums_columns<Epilogue>) finish_columns(block, m0, n0, sums, ring, epilogue);
    else if constexpr (Problem::sections == 1 && !exchanges<decltype(sums), Epilogue>())
      sums.template visit<
          decltype(sums)::run == Epilogue::run && N % Epilogue::run == 0 ? Epilogue::run : 1>(
          [&](int m, int n, const auto& sum) {
            if (m0 + m < M && n0 + n < N) epilogue(batch, m0 + m, n0 + n, sum);
          });
    else if constexpr (Problem::sections == 1)
      finish_sums(block, batch, m0, n0, sums, ring, epilogue);
    else finish_sections(block, batch, m0, n0 / BN * Problem::units, sums, ring, epilogue);
  }

  // Whether sums leave by way of other threads: where the tile has it so, and where neighbours, of which
  // the epilogue takes runs, are not one thread's, and whole rows of them fit where the tiles were.
  template <class Sums, class Epilogue>
  __host__ __device__ static constexpr bool exchanges() {
    if constexpr (Tile::exchanges) return true;
    else
      return Sums::run == 1 && Epilogue::run > 1 && N % Epilogue::run == 0 &&
             BM % ceil_div(BM * Tile::pitch * sizeof(T), shared_bytes) == 0;
  }

  // The bits of the taps that any row of a tile meets.
  GRAPHC_INLINE static unsigned live_taps(int tile) {
    if constexpr (Problem::taps > 0) return Problem::live_taps(tile);
    return 1;
  }
  // The step from `step` on that meets one of the taps and has so many `others` that do before it.
  GRAPHC_INLINE static int live_step(unsigned taps, int step, int others) {
    constexpr int depth = K / (Problem::taps > 0 ? Problem::taps : 1);
    for (; step < steps; step++) {
      const int low = step * BK / depth, high = smaller((step * BK + BK - 1) / depth, 31);
      if ((taps >> low & ((2u << (high - low)) - 1)) && others-- == 0) break;
    }
    return step;
  }

  // Sums leave their threads by way of where the operands' tiles were, Rows rows from `first` on at a
  // time: m, n is at (m - first) * pitch + n. Those of several groups of threads are added there.
  template <int Rows, class Block, class Sums>
  GRAPHC_INLINE static const T* exchange(const Block& block, const Sums& sums, unsigned char* tiles,
                                         int first = 0) {
    constexpr int all = Rows * Tile::pitch, groups = Tile::groups;
    static_assert(groups * all * sizeof(T) <= shared_bytes, "the sums fit where the tiles were");
    T* const ring = reinterpret_cast<T*>(tiles);
    T* const own = ring + sums.group * all;
    copy_wait<0>();
    block.sync();
    sums.visit([&](int m, int n, T sum) {
      if (Rows == BM || (m >= first && m < first + Rows)) own[(m - first) * Tile::pitch + n] = sum;
    });
    block.sync();
    if constexpr (groups > 1) {
      for (int i = threadIdx.x; i < all; i += Tile::threads) {
        T sum = ring[i];
#pragma unroll
        for (int group = 1; group < groups; group++) sum += ring[group * all + i];
        ring[i] = sum;
      }
      block.sync();
    }
    return ring;
  }
  // Every thread takes sums of other threads: neighbours along n, which are stored side by side.
  template <class Block, class Sums, class Epilogue>
  GRAPHC_INLINE static void finish_sums(const Block& block, int batch, int m0, int n0,
                                        const Sums& sums, unsigned char* tiles,
                                        const Epilogue& epilogue) {
    constexpr int run = Epilogue::run, across = BN / run;
    constexpr int rows = BM / ceil_div(Tile::groups * BM * Tile::pitch * sizeof(T), shared_bytes);
    static_assert(BM % rows == 0, "whole parts");
    constexpr bool stays = Tile::threads % across == 0;
    const auto& own = of_columns<stays>(epilogue, n0 + threadIdx.x % across * run);
    for (int first = 0; first < BM; first += rows) {
      const T* const ring = exchange<rows>(block, sums, tiles, first);
#pragma unroll 4
      for (int i = threadIdx.x; i < rows * across; i += Tile::threads) {
        const int m = m0 + first + i / across, n = i % across * run;
        if (m >= M || n0 + n >= N) continue;
        const T* const sum = ring + i / across * Tile::pitch + n;
        apply_run<N>(own, batch, m, n0 + n, sum);
      }
    }
  }

  // As finish_sums, where the epilogue adds up results of columns: each thread stays in its own.
  template <class Block, class Sums, class Epilogue>
  GRAPHC_INLINE static void finish_columns(const Block& block, int m0, int n0, const Sums& sums,
                                           unsigned char* tiles, const Epilogue& epilogue) {
    constexpr int run = Epilogue::run, across = BN / run, lines = Tile::threads / across;
    constexpr int rows = BM / ceil_div(Tile::groups * BM * Tile::pitch * sizeof(T), shared_bytes);
    static_assert(batches == 1 && Problem::sections == 1, "columns of one product");
    static_assert(N % run == 0 && BM % rows == 0, "whole runs and parts");
    static_assert(Tile::threads % across == 0, "a thread stays in its columns");
    auto results = Epilogue::Results::identity();
    // Sums that wait for the next part, and many results, leave registers for what one row reads.
    constexpr int at_once = rows < BM && sizeof(results) > 8 * sizeof(T) ? 1 : 2;
    const int line = threadIdx.x / across, column = threadIdx.x % across * run;
    for (int first = 0; first < BM; first += rows) {
      const T* const part = exchange<rows>(block, sums, tiles, first) + column;
#pragma unroll at_once
      for (int row = line; row < rows; row += lines) {
        if (m0 + first + row >= M || n0 + column >= N) continue;
        const auto& sum = *reinterpret_cast<const Run<T, run>*>(part + row * Tile::pitch);
        epilogue(0, m0 + first + row, n0 + column, sum, results);
      }
    }
    static_assert(Tile::threads / 2 * sizeof(results) <= shared_bytes, "they fit there too");
    static_assert(lines % 2 == 0, "half of the threads");
    store_columns<across, lines, ceil_div(M, BM), tiles_n>(block, tiles, results, epilogue, m0 / BM,
                                                           n0 / BN, (n0 + column) / run, N / run);
  }

  // The sums of a column of each section go to the epilogue together.
  template <class Block, class Sums, class Epilogue>
  GRAPHC_INLINE static void finish_sections(const Block& block, int batch, int m0, int first,
                                            const Sums& sums, unsigned char* tiles,
                                            const Epilogue& epilogue) {
    constexpr int units = Problem::units;
    const T* const ring = exchange<BM>(block, sums, tiles);
    for (int i = threadIdx.x; i < BM * units; i += Tile::threads) {
      const int m = i / units, unit = i % units;
      if (m0 + m >= M || first + unit >= Problem::section) continue;
      T group[Problem::sections];
#pragma unroll
      for (int s = 0; s < Problem::sections; s++)
        group[s] = ring[m * Tile::pitch + s * units + unit];
      epilogue(batch, m0 + m, first + unit, group);
    }
  }
};

}  // namespace graphc
