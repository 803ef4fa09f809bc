// Elements of strips from and to memory where they do not lie next to each other.
#pragma once
#include "cpu/shared/simd.h"
#include "prebuilt/layout.h"

namespace graphc::strips {
template <class T> void gather(const Lines& own, char* result, long n) {
  const long stride = own.levels[0].stride;
  T* const to = (T*)result;
  each_run(own, n, [&](long address, long k, long count) __attribute__((always_inline)) {
    const char* from = (const char*)address;
    if (stride == sizeof(T)) {
      if (count * sizeof(T) >= 64) __builtin_memcpy(to + k, from, count * sizeof(T));
      else
        for (long i = 0; i < count; i++) to[k + i] = ((const T*)from)[i];
    } else if (stride == 0) {
      const T x = *(const T*)from;
      for (long i = 0; i < count; i++) to[k + i] = x;
    } else
      for (long i = 0; i < count; i++, from += stride) to[k + i] = *(const T*)from;
  });
}
template <class T> void scatter(const Lines& own, const char* value, long n) {
  const long stride = own.levels[0].stride;
  const T* const from = (const T*)value;
  each_run(own, n, [&](long address, long k, long count) __attribute__((always_inline)) {
    char* to = (char*)address;
    if constexpr (sizeof(T) == 4)
      if (own.padding &&
          stride == 4) {  // a block of lanes; behind a strip there is a register more
        for (long i = 0; i < count + own.padding; i += W) {
          const auto x = load((const int32_t*)from + k + i);
          store((int32_t*)to + i, select(as_mask(lanes() < int(count - i)), x, vec<int32_t>{}));
        }
        return;
      }
    if (stride == sizeof(T)) {
      if (count * sizeof(T) >= 64) __builtin_memcpy(to, from + k, count * sizeof(T));
      else
        for (long i = 0; i < count; i++) ((T*)to)[i] = from[k + i];
    } else
      for (long i = 0; i < count; i++) *(T*)(to + i * stride) = from[k + i];
    if (own.padding) __builtin_memset(to + count * sizeof(T), 0, own.padding * sizeof(T));
  });
}
// The same element in a whole register.
template <class T> INLINE void fill(T* to, T x) {
  if constexpr (sizeof(T) == 4) store((int32_t*)to, splat(int32_t(x)));
  else
    for (int l = 0; l < W; l++) to[l] = x;
}
template <class T> void spread(const Lines& own, char* result) {
  fill((T*)result, *(const T*)own.here);
}

// The element of each row in a register of its own.
template <class T> void spread_rows(const Lines& own, char* result, long rows) {
  const char* from = (const char*)own.here;
  for (long r = 0; r < rows; r++, from += own.levels[1].stride)
    fill((T*)result + r * W, *(const T*)from);
}

// Calls f<T>(arguments...) with an integer type of `bytes`.
#define GRAPHC_BY_SIZE(bytes, f, ...)              \
  do {                                             \
    if (bytes == 4) f<uint32_t>(__VA_ARGS__);      \
    else if (bytes == 8) f<uint64_t>(__VA_ARGS__); \
    else if (bytes == 2) f<uint16_t>(__VA_ARGS__); \
    else f<uint8_t>(__VA_ARGS__);                  \
  } while (0)
}  // namespace graphc::strips
