// The loops around a contraction's tiles, the second phase that adds lanes or partial sums, and the
// plain nest for contractions that fit no tile.
#pragma once
#include "cpu/contract/contract_registers.h"

namespace graphc::contract {

// 0, 1, ..., N - 1 as template arguments: what is expanded over them is optimised once, where each
// level of a recursion would be optimised by itself, with all that is below.
template <int... N> struct Numbers {};
#if defined(__clang__)
template <class T, T... N> using NumbersOf = Numbers<N...>;
template <int N> using First = __make_integer_seq<NumbersOf, int, N>;
#else
template <int N> using First = Numbers<__integer_pack(N)...>;
#endif

// `tiles` tiles of `size` (rows, or registers) from logical index `start` on.
struct Cut {
  int start, tiles, size;
};
struct Loop {
  int axis;
  long extent;
  long stride;  // what one iteration adds to at[axis], in tiles for a tile's axis
};
struct Sum {
  int axis;
  long extent;
  bool guarded;
};

// One iteration of each loop of S; the last loop is the innermost.
template <class S>
struct Iteration {
  long number[S::LOOPS];

  explicit Iteration(long u) {
#pragma GCC unroll 16
    for (int d = S::LOOPS - 1; d >= 0; d--) {
      number[d] = u % S::loops[d].extent;
      u /= S::loops[d].extent;
    }
  }
  INLINE void place(long* at) const {
#pragma GCC unroll 16
    for (int d = 0; d < S::LOOPS; d++) at[S::loops[d].axis] += number[d] * S::loops[d].stride;
  }
  INLINE void next() {
#pragma GCC unroll 16
    for (int d = S::LOOPS - 1; d >= 0; d--) {
      if (++number[d] < S::loops[d].extent) return;
      number[d] = 0;
    }
  }
};

// The cut that tile number `at` of an axis belongs to becomes a template argument, and `at` a
// logical index. STEP is the logical extent of one row or register.
template <const auto& CUTS, int I, int STEP, class Then>
INLINE void choose(long& at, const Then& then) {
  constexpr Cut cut = CUTS[I];
  if constexpr (I + 1 < sizeof CUTS / sizeof(Cut)) {
    if (at >= cut.tiles) {
      at -= cut.tiles;
      choose<CUTS, I + 1, STEP>(at, then);
      return;
    }
  }
  at = cut.start + at * cut.size * STEP;
  then.template operator()<cut>();
}

// ---- the second phase ----------------------------------------------------------------------------

// The partial sums of N neighbours, `size` elements apart, added in ascending order.
template <int N, int PARTS, long SIZE, class T>
INLINE SumOf<T> add_parts(const T* p) {
  vec<T> sum = load<N>(p);
  for (int i = 1; i < PARTS; i++) sum += load<N>(p + i * SIZE);
  return (SumOf<T>)sum;
}

// A chunk of ROWS rows of LANE elements: body<N>(row, first) for each register.
template <long ROWS, long LANE, int CHUNKS, class Body>
INLINE void over(int chunk, const Body& body) {
  constexpr long blocks = (LANE + W - 1) / W;
  const long end = (chunk + 1) * (ROWS * blocks) / CHUNKS;
  for (long u = chunk * (ROWS * blocks) / CHUNKS; u < end; u++) {
    const long row = u / blocks, first = u % blocks * W;
    if constexpr (LANE % W != 0) {
      if (first + W > LANE) {
        body.template operator()<LANE % W>(row, first);
        continue;
      }
    }
    if constexpr (LANE >= W) body.template operator()<W>(row, first);
  }
}

// ---- any nest at all -----------------------------------------------------------------------------

// What most plain nests do not say, to inherit from.
struct PlainDefaults {
  static constexpr int SUM_LANE = 0, SUM_LANES = 1, PARTS = 1;
};
// The sums at one output element: S::add adds the product at a place of the nest, if it exists, to the
// sum of its lane. Right for everything, fast for nothing.
template <class S, int D>
INLINE void add_products(typename S::T* sums, const typename S::A* a, const typename S::B* b,
                         long* at, int part) {
  if constexpr (D == S::DEPTH) {
    S::add(sums[S::SUM_LANES == 1 ? 0 : at[S::SUM_LANE] % S::SUM_LANES], a, b, at);
  } else {
    long begin = 0, end = S::sums[D].extent;
    if constexpr (D == 0 && S::PARTS > 1) {
      const long rounds = (end + S::SUM_LANES - 1) / S::SUM_LANES;
      begin = part * rounds / S::PARTS * S::SUM_LANES;
      end = least((part + 1) * rounds / S::PARTS * S::SUM_LANES, end);
    }
    for (long z = begin; z < end; z++) {
      at[S::sums[D].axis] = z;
      add_products<S, D + 1>(sums, a, b, at, part);
    }
  }
}
template <class S>
INLINE typename S::T sum_of_products(const typename S::A* a, const typename S::B* b, long* at) {
  typename S::T total = 0;
  for (int part = 0; part < S::PARTS; part++) {
    typename S::T sums[S::SUM_LANES] = {};
    add_products<S, 0>(sums, a, b, at, part);
    for (int half = S::SUM_LANES / 2; half > 0; half /= 2)
      for (int l = 0; l < half; l++) sums[l] += sums[l + half];
    total = part == 0 ? sums[0] : total + sums[0];
  }
  return total;
}
// The sums of one register, for each place of the pooling window at ROWS and COLUMNS.
template <int N, class S, class Epilogue>
INLINE void one_register(const typename S::A* a, const typename S::B* b, long* at,
                         const Epilogue& epilogue) {
  vec<typename S::T> sums[S::WINDOW_ROWS * S::WINDOW_COLUMNS] = {};
  const long first = at[S::LANE];
  for (int l = 0; l < N; l++) {
    at[S::LANE] = first + l;
    for (int e = 0; e < S::WINDOW_ROWS * S::WINDOW_COLUMNS; e++) {
      const long r = e / S::WINDOW_COLUMNS, s = e % S::WINDOW_COLUMNS;
      at[S::ROWS] += r, at[S::COLUMNS] += s;
      sums[e][l] = sum_of_products<S>(a, b, at);
      at[S::ROWS] -= r, at[S::COLUMNS] -= s;
    }
  }
  at[S::LANE] = first;
  S::template finish<N>(epilogue, sums, at);
}
template <class S, class Epilogue>
INLINE void plain(const typename S::A* a, const typename S::B* b, int chunk,
                  const Epilogue& epilogue) {
  const long begin = chunk * S::TILES / S::CHUNKS, end = (chunk + 1) * S::TILES / S::CHUNKS;
  Iteration<S> iteration(begin);
  for (long u = begin; u < end; u++, iteration.next()) {
    long at[S::AXES] = {};
    iteration.place(at);
    if constexpr (S::LANE_EXTENT % W != 0) {
      if (at[S::LANE] + W > S::LANE_EXTENT) {
        one_register<S::LANE_EXTENT % W, S>(a, b, at, epilogue);
        continue;
      }
    }
    one_register<W, S>(a, b, at, epilogue);
  }
}

}  // namespace graphc::contract
