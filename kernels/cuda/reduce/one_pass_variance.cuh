// one_pass_variance.cuh: sums of squared deviations from a mean in one pass, shifted by one of the
// elements (one_pass_variance.py derives their accuracy).
#pragma once
#include "cuda/shared/memory.cuh"

namespace graphc {

template <class T>
struct Deviations {
  T first, sum, squares, count;  // sum and squares of the differences from `first`, if any

  GRAPHC_INLINE void add(T x) {
    first = count == 0 ? x : first;
    const T difference = x - first;
    sum += difference;
    squares = fma(difference, difference, squares);
    count += 1;
  }
  GRAPHC_INLINE void add(const Deviations& other) {
    first = count == 0 ? other.first : first;
    const T difference = other.first - first;
    const T shift = fma(other.count, difference, 2 * other.sum);
    squares += fma(difference, shift, other.squares);
    sum += fma(other.count, difference, other.sum);
    count += other.count;
  }
  GRAPHC_INLINE explicit operator T() const {
    const T spread = fma(-sum, sum / count, squares);
    return spread < 0 ? T(0) : spread;  // not a number stays so
  }
};

}  // namespace graphc
