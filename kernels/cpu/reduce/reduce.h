// reduce: for each kept index, loops over the reduced axes.
//
// The generator prints a struct of sums per loop (`Sums`: registers, `add` to join two, `across` to join the lanes where they are
// reduced) and the body of the loop. Domains are those of pointwise.h: `Kept` for the rows, `Reduced` for a row's elements. Where
// the rows are too few to make chunks, a row is cut into PIECES, whose sums lie in the workspace until the next phase adds them
// in ascending order.
#pragma once
#include "cpu/pointwise/pointwise.h"

namespace graphc {
template <class V> INLINE element<V> laneprod(V v) {
  return across(v, [](element<V> a, element<V> b) { return element<V>(a * b); });
}
template <class V> INLINE element<V> lanemax(V v) {
  return across(v, [](element<V> a, element<V> b) { return a > b || a != a ? a : b; });
}
template <class V> INLINE element<V> lanemin(V v) {
  return across(v, [](element<V> a, element<V> b) { return a < b || a != a ? a : b; });
}

// The sums of SIDE rows that lie side by side.
template <class Sums, int SIDE> struct Neighbours {
  Sums row[SIDE];
  INLINE void add(const Neighbours& o) {
#pragma GCC unroll 8
    for (int side = 0; side < SIDE; side++) row[side].add(o.row[side]);
  }
  INLINE void across() {
#pragma GCC unroll 8
    for (int side = 0; side < SIDE; side++) row[side].across();
  }
};

// The sums of steps [begin, end) of a row, by U independent chains.
template <class Reduced, int U, int N, class Sums, class Body> INLINE Sums
reduce(long begin, long end, const Body& body) {
  constexpr int step = Reduced::LANE == Reduced::RANK - 1 ? W : 1;
  Sums sums[U];
  pointwise<Reduced, N>(
      begin, end, [&]<int M>(const long* j, long first, long stop) __attribute__((always_inline)) {
        if constexpr (U > 1)
          for (; first + (U - 1) * step < stop; first += U * step)
#pragma GCC unroll 8
            for (int u = 0; u < U; u++) body.template operator()<M>(sums[u], j, first + u * step);
        for (; first < stop; first += step) body.template operator()<M>(sums[0], j, first);
      });
#pragma GCC unroll 8
  for (int u = 1; u < U; u++) sums[0].add(sums[u]);
  return sums[0];
}

// One loop of a row. The sums, or false where this phase ends with it.
template <class Reduced, int U, int N, int LOOP, int PIECES, int BYTES, class Sums, class Body>
INLINE bool loop(int phase, long piece, char* partials, Sums& sums, const Body& body) {
  constexpr long total = all_steps<Reduced>();
  if constexpr (PIECES == 1) {
    sums = reduce<Reduced, U, N, Sums>(0, total, body);
    sums.across();
    return true;
  } else {
    if (phase == LOOP) {
      Sums part =
          reduce<Reduced, U, N, Sums>(total * piece / PIECES, total * (piece + 1) / PIECES, body);
      part.across();
      if constexpr (BYTES > 0) __builtin_memcpy(partials + piece * BYTES, &part, sizeof part);
      return false;
    }
    static_assert(BYTES == 0 || sizeof(Sums) <= BYTES);
    if constexpr (BYTES > 0)
      for (int p = 0; p < PIECES; p++) {
        Sums part;
        __builtin_memcpy(&part, partials + p * BYTES, sizeof part);
        sums.add(part);
      }
    return true;
  }
}

// The sums of columns that CHUNKS chunks left BYTES apart, registers [begin, end) of them. With ACROSS the lanes are neighbours in a
// row whose last axis has EXTENT elements, and what is left of its last register is empty; else they are rows.
template <class T, int CHUNKS, long BYTES, long EXTENT, bool ACROSS>
INLINE void add_columns(const char* partials, T* output, long begin, long end) {
  constexpr long run = (EXTENT + W - 1) / W;
  for (long j = begin; j < end; j++) {
    const char* part = partials + j * W * sizeof(T);
    vec<T> sum = load<W, 1>((const T*)part);
    for (int chunk = 1; chunk < CHUNKS; chunk++) sum = sum + load<W, 1>((const T*)(part += BYTES));
    if constexpr (!ACROSS) output[j] = lanesum(sum);
    else if (EXTENT % W == 0 || j % run < run - 1)
      store<W, 1>(output + j / run * EXTENT + j % run * W, sum);
    else store<most(EXTENT % W, 1), 1>(output + j / run * EXTENT + j % run * W, sum);
  }
}

// The rows with numbers [begin, end) by kept register; the body is called with the kept indices and the number.
template <class Kept, class Body> INLINE void rows(long begin, long end, const Body& body) {
  pointwise<Kept>(begin, end,
                  [&]<int N>(const long* outer, long first, long stop)
                      __attribute__((always_inline)) {
                        constexpr int last = Kept::RANK - 1, step = Kept::LANE == last ? W : 1;
                        long i[Kept::RANK];
                        for (int d = 0; d < last; d++) i[d] = outer[d];
                        for (; first < stop; first += step) {
                          i[last] = first;
                          long row = 0;
                          for (int d = 0; d < Kept::RANK; d++)
                            row = row * steps<Kept>(d) + (d == Kept::LANE ? i[d] / W : i[d]);
                          body.template operator()<N>(i, row);
                        }
                      });
}
}  // namespace graphc
