// Sums, products and extremes of rows in scratch memory, in the order stated (reduce.h).
#pragma once
#include "cpu/shared/simd.h"

namespace graphc::sums {
enum Combine : int32_t { SUM, PROD, MAX, MIN };

template <Combine C, class V> INLINE V join(V a, V b) {
  if constexpr (C == SUM) return a + b;
  else if constexpr (C == PROD) return a * b;
  else if constexpr (C == MAX) return maximum(a, b);
  else return minimum(a, b);
}
template <class T> constexpr T lowest() {
  if constexpr (T(0.5) != 0) return -T(__builtin_inff());
  else return T(-1) > T(0) ? T(0) : T(T(1) << (8 * sizeof(T) - 1));
}
template <class T> constexpr T greatest() {
  if constexpr (T(0.5) != 0) return T(__builtin_inff());
  else return T(-1) > T(0) ? T(-1) : T(~(T(1) << (8 * sizeof(T) - 1)));
}
template <Combine C, class T> constexpr T neutral() {
  return C == SUM ? T(0) : C == PROD ? T(1) : C == MAX ? lowest<T>() : greatest<T>();
}
template <Combine C, class V> INLINE element<V> across(V v) {
  if constexpr (C == SUM) return lanesum(v);
  else
    return graphc::across(v, [](element<V> a, element<V> b) {
      if constexpr (C == PROD) return element<V>(a * b);
      else if constexpr (C == MAX) return a > b || a != a ? a : b;
      else return a < b || a != a ? a : b;
    });
}
// What has functions of its own for few chains.
template <Combine C, class T> constexpr bool common = __is_same(T, float) && (C == SUM || C == MAX);
constexpr int MOST = 64;  // sums that terms are added to in turn, at most

// Adds `registers` registers, `step` elements from each to the next, to CHAINS sums in turn, from sum
// `first` on.
template <Combine C, class T, int CHAINS>
void in_turn(vec<T>* sums, const T* x, long step, long registers, int first) {
  for (; registers && first; registers--, x += step) {
    sums[first] = join<C>(sums[first], load(x));
    first = (first + 1) % CHAINS;
  }
  vec<T> own[CHAINS];
#pragma GCC unroll 16
  for (int c = 0; c < CHAINS; c++) own[c] = sums[c];
  for (; registers >= CHAINS; registers -= CHAINS, x += CHAINS * step)
#pragma GCC unroll 16
    for (int c = 0; c < CHAINS; c++) own[c] = join<C>(own[c], load(x + c * step));
#pragma GCC unroll 16
  for (int c = 0; c < CHAINS; c++) sums[c] = own[c];
  for (int c = 0; c < registers; c++) sums[c] = join<C>(sums[c], load(x + c * step));
}
template <Combine C, class T>
INLINE void add(vec<T>* sums, int chains, const T* x, long step, long registers, int first) {
  if constexpr (common<C, T>) {
    if (chains == 16 / W) return in_turn<C, T, 16 / W>(sums, x, step, registers, first);
    if (chains == 32 / W) return in_turn<C, T, 32 / W>(sums, x, step, registers, first);
    if (chains == 64 / W) return in_turn<C, T, 64 / W>(sums, x, step, registers, first);
  }
  for (long r = 0; r < registers; r++, x += step) {
    sums[first] = join<C>(sums[first], load(x));
    if (++first == chains) first = 0;
  }
}
// The upper half to the lower one until one is left.
template <Combine C, class V> INLINE V halved(V* sums, int count) {
  for (int half = count / 2; half; half /= 2)
    for (int c = 0; c < half; c++) sums[c] = join<C>(sums[c], sums[c + half]);
  return sums[0];
}

// Joins to results[r] what the registers of row r give, `pitch` elements from one row to the next: the
// same as add() to sums that are neutral, which are then joined.
template <Combine C, class T, int CHAINS>
void whole_rows(const T* x, long pitch, long step, long registers, T* results, long rows) {
  for (long r = 0; r < rows; r++, x += pitch) {
    vec<T> own[CHAINS];
#pragma GCC unroll 16
    for (int c = 0; c < CHAINS; c++) own[c] = splat(neutral<C, T>());
    const T* at = x;
    long left = registers;
    for (; left >= CHAINS; left -= CHAINS)
#pragma GCC unroll 16
      for (int c = 0; c < CHAINS; c++, at += step) own[c] = join<C>(own[c], load(at));
#pragma GCC unroll 16
    for (int c = 0; c < CHAINS; c++)
      if (c < left) own[c] = join<C>(own[c], load(at + c * step));
    results[r] = join<C>(splat(results[r]), splat(across<C>(halved<C>(own, CHAINS))))[0];
  }
}

// Rows beside each other: term i of a run of row r at x[i * pitch + r], as many as `length`. From number
// `first` on they are added to sums[c * sums_pitch + r], c their number modulo `chains`.
template <Combine C, class T, int CHAINS>
void beside(T* sums, long sums_pitch, int chains, const T* x, long pitch, long rows, long length,
            long first) {
  if (CHAINS) chains = CHAINS;
  for (long r = 0; r < rows; r += W) {
    vec<T> own[CHAINS ? CHAINS : MOST];
    for (int c = 0; c < chains; c++) own[c] = load(sums + c * sums_pitch + r);
    const T* at = x + r;
    long i = 0;
    int c = int(first % chains);
    if (CHAINS && c == 0)
      for (; i + CHAINS <= length; i += CHAINS)
#pragma GCC unroll 4
        for (int k = 0; k < CHAINS; k++, at += pitch) own[k] = join<C>(own[k], load(at));
    for (; i < length; i++, at += pitch) {
      own[c] = join<C>(own[c], load(at));
      if (++c == chains) c = 0;
    }
    for (int c = 0; c < chains; c++) store(sums + c * sums_pitch + r, own[c]);
  }
}
}  // namespace graphc::sums
