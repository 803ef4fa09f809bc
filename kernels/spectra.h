// Eigenvalues of symmetric matrices and singular values, by tridiagonal and bidiagonal matrices (conquer.h).
#pragma once
#include "conquer.h"

namespace graphc::factors {
// Eigenvalues, ascending in m.s, of the symmetric tridiagonal matrix with d, and e beside it, and eigenvectors in the rows of m.vt. d
// and e change: with so much added to the diagonal that it is positive definite, the matrix is B^T B.
template <class Team, class T>
GRAPHC_FACTORS void eigenvalues(const Team& team, Parts<T>& m, T* d, T* e) {
  const long n = m.n;
  T scale = 0, added = 0;
  const auto beside = [&](long i) {
    return (i > 0 ? magnitude(e[i - 1]) : T(0)) + (i < n - 1 ? magnitude(e[i]) : T(0));
  };
  GRAPHC_ROLLED for (long i = 0; i < n; i++) scale = largest_of(scale, beside(i) + magnitude(d[i]));
  const bool plain = scale > 0 && scale - scale == 0;
  GRAPHC_ROLLED for (long i = 0; plain && i < n; i++) {
    const T least = beside(i) / scale - d[i] / scale;
    added = i == 0 || least > added ? least : added;
  }
  added += 16 * epsilon<T>;
  team.sync();
  if (team.first()) {
    T square = 0;
    GRAPHC_ROLLED for (long i = 0; plain && i < n; i++) {
      d[i] = root((d[i] / scale + added) - square);
      e[i] = e[i] / scale / d[i];
      square = e[i] * e[i];
    }
    if (!plain) GRAPHC_ROLLED for (long i = 0; i < n; i++) d[i] = scale, e[i] = 0;
  }
  team.sync();
  singular(team, m, d, e);
  team.each(0, n,
            [&](long i) { m.s[i] = plain ? (m.s[i] * m.s[i] - added) * scale : scale - scale; });
  team.sync();
}

// Eigenvalues of the symmetric matrix a [n][pitch] in ascending order in w, eigenvectors in the columns of v [n][n]. sums has two rows of
// `pitch` elements; d and e have `pitch`.
template <class Team, class T>
GRAPHC_FACTORS void eigh(const Team& team, Parts<T>& m, T* a, T* w, T* v, T* d, T* e, T* sums,
                         const Reflections<T>& all) {
  const long n = m.n, pitch = m.pitch;
  tridiagonal(team, n, a, pitch, d, e, all.scales, all.vectors, sums);
  multiply(team, all, 0, all.count);
  eigenvalues(team, m, d, e);
  unfold<false>(
      team, all, n, n, pitch, a, [&](long i, long k) { return m.vt[k * pitch + i]; },
      [&](long i, long k, T x) { v[i * n + k] = x; });
  team.each(0, n, [&](long i) { w[i] = m.s[i]; });
}

// Singular values of a [rows][pitch], which has n columns and at least as many rows, descending in s, and the singular vectors in
// columns of u [rows][n] and rows of vt [n][n]. products has as many elements as a vector of a left reflection.
template <class Team, class T>
GRAPHC_FACTORS void svd(const Team& team, Parts<T>& m, long rows, T* a, T* u, T* s, T* vt, T* d,
                        T* e, T* sums, T* products, const Reflections<T>& left,
                        const Reflections<T>& right) {
  const long n = m.n, pitch = m.pitch;
  bidiagonal(team, rows, n, a, pitch, d, e, left, right, sums, products);
  multiply(team, left, 0, left.count);
  multiply(team, right, 0, right.count);
  singular(team, m, d, e);
  unfold<false>(
      team, left, rows, n, pitch, a,
      [&](long i, long k) { return i < n ? m.ut[(n - 1 - k) * pitch + i] : T(0); },
      [&](long i, long k, T x) { u[i * n + k] = x; });
  unfold<false>(
      team, right, n, n, pitch, a, [&](long i, long k) { return m.vt[(n - 1 - k) * pitch + i]; },
      [&](long i, long k, T x) { vt[k * n + i] = x; });
  team.each(0, n, [&](long i) { s[i] = m.s[n - 1 - i]; });
}
}  // namespace graphc::factors
