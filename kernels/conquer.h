// Singular values of bidiagonal matrices by divide and conquer. The reference is graphc/ops/linear/conquer.py, which says where the
// method is from and what each part computes.
#pragma once
#include "secular.h"

namespace graphc::factors {
// The memory of `singular`, for n rows, whose vectors and matrices have `pitch` elements in a row.
template <class T> struct Parts {
  long n, pitch;
  const T *d, *e;
  T* s;
  // Singular vectors as rows: before and after a step; no left ones if ut is null.
  T *vt, *ut, *new_vt, *new_ut;
  // [n][pitch].
  T* factors;
  // [pitch] each.
  T *z, *poles, *weights, *exact, *offsets, *values;
  // [pitch] each: rows in the order of their values; those that the equation is of, and the others; the pole of each root; where each
  // value goes; numbers of poles by the half in which their vectors are, and 1, 2 or 3, these halves, for each row.
  int *sorted, *kept, *others, *origins, *places, *first_half, *second_half, *halves;
  // Numbers of rows kept and of others, and in either half.
  int* counts;
};

// Up to so much is 0, and the least of what is solved for, of a matrix with elements up to 1.
template <class T> constexpr T negligible = 4 * epsilon<T>;
template <class T> constexpr T smallest = epsilon<T> / 16;

// The part of at most one row.
template <class T> GRAPHC_FACTORS void leaf(const Parts<T>& m, long low, long high) {
  if (low == high) return;
  const T d = m.d[low], e = high < m.n ? m.e[low] : T(0);
  const T size = root(d * d + e * e);
  m.s[low] = size;
  if (size == 0) return;
  const T c = d / size, s = e / size;
  T* const row = m.vt + low * m.pitch;
  row[low] = c;
  if (high < m.n) {
    row[high] = s;
    row[m.pitch + low] = -s;
    row[m.pitch + high] = c;
  }
}

// Turns rows x and y of t in columns [begin, end): x becomes c x - s y, y becomes s x + c y.
template <class Team, class T>
GRAPHC_FACTORS void turn(const Team& team, T* t, long pitch, long x, long y, long begin, long end,
                         T c, T s) {
  T* const first = t + x * pitch;
  T* const second = t + y * pitch;
  team.each(begin, end, [&](long k) {
    const T p = first[k], q = second[k];
    first[k] = c * p - s * q;
    second[k] = s * p + c * q;
  });
}

// Rows [low, high) of what the equation is of: kept, poles and weights, and others, from sorted. middle_z is z of the middle row.
template <class Team, class T>
GRAPHC_FACTORS void deflate(const Team& team, const Parts<T>& m, long low, long middle, long high,
                            long begin, long end, T middle_z) {
  int kept = 1, others = 0;
  T last_z = 0;
  long last = -1;
  const auto other = [&](long row) {
    if (team.first()) m.others[others] = int(row);
    others++;
  };
  for (long i = 0; i < high - low - 1; i++) {
    const long row = m.sorted[i];
    const T z = m.z[row], s = m.s[row];
    if (magnitude(z) <= negligible<T>) {
      other(row);
    } else if (s <= smallest<T>) {
      if (team.first()) m.halves[row] = 3;
      const T size = root(middle_z * middle_z + z * z);
      turn(team, m.vt, m.pitch, row, middle, begin, end, middle_z / size, z / size);
      middle_z = size;
      other(row);
    } else {
      T size = z;
      if (last >= 0 && s - m.s[last] <= negligible<T>) {
        size = root(last_z * last_z + z * z);
        const T c = z / size, t = last_z / size;
        if (m.ut) turn(team, m.ut, m.pitch, last, row, begin, end, c, t);
        turn(team, m.vt, m.pitch, last, row, begin, end, c, t);
        if (team.first()) m.halves[row] |= m.halves[last];
        other(last);
        kept--;
      }
      if (team.first()) m.kept[kept] = int(row), m.poles[kept] = s, m.weights[kept] = size;
      kept++;
      last = row, last_z = size;
    }
  }
  if (!team.first()) return;
  m.kept[0] = int(middle), m.poles[0] = 0, m.weights[0] = middle_z;
  m.counts[0] = kept, m.counts[1] = others;
  for (long i = 1; i < others; i++) {
    const int row = m.others[i];
    long k = i;
    for (; k > 0 && m.s[m.others[k - 1]] > m.s[row]; k--) m.others[k] = m.others[k - 1];
    m.others[k] = row;
  }
}

// Rows from i on of `to`, ROWS of them, in columns [begin, end): sums over the poles in list, or all, of factors times rows of `from`.
template <int ROWS, class Team, class T>
GRAPHC_FACTORS void combine_rows(const Team& team, const Parts<T>& m, long i, long low, long begin,
                                 long end, const T* from, T* to, const int* list, long count) {
  team.template columns<T>(begin, end, [&](long k, const auto& lanes) {
    decltype(lanes.load(from)) sums[ROWS];
    GRAPHC_UNROLLED for (int r = 0; r < ROWS; r++) sums[r] = lanes.template zeros<T>();
    GRAPHC_ROLLED for (long g = 0; g < count; g++) {
      const long j = list ? list[g] : g;
      const auto row = lanes.operand(from + m.kept[j] * m.pitch + k);
      GRAPHC_UNROLLED for (int r = 0; r < ROWS; r++) sums[r] +=
          row * m.factors[j * m.pitch + i + r];
    }
    GRAPHC_UNROLLED for (int r = 0; r < ROWS; r++)
        lanes.store(to + (low + m.places[i + r]) * m.pitch + k, sums[r]);
  });
}

// New vectors of the part: those of roots are sums of old ones, of which some are 0 in either half; the others stay.
template <class Team, class T>
GRAPHC_FACTORS void combine(const Team& team, const Parts<T>& m, long low, long middle, long begin,
                            long end, const T* from, T* to) {
  const long kept = m.counts[0], others = m.counts[1];
  const long before = aligned(middle + 1), after = least_of(end, aligned(middle + LANES));
  const auto rows = [&](long left, long right, const int* list, long count) {
    long i = 0;
    for (; i + TILE <= kept; i += TILE)
      combine_rows<TILE>(team, m, i, low, left, right, from, to, list, count);
    for (; i < kept; i++) combine_rows<1>(team, m, i, low, left, right, from, to, list, count);
  };
  rows(begin, before, m.first_half, m.counts[2]);
  rows(before, after, nullptr, kept);
  rows(after, end, m.second_half, m.counts[3]);
  for (long i = 0; i < others; i++) {
    const T* const old = from + m.others[i] * m.pitch;
    T* const row = to + (low + m.places[kept + i]) * m.pitch;
    team.each(begin, end, [&](long k) { row[k] = old[k]; });
  }
}

// Calls f(begin, lanes) for all of k roots: for those of lanes from begin on.
template <class Team, class F> GRAPHC_FACTORS void in_lanes(const Team& team, long k, const F& f) {
  const auto all = [&](auto lanes) {
    team.each(0, (k + lanes.value - 1) / lanes.value,
              [&](long group) { f(group * lanes.value, lanes); });
  };
  if constexpr (Team::ROOTS > 4) {
    if (k <= 4) all(Number<4>{});
    else all(Number<Team::ROOTS>{});
  } else {
    all(Number<Team::ROOTS>{});
  }
  team.sync();
}

// Joins the parts of rows [low, middle) and (middle, high).
template <class Team, class T>
GRAPHC_FACTORS void merge(const Team& team, const Parts<T>& m, long low, long middle, long high) {
  const long n = m.n, pitch = m.pitch, begin = aligned(low);
  const long end = least_of(pitch, aligned(high + LANES));
  const T alpha = m.d[middle], beta = middle + 1 < n ? m.e[middle] : T(0);
  team.each(low, middle, [&](long i) { m.z[i] = alpha * m.vt[i * pitch + middle]; });
  team.each(middle + 1, high, [&](long i) { m.z[i] = beta * m.vt[i * pitch + middle + 1]; });
  T middle_z = alpha * m.vt[middle * pitch + middle];
  const T beyond = high < n ? beta * m.vt[high * pitch + middle + 1] : T(0);
  const T size = root(middle_z * middle_z + beyond * beyond);
  team.sync();
  if (m.ut && team.first()) m.ut[middle * pitch + middle] = 1;
  if (size > smallest<T>) {
    const T c = middle_z / size, s = beyond / size;
    middle_z = size;
    if (high < n) {
      turn(team, m.vt, pitch, high, middle, begin, end, c, s);
    } else {
      T* const row = m.vt + middle * pitch;
      team.each(begin, end, [&](long k) { row[k] = c * row[k]; });
    }
  } else {
    middle_z = smallest<T>;
  }
  team.each(low, high, [&](long i) { m.halves[i] = i < middle ? 1 : i == middle ? 3 : 2; });
  if (team.first()) {
    long x = low, y = middle + 1, count = 0;
    while (x < middle || y < high) {
      const bool left = x < middle && (y == high || !(m.s[y] < m.s[x]));
      m.sorted[count++] = int(left ? x++ : y++);
    }
  }
  team.sync();
  deflate(team, m, low, middle, high, begin, end, middle_z);
  team.sync();
  const long k = m.counts[0];
  const T *d = m.poles, *z = m.weights;
  T total = 0;
  for (long j = 0; j < k; j++) total += z[j] * z[j];
  in_lanes(team, k, [&](long begin, auto lanes) {
    find_roots<lanes.value>(k, d, z, total, begin, m.origins, m.offsets);
  });
  in_lanes(team, k, [&](long begin, auto lanes) {
    find_z<lanes.value>(k, d, z, m.origins, m.offsets, begin, m.exact);
  });
  if (team.first()) {
    const long others = m.counts[1];
    long x = 0, y = 0, count = 0, first = 0, second = 0;
    const auto value = [&](long i) { return d[m.origins[i]] + m.offsets[i]; };
    while (x < k || y < others) {
      const bool is_root = x < k && (y == others || !(m.s[m.others[y]] < value(x)));
      m.values[count] = is_root ? value(x) : m.s[m.others[y]];
      m.places[is_root ? x++ : k + y++] = int(count++);
    }
    for (long i = 0; i < count; i++) m.s[low + i] = m.values[i];
    for (long j = 0; j < k; j++) {
      const int halves = m.halves[m.kept[j]];
      if (halves & 1) m.first_half[first++] = int(j);
      if (halves & 2) m.second_half[second++] = int(j);
    }
    m.counts[2] = int(first), m.counts[3] = int(second);
  }
  team.sync();
  if (high < n) {
    const T* const row = m.vt + high * pitch;
    T* const same = m.new_vt + high * pitch;
    team.each(begin, end, [&](long c) { same[c] = row[c]; });
  }
  in_lanes(team, k, [&](long first, auto lanes) {
    find_vectors<lanes.value, false>(k, d, m.exact, m.origins, m.offsets, first, m.factors, pitch);
  });
  combine(team, m, low, middle, begin, end, m.vt, m.new_vt);
  team.sync();
  if (!m.ut) return;
  in_lanes(team, k, [&](long first, auto lanes) {
    find_vectors<lanes.value, true>(k, d, m.exact, m.origins, m.offsets, first, m.factors, pitch);
  });
  combine(team, m, low, middle, begin, end, m.ut, m.new_ut);
  team.sync();
}

// The largest magnitude, or a NaN if there is one.
template <class T> GRAPHC_FACTORS T largest_of(T a, T b) { return b > a || b != b ? b : a; }

// Singular values of the bidiagonal matrix with m.d, and m.e right of it, ascending in m.s; singular vectors in the rows of m.vt and
// m.ut, which may have changed places with new_vt and new_ut. d and e change.
template <class Team, class T>
GRAPHC_FACTORS void singular(const Team& team, Parts<T>& m, T* d, T* e) {
  const long n = m.n, pitch = m.pitch;
  const auto fill = [&](T* matrix, bool one) {
    if (!matrix) return;
    for (long i = 0; i < n; i++)
      team.each(0, pitch, [&](long k) { matrix[i * pitch + k] = T(one && i == k); });
  };
  fill(m.vt, true), fill(m.ut, true), fill(m.new_vt, false), fill(m.new_ut, false);
  T scale = 0;
  for (long i = 0; i < n; i++) {
    scale = largest_of(scale, magnitude(d[i]));
    if (i < n - 1) scale = largest_of(scale, magnitude(e[i]));
  }
  team.sync();
  if (!(scale > 0 && scale - scale == 0)) {
    team.each(0, n, [&](long i) { m.s[i] = scale - scale; });
    team.sync();
    return;
  }
  const T flushed = sizeof(T) == 4 ? T(0x1p-50) : T(0x1p-450);
  team.each(0, n, [&](long i) {
    const T x = d[i] / scale, y = e[i] / scale;
    d[i] = magnitude(x) < flushed ? T(0) : x;
    e[i] = magnitude(y) < flushed ? T(0) : y;
  });
  team.sync();
  long parts = 1;
  while (2 * parts <= n + 1) parts *= 2;
  const auto bound = [&](long part) { return part * (n + 1) / parts; };
  team.each(0, parts, [&](long part) { leaf(m, bound(part), bound(part + 1) - 1); });
  team.sync();
  for (; parts > 1; parts /= 2) {
    for (long part = 0; part < parts; part += 2)
      merge(team, m, bound(part), bound(part + 1) - 1, bound(part + 2) - 1);
    T* const vt = m.vt;
    m.vt = m.new_vt, m.new_vt = vt;
    T* const ut = m.ut;
    m.ut = m.new_ut, m.new_ut = ut;
  }
  team.each(0, n, [&](long i) { m.s[i] *= scale; });
  team.sync();
}
}  // namespace graphc::factors
