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
  for (long i = 0; i < n; i++) scale = largest_of(scale, beside(i) + magnitude(d[i]));
  const bool plain = scale > 0 && scale - scale == 0;
  for (long i = 0; plain && i < n; i++) {
    const T least = beside(i) / scale - d[i] / scale;
    added = i == 0 || least > added ? least : added;
  }
  added += 16 * epsilon<T>;
  team.sync();
  if (team.first()) {
    T square = 0;
    for (long i = 0; plain && i < n; i++) {
      d[i] = root((d[i] / scale + added) - square);
      e[i] = e[i] / scale / d[i];
      square = e[i] * e[i];
    }
    if (!plain)
      for (long i = 0; i < n; i++) d[i] = scale, e[i] = 0;
  }
  team.sync();
  singular(team, m, d, e);
  team.each(0, n,
            [&](long i) { m.s[i] = plain ? (m.s[i] * m.s[i] - added) * scale : scale - scale; });
  team.sync();
}

// Eigenvalues of the symmetric matrix a [n][pitch] in ascending order in w, eigenvectors in the columns of v [n][n]. reflections has
// n rows and sums two of `pitch` elements; d, e and scales have `pitch`.
template <class Team, class T>
GRAPHC_FACTORS void eigh(const Team& team, Parts<T>& m, T* a, T* w, T* v, T* d, T* e, T* scales,
                         T* reflections, T* sums) {
  const long n = m.n, pitch = m.pitch;
  tridiagonal(team, n, a, pitch, d, e, scales, reflections, sums);
  eigenvalues(team, m, d, e);
  load_transposed(team, n, n, pitch, a, pitch, [&](long i, long k) { return m.vt[k * pitch + i]; });
  if (n > 2) unfold(team, n, a, pitch, n - 2, 1, reflections, pitch, scales);
  load(team, n, n, n, v, n, [&](long i, long k) { return a[i * pitch + k]; });
  team.each(0, n, [&](long i) { w[i] = m.s[i]; });
}

// Singular values of a [rows][pitch], which has n columns and at least as many rows, descending in s, and the singular vectors in
// columns of u [rows][n] and rows of vt [n][n]. left has n rows of `length`, rows rounded up, right n of `pitch`; products has
// `length` elements.
template <class Team, class T>
GRAPHC_FACTORS void svd(const Team& team, Parts<T>& m, long rows, T* a, T* u, T* s, T* vt, T* d,
                        T* e, T* left_scales, T* left, long length, T* right_scales, T* right,
                        T* sums, T* products) {
  const long n = m.n, pitch = m.pitch;
  bidiagonal(team, rows, n, a, pitch, d, e, left_scales, left, length, right_scales, right, sums,
             products);
  singular(team, m, d, e);
  load_transposed(team, rows, n, pitch, a, pitch,
                  [&](long i, long k) { return i < n ? m.ut[(n - 1 - k) * pitch + i] : T(0); });
  unfold(team, rows, a, pitch, n, 0, left, length, left_scales);
  load(team, rows, n, n, u, n, [&](long i, long k) { return a[i * pitch + k]; });
  T* const turned = m.new_vt;
  load_transposed(team, n, n, pitch, turned, pitch,
                  [&](long i, long k) { return m.vt[(n - 1 - k) * pitch + i]; });
  if (n > 2) unfold(team, n, turned, pitch, n - 2, 1, right, pitch, right_scales);
  load_transposed(team, n, n, n, vt, n, [&](long i, long k) { return turned[k * pitch + i]; });
  team.each(0, n, [&](long i) { s[i] = m.s[n - 1 - i]; });
}
}  // namespace graphc::factors
