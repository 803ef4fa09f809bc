// Eigenvalues of symmetric matrices and singular values, on top of factorizations.h, whose teams and order of operations it keeps.
//
// eigh makes a matrix tridiagonal by reflections and then diagonal by QL steps with implicit shifts (Golub and Van Loan, Matrix
// Computations, 8.3). svd turns pairs of columns until all are orthogonal: the one-sided Jacobi method (Hestenes, 1958), in rounds
// of pairs that have no column in common. It begins with columns that the eigenvectors of their products have made orthogonal but
// for rounding, so that two or three sweeps are enough.
#pragma once
#include "factorizations.h"

namespace graphc::factors {
// For one eigenvalue; two or three are usual.
constexpr int MOST_STEPS = 50;
// Over all pairs; two or three are usual.
constexpr int MOST_SWEEPS = 30;
template <class T> constexpr T epsilon =
    sizeof(T) == 4 ? T(1.1920928955078125e-7) : T(2.220446049250313e-16);

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

// The first of the indices begin to end - 1 that no other one is before.
template <class Before> GRAPHC_FACTORS long leading(long begin, long end, const Before& before) {
  long place = begin;
  GRAPHC_ROLLED for (long k = begin + 1; k < end; k++) if (before(k, place)) place = k;
  return place;
}

template <class Team, class T> GRAPHC_FACTORS void identity(const Team& team, long n, T* a) {
  for (long i = 0; i < n; i++) team.each(0, n, [&](long k) { a[i * n + k] = T(i == k); });
}

// a [n][n], symmetric, is Q T Q^T: T has `diagonal` and `beside` it, v becomes Q^T. scales and sums have n elements.
template <class Team, class T>
GRAPHC_FACTORS void tridiagonal(const Team& team, long n, T* a, T* diagonal, T* beside, T* v,
                                T* scales, T* sums) {
  for (long j = 0; j < n - 2; j++) {
    T* const row = a + j * n;
    T tail = 0;
    for (long i = j + 2; i < n; i++) tail += row[i] * row[i];
    const Reflection<T> found(row[j + 1], tail);
    team.sync();
    team.each(j + 1, n, [&](long i) { row[i] = i == j + 1 ? T(1) : row[i] / found.divisor; });
    if (team.first()) beside[j] = found.value, scales[j] = found.scale;
    team.each(j + 1, n, [&](long k) { sums[k] = 0; });
    team.sync();
    for (long i = j + 1; i < n; i++) {
      const T x = row[i];
      team.each(j + 1, n, [&](long k) { sums[k] += x * a[i * n + k]; });
    }
    team.each(j + 1, n, [&](long k) { sums[k] *= found.scale; });
    team.sync();
    T product = 0;
    for (long k = j + 1; k < n; k++) product += sums[k] * row[k];
    const T half = found.scale * product / 2;
    team.sync();
    team.each(j + 1, n, [&](long k) { sums[k] -= half * row[k]; });
    team.sync();
    for (long i = j + 1; i < n; i++) {
      const T x = row[i], y = sums[i];
      team.each(j + 1, n, [&](long k) { a[i * n + k] -= x * sums[k] + y * row[k]; });
    }
    team.sync();
  }
  team.each(0, n, [&](long i) { diagonal[i] = a[i * n + i]; });
  if (n > 1 && team.first()) beside[n - 2] = a[n * n - n - 1];
  identity(team, n, v);
  team.sync();
  for (long j = n - 3; j >= 0; j--) {
    const T* const row = a + j * n;
    const T scale = scales[j];
    team.each(j + 1, n, [&](long k) { sums[k] = 0; });
    for (long i = j + 1; i < n; i++) {
      const T x = row[i];
      team.each(j + 1, n, [&](long k) { sums[k] += x * v[i * n + k]; });
    }
    team.each(j + 1, n, [&](long k) { sums[k] *= scale; });
    for (long i = j + 1; i < n; i++) {
      const T x = row[i];
      team.each(j + 1, n, [&](long k) { v[i * n + k] -= x * sums[k]; });
    }
    team.sync();
  }
  transpose(team, n, v);
}

// Turns rows first and second of v, [n][n], by the angle of this cosine and sine.
template <class Team, class T>
GRAPHC_FACTORS void turn(const Team& team, long n, T* first, T* second, T cosine, T sine) {
  team.each(0, n, [&](long k) {
    const T x = first[k], y = second[k];
    second[k] = sine * x + cosine * y;
    first[k] = cosine * x - sine * y;
  });
}

// d and e, the diagonal and what is beside it, become eigenvalues and zeros; rows of v become eigenvectors. All threads compute the
// same numbers from what d and e hold; new ones are in new_d and new_e until all have read.
template <class Team, class T>
GRAPHC_FACTORS void diagonal(const Team& team, long n, T* d, T* e, T* v, T* new_d, T* new_e) {
  for (long l = 0; l < n; l++)
    for (int step = 0; step < MOST_STEPS; step++) {
      long m = l;
      while (m < n - 1 && magnitude(e[m]) > epsilon<T> * (magnitude(d[m]) + magnitude(d[m + 1])))
        m++;
      if (m == l) break;
      T g = (d[l + 1] - d[l]) / (2 * e[l]);
      T r = root(g * g + 1);
      g = d[m] - d[l] + e[l] / (g + (g < 0 ? -r : r));
      T s = 1, c = 1, p = 0;
      long i = m - 1;
      for (; i >= l; i--) {
        const T f = s * e[i], b = c * e[i];
        r = root(f * f + g * g);
        if (team.first()) new_e[i + 1] = r;
        if (r == 0) break;
        s = f / r;
        c = g / r;
        g = d[i + 1] - p;
        r = (d[i] - g) * s + 2 * c * b;
        p = s * r;
        if (team.first()) new_d[i + 1] = g + p;
        g = c * r - b;
        turn(team, n, v + i * n, v + (i + 1) * n, c, s);
      }
      if (team.first()) {
        new_d[i + 1] = d[i + 1] - p;
        if (i < l) new_e[l] = g;
        new_e[m] = 0;
      }
      team.sync();
      team.each(i + 1, m + 1, [&](long k) {
        d[k] = new_d[k];
        e[k] = new_e[k];
      });
      team.sync();
    }
}

// Eigenvalues of the symmetric matrix a [n][n] in ascending order in w, eigenvectors in the columns of v. beside, scales and sums
// have n elements.
template <class Team, class T>
GRAPHC_FACTORS void eigh(const Team& team, long n, T* a, T* w, T* v, T* beside, T* scales,
                         T* sums) {
  tridiagonal(team, n, a, w, beside, v, scales, sums);
  diagonal(team, n, w, beside, v, scales, sums);
  for (long i = 0; i < n; i++) {
    const long place = leading(i, n, [&](long a, long b) { return w[a] < w[b]; });
    team.sync();
    if (place != i) {
      swap_rows(team, 0, n, v + i * n, v + place * n);
      swap_rows(team, 0, 1, w + i, w + place);
    }
    team.sync();
  }
  transpose(team, n, v);
}

// Column h of the pairs of a round: each of n columns, or one beyond them if n is odd, meets every other one in n - 1 rounds.
GRAPHC_FACTORS long opponent(long players, long round, long h, bool second) {
  if (h == 0) return second ? players - 1 : round;
  return (second ? round + h : round + players - 1 - h) % (players - 1);
}

// Makes rows x and y orthogonal unless they are; whether it has turned them, and rows v and w.
template <class T> GRAPHC_FACTORS bool turn_pair(long m, long n, T* x, T* y, T* v, T* w) {
  const T a = dot(m, x, x), b = dot(m, y, y), c = dot(m, x, y);
  if (!(magnitude(c) > epsilon<T> * root(T(m)) * (root(a) * root(b)))) return false;
  const T zeta = (b - a) / (2 * c);
  const T size = 1 / (magnitude(zeta) + root(1 + zeta * zeta));
  const T tangent = zeta < 0 ? -size : size;
  const T cosine = 1 / root(1 + tangent * tangent), sine = cosine * tangent;
  const auto turned = [&](long count, T* first, T* second) {
    GRAPHC_ROLLED for (long k = 0; k < count; k++) {
      const T p = first[k], q = second[k];
      first[k] = cosine * p - sine * q;
      second[k] = sine * p + cosine * q;
    }
  };
  turned(m, x, y);
  turned(n, v, w);
  return true;
}

// columns [n][m] become v times them: v^T has the eigenvectors of their products in its columns, so that the new ones are about
// orthogonal. copy has n * m elements, products n * n, and values, beside, scales and sums have n.
template <class Team, class T>
GRAPHC_FACTORS void align(const Team& team, long m, long n, T* columns, T* v, T* copy, T* products,
                          T* values, T* beside, T* scales, T* sums) {
  for (long i = 0; i < n; i++)
    team.each(i, n, [&](long k) {
      const T product = dot(m, columns + i * m, columns + k * m);
      products[i * n + k] = product;
      products[k * n + i] = product;
    });
  team.sync();
  eigh(team, n, products, values, v, beside, scales, sums);
  transpose(team, n, v);
  for (long j = 0; j < n / 2; j++) swap_rows(team, 0, n, v + j * n, v + (n - 1 - j) * n);
  load(team, n, m, m, copy, m, [&](long j, long i) { return columns[j * m + i]; });
  for (long j = 0; j < n; j++) team.each(0, m, [&](long i) { columns[j * m + i] = 0; });
  subtract<false>(team, 0, n, 0, m, columns, m, copy, m, n,
                  [&](long j, long k) { return -v[j * n + k]; });
  team.sync();
}

// columns [n][m], those of a matrix [m][n] with m >= n, whose singular values become s, descending, and the singular vectors the
// columns of u [m][n] and the rows of v [n][n]. r has n * n elements, beside, scales and sums have n.
template <class Team, class T>
GRAPHC_FACTORS void svd(const Team& team, long m, long n, T* columns, T* u, T* s, T* v, T* r,
                        T* beside, T* scales, T* sums) {
  const long players = n + n % 2;
  align(team, m, n, columns, v, u, r, s, beside, scales, sums);
  for (int sweep = 0; sweep < MOST_SWEEPS; sweep++) {
    team.each(0, players / 2, [&](long h) { sums[h] = 0; });
    for (long round = 0; round < players - 1; round++) {
      team.each(0, players / 2, [&](long h) {
        const long a = opponent(players, round, h, false), b = opponent(players, round, h, true);
        const long p = least_of(a, b), q = a + b - p;
        if (q < n && turn_pair(m, n, columns + p * m, columns + q * m, v + p * n, v + q * n))
          sums[h] = 1;
      });
      team.sync();
    }
    T turned = 0;
    for (long h = 0; h < players / 2; h++) turned += sums[h];
    team.sync();
    if (turned == 0) break;
  }
  team.each(0, n, [&](long j) { s[j] = root(dot(m, columns + j * m, columns + j * m)); });
  team.sync();
  for (long j = 0; j < n; j++) {
    const long place = leading(j, n, [&](long a, long b) { return s[a] > s[b]; });
    team.sync();
    if (place != j) {
      swap_rows(team, 0, m, columns + j * m, columns + place * m);
      swap_rows(team, 0, n, v + j * n, v + place * n);
      swap_rows(team, 0, 1, s + j, s + place);
    }
    team.sync();
  }
  // The columns are orthogonal, so Q has their directions, and others in place of zeros.
  load_transposed(team, m, n, n, u, n, [&](long i, long k) { return columns[k * m + i]; });
  qr(team, m, n, u, r, scales, columns);
  for (long i = 0; i < m; i++)
    team.each(0, n, [&](long k) {
      if (r[k * n + k] < 0) u[i * n + k] = -u[i * n + k];
    });
}
}  // namespace graphc::factors
