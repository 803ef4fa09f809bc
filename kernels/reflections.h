// Reflections of vectors, and what they make: QR, tridiagonal and bidiagonal matrices. On top of factorizations.h, whose teams and
// order of operations it keeps; the reference is graphc/ops/linear/reflections.py.
//
// Rows of matrices and vectors are `pitch` elements apart, with zeros in the gap, so that registers begin at multiples of LANES. A
// vector of a reflection has zeros before its place, so that it may be read from such a multiple on.
#pragma once
#include "factorizations.h"

namespace graphc::factors {
// Reflections whose products with a matrix are taken from the same matrix.
constexpr int BLOCK = 4;
template <bool B> struct Bool {
  static constexpr bool value = B;
};

// Element i is added in lane i % 16, lanes by halves.
template <class T> GRAPHC_FACTORS T dot(long n, const T* x, const T* y) {
  T sums[LANES] = {};
  long i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int l = 0; l < LANES; l++) sums[l] += x[i + l] * y[i + l];
  for (int l = 0; i + l < n; l++) sums[l] += x[i + l] * y[i + l];
  for (int half = LANES / 2; half > 0; half /= 2)
    for (int l = 0; l < half; l++) sums[l] += sums[l + half];
  return sums[0];
}

// The same from index `begin` on, where vectors have zeros before it.
template <class T> GRAPHC_FACTORS T dot_from(long begin, long n, const T* x, const T* y) {
  const long start = aligned(begin);
  return dot(n - start, x + start, y + start);
}

// Makes v, n elements of x and then zeros up to `pitch`, the vector of a reflection at a place: it takes v to (..., value, 0, ...).
// Returns value and the scale of I - scale v v^T.
template <class T> struct Reflection {
  T value, scale;
};
template <class Team, class T, class Read>
GRAPHC_FACTORS Reflection<T> reflection(const Team& team, long n, long pitch, long place, T* v,
                                        const Read& read) {
  team.each(0, pitch, [&](long i) { v[i] = i > place && i < n ? read(i) : T(0); });
  const T head = read(place);
  team.sync();
  const T tail = dot_from(place, pitch, v, v);
  team.sync();
  Reflection<T> found{head, 0};
  T divisor = 1;
  if (!(tail == 0)) {
    const T norm = root(head * head + tail);
    found.value = head < 0 ? norm : -norm;
    found.scale = (found.value - head) / found.value;
    divisor = head - found.value;
  }
  team.each(aligned(place), pitch, [&](long i) { v[i] = i == place ? T(1) : v[i] / divisor; });
  team.sync();
  return found;
}

// Vectors of reflections, number j from row place + j on, with their scales. Row j of products has what those before it in its block
// give with it.
template <class T> struct Reflections {
  long count, place, length;
  T *vectors, *scales, *products;
};

// Makes the products of vectors begin to end - 1.
template <class Team, class T>
GRAPHC_FACTORS void multiply(const Team& team, const Reflections<T>& all, long begin, long end) {
  team.each(begin, end, [&](long j) {
    const T* const vector = all.vectors + j * all.length;
    for (long h = j / BLOCK * BLOCK; h < j; h++)
      all.products[j * BLOCK + h % BLOCK] =
          dot_from(all.place + j, all.length, vector, all.vectors + h * all.length);
  });
  team.sync();
}

