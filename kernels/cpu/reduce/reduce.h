// reduce: for each kept index, loops over the reduced axes.
//
// The generator prints a struct of sums per loop (`Sums`: registers, `add` to join two, `across` to join the lanes where they are
// reduced) and the body of the loop. Domains are those of pointwise.h: `Kept` for the rows, `Reduced` for a row's elements.
//
// An Order says which sum takes a register: CHAINS take those along the last reduced axis in turn, and GROUPS of these chains the
// blocks of a lane axis in front of it. Chains, groups and lanes are added by halves. A row has PARTS, of STEPS of REGISTERS each,
// whose sums are added in ascending order. Where the rows are too few to make chunks, a row has several workers (PIECES of its
// parts), and the sums of parts lie in the workspace until the next phase adds them.
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

// Adds the upper half of SUMS sums to the lower one until one is left. Those from LIVE on are empty.
template <int SUMS, int LIVE, class Sums> INLINE void add_halves(Sums* sums) {
  if constexpr (SUMS > 1) {
    constexpr int half = SUMS / 2;
#pragma GCC unroll 16
    for (int k = 0; k < least(half, LIVE - half); k++) sums[k].add(sums[k + half]);
    add_halves<half, least(half, LIVE)>(sums);
  }
}

// Adds a run [first, stop) of the last axis, which begins with chain 0, to the sums of its chains: to all of them side by side in
// registers if TOGETHER is CHAINS, else to so many at a time in memory. It ends with a round of the chains or REST registers later.
template <int CHAINS, int TOGETHER, int REST, int STEP, int M, class Sums, class Body>
INLINE void run(Sums* sums, const long* j, long first, long stop, const Body& body) {
  if constexpr (TOGETHER < CHAINS) {
    for (; first + (TOGETHER - 1) * STEP < stop; first += TOGETHER * STEP)
#pragma GCC unroll 16
      for (int u = 0; u < TOGETHER; u++)
        body.template operator()<M>(sums[first / STEP % CHAINS + u], j, first + u * STEP);
    for (; first < stop; first += STEP)
      body.template operator()<M>(sums[first / STEP % CHAINS], j, first);
  } else {
    for (; first + (CHAINS - 1) * STEP < stop; first += CHAINS * STEP)
#pragma GCC unroll 16
      for (int u = 0; u < CHAINS; u++) body.template operator()<M>(sums[u], j, first + u * STEP);
    if constexpr (REST > 0)
      if (first < stop)
#pragma GCC unroll 16
        for (int u = 0; u < REST; u++) body.template operator()<M>(sums[u], j, first + u * STEP);
  }
}

// A loop without sums has no chains.
template <class Order> struct Plain : Order {
  static constexpr int CHAINS = 1, GROUPS = 1;
};

// The registers from one index of an axis to the next.
template <class D> constexpr long registers_behind(int axis) {
  long product = 1;
  for (int d = axis + 1; d < D::RANK; d++) product *= steps<D>(d);
  return product;
}

// The sums of registers [begin, end) of a row.
template <class Reduced, class Order, int TOGETHER, int N, class Sums, class Body>
INLINE Sums reduce(long begin, long end, const Body& body) {
  constexpr int last = Reduced::RANK - 1, U = Order::CHAINS, G = Order::GROUPS;
  constexpr bool across = Reduced::LANE == last;
  constexpr int step = across ? W : 1;
  constexpr long full = Reduced::EXTENT[last] / step;  // what is left takes the next chain
  constexpr int live = least(U, most(steps<Reduced>(last), 1));
  const auto add = [&](Sums* sums, long first, long stop) __attribute__((always_inline)) {
    pointwise<Reduced, N>(
        first, stop, [&]<int M>(const long* j, long i, long end) __attribute__((always_inline)) {
          if constexpr (across && M < W) body.template operator()<M>(sums[full % U], j, i);
          else if constexpr (full < U && TOGETHER == U)
            run<most(full, 1), most(full, 1), 0, step, M>(sums, j, i, end, body);
          else run<U, TOGETHER, full % U, step, M>(sums, j, i, end, body);
        });
  };
  if constexpr (G == 1) {
    Sums sums[live];
    add(sums, begin, end);
    add_halves<U, live>(sums);
    return sums[0];
  } else {
    constexpr long block = registers_behind<Reduced>(Reduced::LANE),
                   blocks = steps<Reduced>(Reduced::LANE);
    Sums groups[G];
    for (int group = 0; group < G; group++) {
      Sums sums[live];
      for (long first = begin; first < end; first += block)
        if (first / block % blocks % G == group) add(sums, first, first + block);
      add_halves<U, live>(sums);
      groups[group] = sums[0];
    }
    add_halves<G, G>(groups);
    return groups[0];
  }
}

