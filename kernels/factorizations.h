// Factorizations of matrices, in one text for the CPU and for a GPU.
//
// A team computes one matrix: a chunk of the CPU alone, or a block of threads. team.each(begin, end, f) calls f(i) for all i, in
// whatever order and by any thread, but always the same thread for the same i and begin; team.columns(begin, end, f) gives f runs
// of columns, as registers; team.sync() lets all threads see what was written before; team.first() is true for one of them. All
// other statements are every thread's: what they read, no thread writes before the next sync().
//
// The order of operations. An element that several columns change is changed by them in ascending order, and sums along rows or
// columns add in ascending order, each product rounded; so groups of columns, registers and threads change no bits. The references
// in graphc/ops/linear/ say the same in NumPy.
//
// Matrices are row-major without gaps. Whoever includes this defines GRAPHC_FACTORS, the qualifiers of a function,
// GRAPHC_UNROLLED, what stands before a loop of few steps, root(x), the square root, and not_a_number<T>().
#pragma once

namespace graphc::factors {
// Columns whose products are subtracted from the rest of a matrix in one pass over it.
constexpr long GROUP = 8;

template <class T> GRAPHC_FACTORS T magnitude(T x) { return x < 0 ? -x : x; }
GRAPHC_FACTORS long least_of(long a, long b) { return a < b ? a : b; }

// to[i * pitch + k] = read(i, k).
template <class Team, class T, class Read>
GRAPHC_FACTORS void load(const Team& team, long rows, long columns, T* to, long pitch,
                         const Read& read) {
  for (long i = 0; i < rows; i++)
    team.each(0, columns, [&](long k) { to[i * pitch + k] = read(i, k); });
  team.sync();
}

// Transposes a matrix [n][n] where it lies.
template <class Team, class T> GRAPHC_FACTORS void transpose(const Team& team, long n, T* a) {
  for (long i = 0; i < n; i++)
    team.each(i + 1, n, [&](long k) {
      const T other = a[k * n + i];
      a[k * n + i] = a[i * n + k];
      a[i * n + k] = other;
    });
  team.sync();
}

// target[k] -= sum over g of factor(g) * rows[g * pitch + k], for GROUP rows.
template <class Team, class T, class Factor>
GRAPHC_FACTORS void subtract_group(const Team& team, long begin, long end, T* target, const T* rows,
                                   long pitch, const Factor& factor) {
  T factors[GROUP];
  for (long g = 0; g < GROUP; g++) factors[g] = factor(g);
  team.each(begin, end, [&](long k) {
    T x = target[k];
    GRAPHC_UNROLLED for (long g = 0; g < GROUP; g++) x -= factors[g] * rows[g * pitch + k];
    target[k] = x;
  });
}

// a holds the upper triangle of a symmetric matrix and gets L with L L^T = a, zeros above its diagonal; NaN on and below the
// diagonal if the matrix is not positive definite.
template <class Team, class T> GRAPHC_FACTORS void cholesky(const Team& team, long n, T* a) {
  for (long first = 0; first < n; first += GROUP) {
    const long last = least_of(first + GROUP, n);
    for (long j = first; j < last; j++) {
      T* const row = a + j * n;
      const T pivot = row[j] > 0 ? root(row[j]) : not_a_number<T>();
      team.sync();
      if (team.first()) row[j] = pivot;
      team.each(j + 1, n, [&](long k) { row[k] /= pivot; });
      team.sync();
      for (long i = j + 1; i < last; i++) {
        const T factor = row[i];
        team.each(i, n, [&](long k) { a[i * n + k] -= factor * row[k]; });
      }
      team.sync();
    }
    const T* const rows = a + first * n;
    for (long i = last; i < n; i++)
      subtract_group(team, i, n, a + i * n, rows, n, [&](long g) { return rows[g * n + i]; });
    team.sync();
  }
  const bool failed = n > 0 && a[n * n - 1] != a[n * n - 1];
  team.sync();
  for (long i = 0; i < n; i++)
    team.each(i, n, [&](long k) {
      const T x = failed ? not_a_number<T>() : a[i * n + k];
      a[i * n + k] = 0;
      a[k * n + i] = x;
    });
}

// x [n][m] becomes the solution of a lower triangular system, whose matrix is read(i, j); its diagonal counts as 1 if UNIT.
// Rows of x are `pitch` elements apart, perhaps less than 0.
template <bool UNIT, class Team, class T, class Read>
GRAPHC_FACTORS void solve_lower(const Team& team, long n, long m, T* x, long pitch,
                                const Read& read) {
  for (long first = 0; first < n; first += GROUP) {
    const long last = least_of(first + GROUP, n);
    for (long j = first; j < last; j++) {
      T* const row = x + j * pitch;
      if (!UNIT) {
        const T pivot = read(j, j);
        team.each(0, m, [&](long k) { row[k] /= pivot; });
      }
      for (long i = j + 1; i < last; i++) {
        const T factor = read(i, j);
        team.each(0, m, [&](long k) { x[i * pitch + k] -= factor * row[k]; });
      }
    }
    for (long i = last; i < n; i++)
      subtract_group(team, 0, m, x + i * pitch, x + first * pitch, pitch,
                     [&](long g) { return read(i, first + g); });
  }
}

// a becomes U and, below the diagonal, L without its diagonal of ones: rows `order` of what it was are L U. sign is that of the
// order as a permutation.
template <class Team, class T, class Index>
GRAPHC_FACTORS void lu(const Team& team, long n, T* a, Index* order, T* sign) {
  team.each(0, n, [&](long i) { order[i] = i; });
  T swaps = 1;
  for (long first = 0; first < n; first += GROUP) {
    const long last = least_of(first + GROUP, n);
    for (long j = first; j < last; j++) {
      long place = j;
      for (long i = j + 1; i < n; i++)
        if (magnitude(a[i * n + j]) > magnitude(a[place * n + j])) place = i;
      team.sync();
      if (place != j) {
        swaps = -swaps;
        team.each(0, n, [&](long k) {
          const T other = a[place * n + k];
          a[place * n + k] = a[j * n + k];
          a[j * n + k] = other;
        });
        if (team.first()) {
          const Index other = order[place];
          order[place] = order[j];
          order[j] = other;
        }
        team.sync();
      }
      const T pivot = a[j * n + j];
      team.each(j + 1, n, [&](long i) {
        T* const row = a + i * n;
        if (pivot != 0) row[j] /= pivot;
        for (long k = j + 1; k < last; k++) row[k] -= row[j] * a[j * n + k];
      });
      team.sync();
    }
    for (long j = first; j < last; j++)
      for (long i = j + 1; i < last; i++) {
        const T factor = a[i * n + j];
        team.each(last, n, [&](long k) { a[i * n + k] -= factor * a[j * n + k]; });
      }
    for (long i = last; i < n; i++)
      subtract_group(team, last, n, a + i * n, a + first * n, n,
                     [&](long g) { return a[i * n + first + g]; });
    team.sync();
  }
  if (team.first()) *sign = swaps;
}

// A reflection I - scale v v^T takes the vector with first element `head` and squares of the others `tail` to (value, 0, ...);
// v is 1 and then the others divided by `divisor`.
template <class T> struct Reflection {
  T value, scale, divisor;
  GRAPHC_FACTORS Reflection(T head, T tail) : value(head), scale(0), divisor(1) {
    if (tail == 0) return;
    const T norm = root(head * head + tail);
    value = head < 0 ? norm : -norm;
    scale = (value - head) / value;
    divisor = head - value;
  }
};

// Applies reflection j to columns [begin, end) of a [m][n]. Its vector is 1 and then v[j + 1], ..., v[m - 1]. FRESH: row j counts as
// zeros.
template <bool FRESH, class Team, class T>
GRAPHC_FACTORS void reflect(const Team& team, long m, long n, long j, long begin, long end, T scale,
                            const T* v, T* a) {
  team.template columns<T>(begin, end, [&](long k, const auto& lanes) {
    T* const top = a + j * n + k;
    auto sum = lanes.template zeros<T>();
    if (!FRESH) sum = lanes.load(top);
    for (long i = j + 1; i < m; i++) sum += lanes.load(a + i * n + k) * v[i];
    sum *= scale;
    lanes.store(top, FRESH ? 0 - sum : lanes.load(top) - sum);
    GRAPHC_ROLLED for (long i = j + 1; i < m; i++) {
      T* const place = a + i * n + k;
      lanes.store(place, lanes.load(place) - sum * v[i]);
    }
  });
  team.sync();
}

// a [m][n], m >= n, becomes the first n columns of Q, and r [n][n] R, with Q R = a. scales has n elements, vectors n rows of m.
// Panels of as many columns as the team likes stay in a cache while all reflections change them.
template <class Team, class T>
GRAPHC_FACTORS void qr(const Team& team, long m, long n, T* a, T* r, T* scales, T* vectors) {
  const long panel = team.template panel<T>(n);
  for (long first = 0; first < n; first += panel) {
    const long last = least_of(first + panel, n);
    for (long j = 0; j < first; j++)
      reflect<false>(team, m, n, j, first, last, scales[j], vectors + j * m, a);
    for (long j = first; j < last; j++) {
      T* const v = vectors + j * m;
      T tail = 0;
      for (long i = j + 1; i < m; i++) tail += a[i * n + j] * a[i * n + j];
      const Reflection<T> found(a[j * n + j], tail);
      team.sync();
      team.each(j + 1, m, [&](long i) { v[i] = a[i * n + j] / found.divisor; });
      if (team.first()) a[j * n + j] = found.value, scales[j] = found.scale;
      team.sync();
      reflect<false>(team, m, n, j, j + 1, last, found.scale, v, a);
    }
  }
  for (long i = 0; i < n; i++)
    team.each(0, n, [&](long k) { r[i * n + k] = k < i ? T(0) : a[i * n + k]; });
  team.sync();
  for (long first = 0; first < n; first += panel) {
    const long last = least_of(first + panel, n);
    for (long j = last - 1; j >= 0; j--) {
      const T scale = scales[j];
      const T* const v = vectors + j * m;
      const bool own = j >= first;
      reflect<true>(team, m, n, j, own ? j + 1 : first, last, scale, v, a);
      if (!own) continue;
      team.each(0, m, [&](long i) {
        a[i * n + j] = i < j ? T(0) : i == j ? 1 - scale : -(v[i] * scale);
      });
      team.sync();
    }
  }
}
}  // namespace graphc::factors
