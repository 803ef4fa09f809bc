// split_k.cuh: contractions whose k is cut in parts: the first launch stores partial sums, the second
// adds them (finish_splits), or the one of a reduction that reads what they make (add_parts). The last
// block of a tile adds them in shared/tickets.cuh (adds_parts), the blocks of a cluster in
// contract/cluster_sums.cuh (add_parts), those of columns in reduce/columns.cuh (finish_columns). All
// five add the parts of a sum in one order, so that kernels have the same bits whoever adds:
// tests/kernels/test_cuda_tickets.py, test_cuda_clusters.py and test_cuda_parts_added.py compare them.
// Several threads share a sum only in the second launch, and only where no other place can add it.
#pragma once
#include "cuda/shared/memory.cuh"

namespace graphc {

// The epilogue of the first of two launches of a split contraction.
template <class Problem>
struct StorePartial {
  using T = typename Problem::Sum;
  static constexpr int run = sizeof(T) == 4 && Problem::N % 4 == 0 ? 4 : 1;
  T* workspace;  // [splits][batches][M][N]
  int split;
  template <class Sums>  // one, or a Run of them
  GRAPHC_INLINE void operator()(int batch, int m, int n, const Sums& sums) const {
    const long long row = static_cast<long long>(split) * Problem::batches + batch;
    *reinterpret_cast<Sums*>(workspace + (row * Problem::M + m) * Problem::N + n) = sums;
  }
};

// The second launch: `Lanes` threads add the parts of a sum, or of the Problem::run that lie side by
// side in the workspace, each neighbours in ascending order; then the lanes are joined. Sum number i
// is in the workspace at Problem::sum_at(i). Grid: all sums * Lanes / run threads.
template <class Problem, int Lanes, class Block, class Epilogue>
GRAPHC_INLINE void finish_splits(const Block& block, const typename Problem::Sum* workspace,
                                 const Epilogue& epilogue) {
  using T = typename Problem::Sum;
  constexpr int M = Problem::M, N = Problem::N, run = Problem::run;
  constexpr long long count = static_cast<long long>(Problem::batches) * M * N;
  const long long thread = static_cast<long long>(block.x()) * block.threads() + threadIdx.x;
  const long long i = thread / Lanes * run, at = i < count ? Problem::sum_at(i) : 0;
  const int lane = threadIdx.x % Lanes;
  if (Lanes == 1 && i >= count) return;
  Run<T, run> sums = {};
#pragma unroll 8
  for (int split = lane * Problem::splits / Lanes; split < (lane + 1) * Problem::splits / Lanes;
       split++) {
    const auto part = *reinterpret_cast<const Run<T, run>*>(workspace + split * count + at);
#pragma unroll
    for (int j = 0; j < run; j++) sums.at[j] += part.at[j];
  }
  if constexpr (Lanes > 1)
#pragma unroll
    for (int lanes = 1; lanes < Lanes; lanes *= 2) {
      const auto others = shuffle_xor(sums, lanes);
#pragma unroll
      for (int j = 0; j < run; j++) sums.at[j] += others.at[j];
    }
  if (lane || i >= count) return;
  const int batch = static_cast<int>(at / N / M), m = static_cast<int>(at / N % M);
  const int n = static_cast<int>(at % N);
  if constexpr (run > 1 && Epilogue::run == run) epilogue(batch, m, n, sums);
  else {
#pragma unroll
    for (int j = 0; j < run; j++) epilogue(batch, m, n + j, sums.at[j]);
  }
}

// What the second launch does, by the threads of a reduction of the product's columns, which lie as
// its rows do (reduce.cuh), or of its rows: each adds the parts of all elements that it is going to
// read.
template <class Problem, class Rows, class Epilogue>
GRAPHC_INLINE void add_parts(const Rows& rows, const typename Problem::Sum* workspace,
                             const Epilogue& epilogue) {
  constexpr int run = Rows::columns_at_once * Rows::rows_at_once;
  using Sums = Run<typename Problem::Sum, run>;
  static_assert(Problem::batches == 1 && Epilogue::run == run, "runs of columns");
  static_assert(Rows::rows_apart ? Problem::M == Rows::places && Problem::N == Rows::steps * run
                                 : Problem::M == Rows::steps && Problem::N == Rows::places * run,
                "as it lies");
  constexpr long long count = static_cast<long long>(Problem::M) * Problem::N;
  const auto m_of = [&](int i) { return Rows::rows_apart ? rows.row : i; };
  const auto n_of = [&](int i) { return Rows::rows_apart ? i : rows.row; };
  rows.template each<Rows::rows_apart ? 1 : 2>(
      [&](int i) {
        Sums sums = {};
#pragma unroll 12
        for (int split = 0; split < Problem::splits; split++) {
          const long long at =
              split * count + static_cast<long long>(m_of(i)) * Problem::N + n_of(i);
          const auto part = *reinterpret_cast<const Sums*>(workspace + at);
#pragma unroll
          for (int j = 0; j < run; j++) sums.at[j] += part.at[j];
        }
        return sums;
      },
      [&](int i, const Sums& sums) { epilogue(0, m_of(i), n_of(i), sums); });
}

}  // namespace graphc
