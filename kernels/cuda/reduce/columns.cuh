// columns.cuh: sums along the columns of a contraction's output while it is in registers, such as
// the statistics of a normalization.
//
// The Epilogue of such a contraction has
//   Results    what is added up for the `run` columns of a thread, with identity() and combine()
//   partial    memory for partial results, [part][piece][N / run] as `Reduce::combine_partial` of
//              reduce.cuh reads them; a part is a tile's rows
//   together   how many parts that are neighbours are joined in `joined`, by the last block that draws
//              one of `counters` (tickets.cuh): one for each of those groups and strip of columns; 1: none
// and takes `results` besides. Threads, then tiles, are combined in a fixed order.
#pragma once
#include "cuda/reduce/reduce.cuh"
#include "cuda/shared/tickets.cuh"

namespace graphc {

template <class Epilogue, class = void>
struct SumsColumns {
  static constexpr bool yes = false;
};
template <class Epilogue>
struct SumsColumns<Epilogue, decltype(Epilogue::Results::identity(), void())> {
  static constexpr bool yes = true;
};
template <class Epilogue>
constexpr bool sums_columns = SumsColumns<Epilogue>::yes;

// The results of all threads that are a multiple of Across apart, of which there are Lines, for the
// first of them. `shared` has room for the results of half of the threads.
template <int Across, int Lines, class Block, class Results>
GRAPHC_INLINE Results combine_lines(const Block& block, unsigned char* shared, Results results) {
  Results* const slots = reinterpret_cast<Results*>(shared);
  const int line = threadIdx.x / Across;
#pragma unroll
  for (int lines = Lines; lines > 1; lines = (lines + 1) / 2) {
    const int half = (lines + 1) / 2;
    block.sync();  // nothing reads what was there
    if (line >= half && line < lines) slots[threadIdx.x - half * Across] = results;
    block.sync();
    if (line + half < lines) results.combine(slots[threadIdx.x]);
  }
  return results;
}

// Where piece i of a part's results is.
template <class Results>
GRAPHC_INLINE auto* column_piece(unsigned char* partial, int part, int i, int place, int places) {
  using Own = Pieces<Results>;
  return reinterpret_cast<typename Own::Piece*>(partial) +
         (static_cast<long long>(part) * Own::count + i) * places + place;
}
template <class Results>
GRAPHC_INLINE void store_pieces(const Results& results, unsigned char* partial, int part, int place,
                                int places) {
  const Pieces<Results> own(results);
#pragma unroll
  for (int i = 0; i < own.count; i++)
    *column_piece<Results>(partial, part, i, place, places) = own.at[i];
}

// How many of the `Added` results of parts a thread loads before it adds the first: of 12 pieces, which
// fit beside its own where six blocks of 128 threads leave 80 registers to a thread.
template <class Results, int Added, int Room = 12 / Pieces<Results>::count>
constexpr int loaded_at_once = Room < Added ? Room + (Room == 0) : Added;

// Stores what the threads of a block have added up, of part `part` of Parts and of strip `strip` of
// Strips of columns. With `Epilogue::together` > 1 the last block of so many parts that are neighbours
// joins them, in an order that does not depend on which it is: so fewer are left in `joined`.
template <int Across, int Lines, int Parts, int Strips, class Block, class Results, class Epilogue>
GRAPHC_INLINE void store_columns(const Block& block, unsigned char* shared, Results results,
                                 const Epilogue& epilogue, int part, int strip, int place,
                                 int places) {
  constexpr int together = Epilogue::together;
  const int line = threadIdx.x / Across;
  results = combine_lines<Across, Lines>(block, shared, results);
  if (line == 0 && place < places) store_pieces(results, epilogue.partial, part, place, places);
  if constexpr (together > 1) {
    const int group = part / together, first = group * together;
    const int end = first + together < Parts ? first + together : Parts;
    if (!draws_last(epilogue.counters + group * Strips + strip, end - first)) return;
    results = Results::identity();
    if (place < places) {
      constexpr int at_once = loaded_at_once<Results, (together + Lines - 1) / Lines>;
#pragma unroll at_once
      for (int i = first + line; i < end; i += Lines) {
        Pieces<Results> other;
#pragma unroll
        for (int j = 0; j < other.count; j++)
          other.at[j] = *column_piece<Results>(epilogue.partial, i, j, place, places);
        results.combine(other.whole);
      }
    }
    results = combine_lines<Across, Lines>(block, shared, results);
    if (line == 0 && place < places) store_pieces(results, epilogue.joined, group, place, places);
  }
}

// The second launch of a contraction whose k is cut: each thread adds the parts of Each runs of sums,
// one below the other, in ascending order. Block: Across * Lines threads. Grid: (runs of columns
// / Across, M / (Lines * Each)), rounded up.
template <class Problem, int Across, int Lines, int Each, class Block, class Epilogue>
GRAPHC_INLINE void finish_columns(const Block& block, const typename Problem::Sum* workspace,
                                  const Epilogue& epilogue) {
  using T = typename Problem::Sum;
  using Results = typename Epilogue::Results;
  constexpr int M = Problem::M, N = Problem::N, run = Epilogue::run;
  const int place = block.x() * Across + threadIdx.x % Across, line = threadIdx.x / Across;
  Results results = Results::identity();
#pragma unroll 1
  for (int i = 0; i < Each; i++) {
    const int m = (block.y() * Each + i) * Lines + line;
    if (m >= M || place * run >= N) break;
    const long long at = static_cast<long long>(m) * N + place * run;
    Run<T, run> sums = {};
#pragma unroll 8
    for (int split = 0; split < Problem::splits; split++) {
      const auto part = *reinterpret_cast<const Run<T, run>*>(
          workspace + static_cast<long long>(split) * M * N + at);
#pragma unroll
      for (int j = 0; j < run; j++) sums.at[j] += part.at[j];
    }
    epilogue(0, m, place * run, sums, results);
  }
  auto* const slots = block.template shared<Results, Across * Lines / 2>();
  constexpr int rows = Lines * Each, parts = (M + rows - 1) / rows;
  constexpr int strips = (N / run + Across - 1) / Across;
  store_columns<Across, Lines, parts, strips>(block, reinterpret_cast<unsigned char*>(slots),
                                              results, epilogue, block.y(), block.x(), place,
                                              N / run);
}

}  // namespace graphc