// Applies COUNT reflections from number `first` on, a multiple of BLOCK, to columns [begin, end) of rows [top, m) of a: the last one
// first if LAST_FIRST.
template <int COUNT, bool LAST_FIRST, class Team, class T>
GRAPHC_FACTORS void reflect(const Team& team, const Reflections<T>& all, long first, long top,
                            long m, long begin, long end, T* a, long pitch) {
  const auto place = [](int g) { return LAST_FIRST ? COUNT - 1 - g : g; };
  const T* const v = all.vectors + first * all.length;
  T products[COUNT][COUNT], scales[COUNT];
  GRAPHC_UNROLLED for (int g = 0; g < COUNT; g++) {
    scales[g] = all.scales[first + place(g)];
    GRAPHC_UNROLLED for (int h = 0; h < g; h++) {
      const int later = LAST_FIRST ? place(h) : g, earlier = LAST_FIRST ? place(g) : h;
      products[g][h] = all.products[(first + later) * BLOCK + earlier];
    }
  }
  team.template columns<T>(begin, end, [&](long k, const auto& lanes) {
    decltype(lanes.load(a)) sums[COUNT];
    GRAPHC_UNROLLED for (int g = 0; g < COUNT; g++) sums[g] = lanes.template zeros<T>();
    GRAPHC_ROLLED for (long i = top; i < m; i++) {
      const auto row = lanes.operand(a + i * pitch + k);
      GRAPHC_UNROLLED for (int g = 0; g < COUNT; g++) sums[g] += row * v[place(g) * all.length + i];
    }
    GRAPHC_UNROLLED for (int g = 0; g < COUNT; g++) {
      GRAPHC_UNROLLED for (int h = 0; h < g; h++) sums[g] = sums[g] - sums[h] * products[g][h];
      sums[g] *= scales[g];
    }
    GRAPHC_ROLLED for (long i = top; i < m; i++) {
      auto row = lanes.load(a + i * pitch + k);
      GRAPHC_UNROLLED for (int g = 0; g < COUNT; g++) row =
          row - sums[g] * v[place(g) * all.length + i];
      lanes.store(a + i * pitch + k, row);
    }
  });
}

// The same for `count` reflections, up to BLOCK.
template <bool LAST_FIRST, class Team, class T>
GRAPHC_FACTORS void reflect_some(const Team& team, const Reflections<T>& all, long first,
                                 long count, long m, long begin, long end, T* a, long pitch) {
  const long top = all.place + first;
  if (count == 4) reflect<4, LAST_FIRST>(team, all, first, top, m, begin, end, a, pitch);
  if (count == 3) reflect<3, LAST_FIRST>(team, all, first, top, m, begin, end, a, pitch);
  if (count == 2) reflect<2, LAST_FIRST>(team, all, first, top, m, begin, end, a, pitch);
  if (count == 1) reflect<1, LAST_FIRST>(team, all, first, top, m, begin, end, a, pitch);
}

// Applies reflections, the last one first, to a matrix [m][n], read(i, k), strip by strip in memory of m rows of a strip, and hands its
// elements to write(i, k, element). UPPER: the matrix is 0 below its diagonal, so that reflections from a row below leave a column as
// it is.
template <bool UPPER, class Team, class T, class Read, class Write>
GRAPHC_FACTORS void unfold(const Team& team, const Reflections<T>& all, long m, long n, long pitch,
                           T* memory, const Read& read, const Write& write) {
  const long strip = team.template strip<T>(pitch);
  for (long left = 0; left < n; left += strip) {
    const long width = least_of(strip, n - left), end = aligned(width + LANES - 1);
    load_transposed(team, m, width, end, memory, strip,
                    [&](long i, long k) { return read(i, left + k); });
    const long count = UPPER ? least_of(all.count, left + width) : all.count;
    for (long j = (count - 1) / BLOCK * BLOCK; j >= 0; j -= BLOCK)
      reflect_some<true>(team, all, j, least_of(BLOCK, all.count - j), m, 0, end, memory, strip);
    team.sync();
    for (long i = 0; i < m; i++)
      team.each(0, width, [&](long k) { write(i, left + k, memory[i * strip + k]); });
    team.sync();
  }
}

// R of a matrix [m][n], read(i, k), m >= n, in r [n][n], and the first n columns of Q in q [m][n]. memory has m rows of a strip.
template <class Team, class T, class Read>
GRAPHC_FACTORS void qr(const Team& team, const Reflections<T>& all, long m, long n, long pitch,
                       T* memory, const Read& read, T* q, T* r) {
  const long strip = team.template strip<T>(pitch);
  for (long left = 0; left < n; left += strip) {
    const long width = least_of(strip, n - left), end = aligned(width + LANES - 1);
    load(team, m, width, end, memory, strip, [&](long i, long k) { return read(i, left + k); });
    for (long first = 0; first < left; first += BLOCK)
      reflect<BLOCK, false>(team, all, first, first, m, 0, end, memory, strip);
    team.sync();
    for (long first = 0; first < width; first += BLOCK) {
      const long last = least_of(first + BLOCK, width);
      for (long c = first; c < last; c++) {
        const long j = left + c;
        const auto found = reflection(team, m, all.length, j, all.vectors + j * all.length,
                                      [&](long i) { return memory[i * strip + c]; });
        if (team.first()) memory[j * strip + c] = found.value, all.scales[j] = found.scale;
        team.sync();
        reflect<1, false>(team, all, j, j, m, c + 1, last, memory, strip);
        team.sync();
      }
      multiply(team, all, left + first, left + last);
      reflect_some<false>(team, all, left + first, last - first, m, last, end, memory, strip);
      team.sync();
    }
    for (long i = 0; i < n; i++)
      team.each(0, width,
                [&](long k) { r[i * n + left + k] = left + k < i ? T(0) : memory[i * strip + k]; });
    team.sync();
  }
  unfold<true>(
      team, all, m, n, pitch, memory, [](long i, long k) { return T(i == k); },
      [&](long i, long k, T x) { q[i * n + k] = x; });
}

