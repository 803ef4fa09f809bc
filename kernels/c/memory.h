// Places in memory, reads at positions given as data, and counter-based random numbers, in plain C.
// Macros take the template arguments of the CPU's functions first: S, the elements from one lane to
// the next, is without meaning here, and `at` is the place before the division by D.
#pragma once
#include "c/numbers.h"

// An element of memory as a number.
#define GRAPHC_TYPES(F) \
  F(bool, bool)         \
  F(uint8_t, u8) F(int8_t, i8) F(int32_t, i32) F(int64_t, i64) F(float, f32) F(double, f64)
#define GRAPHC_VALUE(T, S) \
  static inline T value_##S(T x) { return x; }
GRAPHC_TYPES(GRAPHC_VALUE)
#undef GRAPHC_VALUE
#define GRAPHC_TYPED(name, x) \
  _Generic((x),               \
      bool: name##_bool,      \
      uint8_t: name##_u8,     \
      int8_t: name##_i8,      \
      int32_t: name##_i32,    \
      int64_t: name##_i64,    \
      float: name##_f32,      \
      double: name##_f64,     \
      half: decode_half,      \
      bfloat: decode_bfloat)
#define value(x) GRAPHC_TYPED(value, x)(x)

#define iota(T, S, D, at) convert(T, (at) / (D))
// Whether `at` is a multiple of D in [0, HIGH).
#define inside(S, HIGH, D, at) ((at) >= 0 && (at) < (HIGH) && (at) % (D) == 0)

// The element of a table at `index`, of elements that are STRIDE apart; 0 where the condition does not hold or there is none.
#define take(S, D, STRIDE, EXTENT, UNIFORM, condition, table, at, index) \
  ((condition) && (int64_t)(index) >= 0 && (int64_t)(index) < (EXTENT)   \
       ? value((table)[(at) / (D) + (int64_t)(index) * (STRIDE)])        \
       : 0)

// How many of EXTENT ascending elements are less than x (or equal, if RIGHT); NaN is larger than anything.
#define GRAPHC_SEARCH(T, S)                                                                  \
  static inline int64_t search_##S(const T* row, int64_t stride, int64_t extent, bool right, \
                                   T x) {                                                    \
    int64_t low = 0, high = extent;                                                          \
    while (low < high) {                                                                     \
      const int64_t middle = (low + high) / 2;                                               \
      const T y = row[middle * stride];                                                      \
      const bool before = right ? y <= x || x != x : y < x || (x != x && y == y);            \
      low = before ? middle + 1 : low;                                                       \
      high = before ? high : middle;                                                         \
    }                                                                                        \
    return low;                                                                              \
  }
GRAPHC_TYPES(GRAPHC_SEARCH)
#undef GRAPHC_SEARCH
#define search(S, D, STRIDE, EXTENT, RIGHT, condition, table, at, x)                              \
  ((condition) ? GRAPHC_TYPED(search, (table)[0])((table) + (at) / (D), STRIDE, EXTENT, RIGHT, x) \
               : 0)

// Puts the places of n elements in the order of these, NaN last, or in the opposite one; equal ones stay in order. `spare` has room for n.
#define GRAPHC_SORT(T, S)                                                                \
  static inline void sort_##S(const T* row, int32_t* places, int32_t* spare, int64_t n,  \
                              bool descending) {                                         \
    for (int64_t k = 0; k < n; k++) places[k] = (int32_t)k;                              \
    for (int64_t width = 1; width < n; width *= 2) {                                     \
      for (int64_t first = 0; first < n; first += 2 * width) {                           \
        const int64_t middle = least(first + width, n), stop = least(middle + width, n); \
        int64_t a = first, b = middle;                                                   \
        for (int64_t k = first; k < stop; k++) {                                         \
          const T x = row[places[least(a, n - 1)]], y = row[places[least(b, n - 1)]];    \
          const bool before =                                                            \
              descending ? y > x || (y != y && x == x) : y < x || (x != x && y == y);    \
          spare[k] = a == middle || (b < stop && before) ? places[b++] : places[a++];    \
        }                                                                                \
      }                                                                                  \
      memcpy(places, spare, (size_t)n * sizeof *places);                                 \
    }                                                                                    \
  }
GRAPHC_TYPES(GRAPHC_SORT)
#undef GRAPHC_SORT
#define sort(row, places, spare, n, descending) \
  GRAPHC_TYPED(sort, (row)[0])(row, places, spare, n, descending)

// Philox4x32-10, a word of four, as a float in [0, 1). Key (seed, number), counter (index low, index high, step, 0).
static inline float philox(uint32_t seed, uint32_t number, uint32_t step, uint64_t index,
                           uint32_t word) {
  uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32), c2 = step, c3 = 0;
  for (int round = 0; round < 10; round++) {
    const uint64_t first = (uint64_t)0xD2511F53u * c0, second = (uint64_t)0xCD9E8D57u * c2;
    c0 = (uint32_t)(second >> 32) ^ c1 ^ seed;
    c1 = (uint32_t)second;
    c2 = (uint32_t)(first >> 32) ^ c3 ^ number;
    c3 = (uint32_t)first;
    seed += 0x9E3779B9u;
    number += 0xBB67AE85u;
  }
  const uint32_t chosen = word == 0 ? c0 : word == 1 ? c1 : word == 2 ? c2 : c3;
  return (float)(chosen >> 8) * 0x1p-24f;
}
#define philox_uniform(S, D, seed, number, step, at, word) \
  philox(seed, number, (uint32_t)(step), (uint64_t)(at) / (D), word)