// The first register of a part.
template <class Reduced, class Order> constexpr long part_begin(long part) {
  return least(part * Order::STEPS / Order::PARTS * Order::REGISTERS, all_steps<Reduced>());
}

// One loop of a row. The sums, or false where this phase ends with it.
template <class Reduced, class Order, int TOGETHER, int N, int LOOP, int PIECES, int BYTES,
          class Sums, class Body>
INLINE bool loop(int phase, long piece, char* partials, Sums& sums, const Body& body) {
  constexpr int parts = Order::PARTS;
  const auto part = [&](long p) __attribute__((always_inline)) {
    Sums found = reduce<Reduced, Order, TOGETHER, N, Sums>(part_begin<Reduced, Order>(p),
                                                           part_begin<Reduced, Order>(p + 1), body);
    found.across();
    return found;
  };
  if constexpr (PIECES == 1) {
    if constexpr (parts == 1) sums = part(0);
    else
      for (int p = 0; p < parts; p++) sums.add(part(p));
    return true;
  } else {
    if (phase == LOOP) {
      for (long p = piece * parts / PIECES; p < (piece + 1) * parts / PIECES; p++) {
        const Sums found = part(p);
        if constexpr (BYTES > 0) __builtin_memcpy(partials + p * BYTES, &found, sizeof found);
      }
      return false;
    }
    static_assert(BYTES == 0 || sizeof(Sums) <= BYTES);
    if constexpr (BYTES > 0)
      for (int p = 0; p < parts; p++) {
        Sums found;
        __builtin_memcpy(&found, partials + p * BYTES, sizeof found);
        sums.add(found);
      }
    return true;
  }
}

// The sums of columns that PARTS parts left BYTES apart, registers [begin, end) of them. With ACROSS the lanes are neighbours in a
// row whose last axis has EXTENT elements, and what is left of its last register is empty. Else they are rows, in GROUPS registers
// that lie SET elements apart.
template <class T, int PARTS, long BYTES, long EXTENT, bool ACROSS, int GROUPS, long SET>
INLINE void add_columns(const char* partials, T* output, long begin, long end) {
  constexpr long run = (EXTENT + W - 1) / W;
  for (long j = begin; j < end; j++) {
    const T* part = (const T*)(partials + j * W * sizeof(T));
    if constexpr (ACROSS) {
      vec<T> sum = load<W, 1>(part);
      for (int p = 1; p < PARTS; p++)
        sum = sum + load<W, 1>((const T*)((const char*)part + p * BYTES));
      if (EXTENT % W == 0 || j % run < run - 1)
        store<W, 1>(output + j / run * EXTENT + j % run * W, sum);
      else store<most(EXTENT % W, 1), 1>(output + j / run * EXTENT + j % run * W, sum);
    } else {
      T sum = 0;
      for (int p = 0; p < PARTS; p++) {
        vec<T> groups[GROUPS];
        for (int g = 0; g < GROUPS; g++)
          groups[g] = load<W, 1>((const T*)((const char*)part + p * BYTES) + g * SET);
        for (int half = GROUPS / 2; half; half /= 2)
          for (int g = 0; g < half; g++) groups[g] = groups[g] + groups[g + half];
        sum += lanesum(groups[0]);
      }
      output[j] = sum;
    }
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