// a[i] = a[i] - (v[i] * sums + sums[i] * v) for ROWS rows, if CHANGES; then adds next[i] * a[i] to totals, if ADDS.
template <int ROWS, bool CHANGES, class Team, class T>
GRAPHC_FACTORS void symmetric_rows(const Team& team, long i, long begin, long end, T* a, long pitch,
                                   const T* v, const T* sums, const T* next, T* totals) {
  team.template columns<T>(begin, end, [&](long k, const auto& lanes) {
    auto total = lanes.load(totals + k);
    auto x = total, y = total;
    if constexpr (CHANGES) x = lanes.operand(v + k), y = lanes.operand(sums + k);
    GRAPHC_UNROLLED for (int r = 0; r < ROWS; r++) {
      T* const place = a + (i + r) * pitch + k;
      auto row = lanes.load(place);
      if constexpr (CHANGES) {
        auto change = y * v[i + r];
        change += x * sums[i + r];
        row = row - change;
        lanes.store(place, row);
      }
      total += row * next[i + r];
    }
    lanes.store(totals + k, total);
  });
}

// a [n][n], symmetric, is Q T Q^T: T has d and, beside it, e; Q is of the n - 2 reflections with scales and v, [n][pitch], from row 1
// on. sums has two rows.
template <class Team, class T>
GRAPHC_FACTORS void tridiagonal(const Team& team, long n, T* a, long pitch, T* d, T* e, T* scales,
                                T* v, T* sums) {
  for (long j = 0; j < n; j++) {
    T* const row = a + j * pitch;
    const T* const last = v + (j - 1) * pitch;
    const T* const change = sums + (j + 1) % 2 * pitch;
    if (j > 0 && j < n - 1) {
      const T x = last[j], y = change[j];
      team.each(aligned(j), pitch, [&](long k) { row[k] -= x * change[k] + y * last[k]; });
      team.sync();
    }
    if (j >= n - 2) break;
    T* const vector = v + j * pitch;
    T* const total = sums + j % 2 * pitch;
    const auto found = reflection(team, n, pitch, j + 1, vector, [&](long k) { return row[k]; });
    if (team.first()) d[j] = row[j], e[j] = found.value, scales[j] = found.scale;
    const long start = aligned(j + 1);
    team.each(start, pitch, [&](long k) { total[k] = 0; });
    long i = j + 1;
    for (; i + TILE <= n; i += TILE)
      if (j)
        symmetric_rows<TILE, true>(team, i, start, pitch, a, pitch, last, change, vector, total);
      else
        symmetric_rows<TILE, false>(team, i, start, pitch, a, pitch, last, change, vector, total);
    for (; i < n; i++)
      if (j) symmetric_rows<1, true>(team, i, start, pitch, a, pitch, last, change, vector, total);
      else symmetric_rows<1, false>(team, i, start, pitch, a, pitch, last, change, vector, total);
    team.each(start, pitch,
              [&](long k) { total[k] = k > j && k < n ? total[k] * found.scale : T(0); });
    team.sync();
    const T half = found.scale * dot_from(j + 1, pitch, total, vector) / 2;
    team.sync();
    team.each(start, pitch, [&](long k) { total[k] -= half * vector[k]; });
    team.sync();
  }
  if (n < 2) {
    if (n && team.first()) d[0] = a[0], e[0] = 0;
    team.sync();
    return;
  }
  if (team.first()) {
    T* const row = a + (n - 1) * pitch;
    const T* const last = v + (n - 3) * pitch;
    const T* const change = sums + (n - 3) % 2 * pitch;
    if (n > 2) row[n - 1] -= last[n - 1] * change[n - 1] + change[n - 1] * last[n - 1];
    d[n - 2] = a[(n - 2) * pitch + n - 2], e[n - 2] = a[(n - 2) * pitch + n - 1];
    d[n - 1] = row[n - 1], e[n - 1] = 0;
  }
  team.sync();
}

