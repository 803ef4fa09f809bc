// prefix: running results along one axis.
//
// A state holds what a register's worth of elements have come to: `value`, for extremes also `place`. of(value, place) is that of one
// element, join(a, b) that of a's elements and then b's; it is associative. each(a, b, f) is f of each register. A kernel's text has
// the struct. Where the lanes hold neighbouring rows, each step joins one register to the state.
// Where they lie along the axis, a register is first scanned by itself, log2(W) joins of shifted copies that no other register
// waits for, and then joined to the carry.
//
// `Kept` is the domain of the rows (see pointwise.h). A strip is U registers of neighbouring rows, so that each step reads a long
// run of memory. Where strips are too few to make chunks, the axis is cut into PIECES: phase 0 stores what each comes to, phase 1
// joins those before its own in ascending order and goes on from there.
#pragma once
#include "cpu/pointwise/pointwise.h"
#include "cpu/shared/transpose.h"

namespace graphc {
template <bool REVERSE, int S, class V, int... L> INLINE V shifted(V v, V none, Lanes<L...>) {
  return shuffle(v, none,
                 Lanes<(REVERSE ? (L + S < W ? L + S : W + L) : (L >= S ? L - S : W + L))...>{});
}
template <int FROM, class V, int... L> INLINE V repeated(V v, Lanes<L...>) {
  return shuffle(v, v, Lanes<(L * 0 + FROM)...>{});
}

// Each lane joins those before it, at the distances S, 2 S, ...
template <bool REVERSE, int S = 1, class State> INLINE State across(State state) {
  if constexpr (S >= W) return state;
  else {
    const State before =
        State::each(state, State{}, [](auto v, auto none) __attribute__((always_inline)) {
          return shifted<REVERSE, S>(v, none, AllLanes{});
        });
    return across<REVERSE, 2 * S>(State::join(before, state));
  }
}

// Steps [begin, end) of U registers of rows.
template <class State, bool REVERSE, long EXTENT, int U, class Element, class Write>
INLINE void down(long begin, long end, State (&states)[U], const Element& read,
                 const Write& write) {
  for (long step = begin; step < end; step++) {
    const long j = REVERSE ? EXTENT - 1 - step : step;
#pragma GCC unroll 16
    for (int u = 0; u < U; u++) {
      states[u] = State::join(states[u], State::of(read(u, j), splat(int32_t(j))));
      write(u, j, states[u]);
    }
  }
}

// Steps [begin, end) of one row, whose elements lie in the lanes.
template <class State, bool REVERSE, long EXTENT, class Element, class Write>
INLINE void along(long begin, long end, State& carry, const Element& read, const Write& write) {
  constexpr long last = (EXTENT + W - 1) / W - 1;
  constexpr int rest = EXTENT % W;
  auto step = [&]<int M>(long j) __attribute__((always_inline)) {
    State state = State::of(read.template operator()<M>(j), splat(int32_t(j)) + lanes());
    if constexpr (M < W)
      state = State::each(state, State{}, [](auto v, auto none) __attribute__((always_inline)) {
        return keep<M>(v, none);
      });
    state = State::join(carry, across<REVERSE>(state));
    write.template operator()<M>(j, state);
    carry = State::each(state, state, [](auto v, auto) __attribute__((always_inline)) {
      return repeated<REVERSE ? 0 : W - 1>(v, AllLanes{});
    });
  };
  for (long s = begin; s < end; s++) {
    const long r = REVERSE ? last - s : s;
    if (rest && r == last) step.template operator()<rest ? rest : W>(r * W);
    else step.template operator()<W>(r * W);
  }
}

// Body<U, N>(i, r, number) for the registers of strips [begin, end): U of them from index r of the last kept axis on, N of whose
// lanes are live; `number` counts registers.
template <class Kept, int U, class Body> INLINE void strips(long begin, long end,
                                                            const Body& body) {
  constexpr int last = Kept::RANK - 1, width = Kept::LANE < 0 ? 1 : W;
  constexpr long extent = Kept::EXTENT[last],
                 length = most((extent + U * width - 1) / (U * width), 1);
  for (long strip = begin; strip < end; strip++) {
    long i[Kept::RANK], outer = strip / length, r = strip % length * U * width, number = strip * U;
    for (int d = last - 1; d >= 0; d--) {
      i[d] = outer % most(Kept::EXTENT[d], 1);
      outer /= most(Kept::EXTENT[d], 1);
    }
    if constexpr (Kept::LANE < 0) body.template operator()<1, W>(i, r, number);
    else {
      if (r + U * W <= extent) {
        body.template operator()<U, W>(i, r, number);
        continue;
      }
      for (; r + W <= extent; r += W) body.template operator()<1, W>(i, r, number++);
      if constexpr (extent % W != 0) body.template operator()<1, extent % W>(i, r, number);
    }
  }
}

// Unit: a strip, or a piece of one. read<M>(i, r, j) gives a register of elements, write<M>(i, r, j, state) stores one.
template <class Kept, class State, bool REVERSE, long EXTENT, int U, int PIECES, class Read,
          class Write>
INLINE void prefix(long begin, long end, int phase, long piece, char* workspace, const Read& read,
                   const Write& write) {
  constexpr bool in_lanes = Kept::LANE < 0;
  constexpr long total = in_lanes ? (EXTENT + W - 1) / W : EXTENT;
  strips<Kept, U>(
      begin, end,
      [&]<int R, int N>(const long* i, long r, long number) __attribute__((always_inline)) {
        const long first = total * piece / PIECES, stop = total * (piece + 1) / PIECES;
        State states[R];
        State* const partials = (State*)workspace + number * PIECES;
        auto run = [&](const auto& store) __attribute__((always_inline)) {
          if constexpr (in_lanes)
            along<State, REVERSE, EXTENT>(
                first, stop, states[0],
                [&]<int M>(long j)
                    __attribute__((always_inline)) { return read.template operator()<M>(i, r, j); },
                [&]<int M>(long j, const State& s)
                    __attribute__((always_inline)) { store.template operator()<M>(0, j, s); });
          else
            down<State, REVERSE, EXTENT>(
                first, stop, states,
                [&](int u, long j) __attribute__((always_inline)) {
                  return read.template operator()<N>(i, r + u * W, j);
                },
                [&](int u, long j, const State& s)
                    __attribute__((always_inline)) { store.template operator()<N>(u, j, s); });
        };
        if (PIECES > 1 && phase == 0) {
          run([]<int M>(int, long, const State&) __attribute__((always_inline)) {});
          for (int u = 0; u < R; u++)
            __builtin_memcpy(partials + u * PIECES + piece, states + u, sizeof(State));
          return;
        }
        for (int u = 0; u < R; u++)
          for (long p = 0; p < (PIECES > 1 ? piece : 0); p++) {
            State part;
            __builtin_memcpy(&part, partials + u * PIECES + p, sizeof part);
            states[u] = State::join(states[u], part);
          }
        run([&]<int M>(int u, long j, const State& s) __attribute__((always_inline)) {
          write.template operator()<M>(i, r + u * W, j, s);
        });
      });
}
}  // namespace graphc
