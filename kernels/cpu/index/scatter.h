// scatter: elements stored at the positions that indices name.
//
// Memory is seen as [A][axis][B]. A unit is one index of A and STRIP neighbours of B: it copies its part of the old contents, unless
// they lie in place, and then goes through the indices in ascending order, so that nothing is shared and the order never changes.
#pragma once
#include "cpu/index/index.h"

namespace graphc {
struct ScatterReplace {
  template <class T> INLINE static T join(T, T b) { return b; }
};
struct ScatterSum {
  template <class T> INLINE static T join(T a, T b) { return a + b; }
};
struct ScatterProd {
  template <class T> INLINE static T join(T a, T b) { return a * b; }
};
// NaN in either argument is the result.
struct ScatterMax {
  template <class T> INLINE static T join(T a, T b) { return a > b || a != a ? a : b; }
};
struct ScatterMin {
  template <class T> INLINE static T join(T a, T b) { return a < b || a != a ? a : b; }
};

// Units [begin, end). old(a, j, b), place(a, i, b) and source(a, i, b) read an element; with `in_place` the old contents are in `out`.
template <class Join, long EXTENT, long COUNT, long B, long STRIP, class T, class Old, class Place,
          class Source>
INLINE void scatter(long begin, long end, bool in_place, T* out, const Old& old, const Place& place,
                    const Source& source) {
  constexpr long strips = (B + STRIP - 1) / STRIP;
  for (long unit = begin; unit < end; unit++) {
    const long a = unit / strips, first = unit % strips * STRIP, last = least(first + STRIP, B);
    T* const rows = out + a * EXTENT * B;
    for (long j = 0; j < (in_place ? 0 : EXTENT); j++)
      for (long b = first; b < last; b++) rows[j * B + b] = old(a, j, b);
    for (long i = 0; i < COUNT; i++)
      for (long b = first; b < last; b++) {
        const long j = place(a, i, b);
        if (j < 0 || j >= EXTENT) continue;
        rows[j * B + b] = Join::join(rows[j * B + b], source(a, i, b));
      }
  }
}
}  // namespace graphc