// a[i] = (a[i] - u[i] * sums) - products[i] * v for ROWS rows, if CHANGES; then adds next[i] * a[i] to totals.
template <int ROWS, bool CHANGES, class Team, class T>
GRAPHC_FACTORS void general_rows(const Team& team, long i, long begin, long end, T* a, long pitch,
                                 const T* u, const T* sums, const T* products, const T* v,
                                 const T* next, T* totals) {
  team.template columns<T>(begin, end, [&](long k, const auto& lanes) {
    auto total = lanes.load(totals + k);
    auto x = total, y = total;
    if constexpr (CHANGES) x = lanes.operand(sums + k), y = lanes.operand(v + k);
    GRAPHC_UNROLLED for (int r = 0; r < ROWS; r++) {
      T* const place = a + (i + r) * pitch + k;
      auto row = lanes.load(place);
      if constexpr (CHANGES) {
        row = row - x * u[i + r];
        row = row - y * products[i + r];
        lanes.store(place, row);
      }
      total += row * next[i + r];
    }
    lanes.store(totals + k, total);
  });
}

// a [m][n], m >= n, is P B Q^T: B has d and, right of it, e; P is of the n reflections `left`, Q of n - 2 of `right`, from row 1 on,
// whose vectors have n rows of `pitch`. sums has two rows of `pitch`, products as many elements as a vector of `left`.
template <class Team, class T>
GRAPHC_FACTORS void bidiagonal(const Team& team, long m, long n, T* a, long pitch, T* d, T* e,
                               const Reflections<T>& left, const Reflections<T>& right, T* sums,
                               T* products) {
  T *const u = left.vectors, *const v = right.vectors;
  const long length = left.length;
  for (long j = 0; j < n; j++) {
    const T* const last = u + (j - 1) * length;
    const T* const change = sums + (j + 1) % 2 * pitch;
    const T* const turned = v + (j - 1) * pitch;
    T* const vector = u + j * length;
    T* const total = sums + j % 2 * pitch;
    const auto found = reflection(team, m, length, j, vector, [&](long i) {
      T x = a[i * pitch + j];
      if (j) x = x - last[i] * change[j];
      return j ? x - products[i] * turned[j] : x;
    });
    const long start = aligned(j);
    team.each(0, pitch, [&](long k) { total[k] = 0; });
    team.sync();
    const auto pass = [&](auto changes) {
      long i = j;
      for (; i + TILE <= m; i += TILE)
        general_rows<TILE, changes.value>(team, i, start, pitch, a, pitch, last, change, products,
                                          turned, vector, total);
      for (; i < m; i++)
        general_rows<1, changes.value>(team, i, start, pitch, a, pitch, last, change, products,
                                       turned, vector, total);
    };
    if (j) pass(Bool<true>{});
    else pass(Bool<false>{});
    team.sync();
    T* const row = a + j * pitch;
    team.each(0, pitch, [&](long k) { total[k] = k > j && k < n ? total[k] * found.scale : T(0); });
    team.sync();
    team.each(0, pitch, [&](long k) { row[k] -= total[k]; });
    if (team.first()) d[j] = found.value, left.scales[j] = found.scale;
    team.sync();
    T* const turning = v + j * pitch;
    if (j < n - 2) {
      const auto other = reflection(team, n, pitch, j + 1, turning, [&](long k) { return row[k]; });
      if (team.first()) e[j] = other.value, right.scales[j] = other.scale;
      const T common = dot_from(j + 1, pitch, total, turning);
      team.each(j + 1, m, [&](long i) {
        const T x = dot_from(j + 1, pitch, a + i * pitch, turning);
        products[i] = (x - vector[i] * common) * other.scale;
      });
    } else {
      if (team.first()) e[j] = j == n - 2 ? row[j + 1] : T(0);
      team.each(0, pitch, [&](long k) { turning[k] = 0; });
      team.each(0, m, [&](long i) { products[i] = 0; });
    }
    team.sync();
  }
}
}  // namespace graphc::factors
