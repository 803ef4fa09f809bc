// columns.cuh: what a contraction adds up along the columns of its output while it is in registers,
// such as the statistics of a normalisation.
//
// The Epilogue of such a contraction has
//   Results    what is added up for the `run` columns of a thread, with identity() and combine()
//   partial    memory for partial results, [part][piece][N / run] as `Reduce::combine_partial` of
//              reduce.cuh reads them; a part is a tile's rows
// and takes `results` besides. Threads, then tiles, are combined in a fixed order.
#pragma once
#include "reduce.cuh"

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

// Combines the results of threads that are a multiple of Across apart, of which there are Lines, and
// stores those of each run of columns. `shared` has room for the results of half of the threads.
template <int Across, int Lines, class Block, class Results>
GRAPHC_INLINE void store_columns(const Block& block, unsigned char* shared, Results results,
                                 unsigned char* partial, int part, int place, int places) {
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
  if (line != 0 || place >= places) return;
  const Pieces<Results> own(results);
  auto* const to = reinterpret_cast<typename Pieces<Results>::Piece*>(partial);
#pragma unroll
  for (int i = 0; i < own.count; i++)
    to[(static_cast<long long>(part) * own.count + i) * places + place] = own.at[i];
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
  store_columns<Across, Lines>(block, reinterpret_cast<unsigned char*>(slots), results,
                               epilogue.partial, block.y(), place, N / run);
}

}  // namespace graphc
