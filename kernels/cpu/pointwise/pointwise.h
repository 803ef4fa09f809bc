// pointwise: straight-line code over an index space, register by register.
//
// A Domain is a struct of constexpr extents: EXTENT per axis (slowest first), RANK of them, and LANE, the axis that lies in the
// lanes; its index steps by W. Steps are counted over all axes, the last fastest. A body is called with the indices of the outer
// axes and a run [first, stop) of the last one; its template argument is the number of live lanes.
#pragma once
#include "cpu/shared/elementary.h"
#include "cpu/shared/random.h"
#include "cpu/shared/special.h"
#include "cpu/shared/window.h"

namespace graphc {
// A piece of a chunk: steps [begin, end) of one part of the kernel, whose arguments are named by slots.
struct Piece {
  void (*part)(void* const* arguments, const short* slots, long begin, long end);
  const short* slots;
  long begin, end;
};

template <class D> constexpr long steps(int axis) {
  return axis == D::LANE ? (D::EXTENT[axis] + W - 1) / W : D::EXTENT[axis];
}
template <class D> constexpr long all_steps() {
  long product = 1;
  for (int d = 0; d < D::RANK; d++) product *= steps<D>(d);
  return product;
}

// LANE is -1 where the lanes belong to another domain, of whose elements N are live.
template <class D, int N = W, class Body> INLINE void pointwise(long begin, long end,
                                                                const Body& body) {
  constexpr int last = D::RANK - 1;
  constexpr long extent = D::LANE < 0 ? W : D::EXTENT[most(D::LANE, 0)], rest = extent % W,
                 full = extent / W;
  constexpr int live = D::LANE < 0 ? N : W, tail = rest ? rest : live;
  constexpr long length = most(steps<D>(last), 1);
  while (begin < end) {
    long i[D::RANK], outer = begin / length;
    const long first = begin % length, stop = least(length, first + end - begin);
    for (int d = last - 1; d >= 0; d--) {
      i[d] = outer % most(steps<D>(d), 1) * (d == D::LANE ? W : 1);
      outer /= most(steps<D>(d), 1);
    }
    if constexpr (D::LANE == last) {
      if (full && first < full) body.template operator()<live>(i, first * W, least(stop, full) * W);
      if (rest && stop > full) body.template operator()<tail>(i, full * W, extent);
    } else {
      if (rest && i[most(D::LANE, 0)] == full * W) body.template operator()<tail>(i, first, stop);
      else body.template operator()<live>(i, first, stop);
    }
    begin += stop - first;
  }
}

// One axis of any extent, [begin, end) of its elements: what parts that differ in nothing but their size share.
template <class Body> INLINE void pointwise(long begin, long end, const Body& body) {
  const long full = begin + (end - begin) / W * W;
  body.template operator()<W>(nullptr, begin, full);
  body.template operator()<1>(nullptr, full, end);
}
}  // namespace graphc
