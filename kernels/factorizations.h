// Factorizations of matrices, in one text for the CPU and for a GPU.
//
// A team computes one matrix: a chunk of the CPU alone, or a block of threads. team.each(begin, end, f) calls f(i) for all i, in
// whatever order and by any thread, but always the same thread for the same i and begin; team.columns(begin, end, f) gives f runs
// of columns, as registers; team.whole(i) is i, or the first index of its registers; team.strip(n) is how many of n columns should be
// changed together; team.sync() lets all threads see what was written before; team.first() is true for one of them. All other
// statements are every thread's: what they read, no thread writes before the next sync().
//
// The order of operations. An element that several columns change is changed by them in ascending order, and sums over rows add in
// ascending order, each product rounded; a sum along a row adds element i in lane i % 16, and lanes by halves. So tiles, registers
// and threads change no bits. The references in graphc/ops/linear/ say the same in NumPy.
//
// Inputs and results are row-major without gaps; work is on rows `pitch` elements apart, with zeros in the gaps. Whoever includes this
// defines GRAPHC_FACTORS, the qualifiers of a function, GRAPHC_UNROLLED, what stands before a loop of few steps, and GRAPHC_ROLLED,
// before one that is not to be unrolled, root(x), the square root, and not_a_number<T>().
#pragma once

namespace graphc::factors {
// Columns, or rows, that are computed one by one before their products are subtracted from a panel.
constexpr long GROUP = 8;
// Columns, or rows, whose products are subtracted from the rest of a matrix in one pass over it.
constexpr long PANEL = 32;
// Rows of a tile, whose elements are in registers during a pass.
constexpr int TILE = 4;
// Of results along a row: element i belongs to lane i % 16.
constexpr int LANES = 16;

template <class T> GRAPHC_FACTORS T magnitude(T x) { return x < 0 ? -x : x; }
GRAPHC_FACTORS long least_of(long a, long b) { return a < b ? a : b; }

// The first index of the registers that i is in.
GRAPHC_FACTORS long aligned(long i) { return i / LANES * LANES; }

// to[i * pitch + k] = read(i, k), and zeros from column `columns` to `end`.
template <class Team, class T, class Read>
GRAPHC_FACTORS void load(const Team& team, long rows, long columns, long end, T* to, long pitch,
                         const Read& read) {
  for (long i = 0; i < rows; i++) {
    team.each(0, columns, [&](long k) { to[i * pitch + k] = read(i, k); });
    team.each(columns, end, [&](long k) { to[i * pitch + k] = 0; });
  }
  team.sync();
}

// The same for what lies transposed: in squares, so that the lines of a cache are read once.
template <class Team, class T, class Read>
GRAPHC_FACTORS void load_transposed(const Team& team, long rows, long columns, long end, T* to,
                                    long pitch, const Read& read) {
  for (long top = 0; top < rows; top += LANES)
    for (long left = 0; left < columns; left += LANES)
      for (long i = top; i < least_of(top + LANES, rows); i++)
        team.each(left, least_of(left + LANES, columns),
                  [&](long k) { to[i * pitch + k] = read(i, k); });
  for (long i = 0; i < rows; i++) team.each(columns, end, [&](long k) { to[i * pitch + k] = 0; });
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

// For ROWS rows from i on and columns [begin, end): x[i * pitch + k] -= factor(i, g) * rows[g * row_pitch + k] for all g < depth,
// in ascending order.
template <int ROWS, class Team, class T, class Factor>
GRAPHC_FACTORS void subtract_tile(const Team& team, long i, long begin, long end, T* x, long pitch,
                                  const T* rows, long row_pitch, long depth, const Factor& factor) {
  team.template columns<T>(begin, end, [&](long k, const auto& lanes) {
    decltype(lanes.load(rows)) sums[ROWS];
    GRAPHC_UNROLLED for (int r = 0; r < ROWS; r++) sums[r] = lanes.load(x + (i + r) * pitch + k);
    GRAPHC_ROLLED for (long g = 0; g < depth; g++) {
      const auto row = lanes.operand(rows + g * row_pitch + k);
      GRAPHC_UNROLLED for (int r = 0; r < ROWS; r++) sums[r] = sums[r] - row * factor(i + r, g);
    }
    GRAPHC_UNROLLED for (int r = 0; r < ROWS; r++) lanes.store(x + (i + r) * pitch + k, sums[r]);
  });
}

// The same for rows [top, bottom). RIGHT: row i from column i on, or a few before it.
template <bool RIGHT, class Team, class T, class Factor>
GRAPHC_FACTORS void subtract(const Team& team, long top, long bottom, long begin, long end, T* x,
                             long pitch, const T* rows, long row_pitch, long depth,
                             const Factor& factor) {
  long i = top;
  for (; i + TILE <= bottom; i += TILE)
    subtract_tile<TILE>(team, i, RIGHT ? i : begin, end, x, pitch, rows, row_pitch, depth, factor);
  for (; i < bottom; i++)
    subtract_tile<1>(team, i, RIGHT ? i : begin, end, x, pitch, rows, row_pitch, depth, factor);
}

// Rows [first, last) of the factor of cholesky, from which all earlier rows have been subtracted.
template <class Team, class T>
GRAPHC_FACTORS void cholesky_panel(const Team& team, long n, T* a, long pitch, long first,
                                   long last) {
  for (long group = first; group < last; group += GROUP) {
    const long behind = least_of(group + GROUP, last);
    for (long j = group; j < behind; j++) {
      T* const row = a + j * pitch;
      const T pivot = row[j] > 0 ? root(row[j]) : not_a_number<T>();
      team.sync();
      if (team.first()) row[j] = pivot;
      team.each(j + 1, n, [&](long k) { row[k] /= pivot; });
      team.sync();
      for (long i = j + 1; i < behind; i++) {
        const T factor = row[i];
        team.each(i, n, [&](long k) { a[i * pitch + k] -= factor * row[k]; });
      }
      team.sync();
    }
    const T* const rows = a + group * pitch;
    subtract<true>(team, behind, last, 0, pitch, a, pitch, rows, pitch, behind - group,
                   [&](long i, long g) { return rows[g * pitch + i]; });
    team.sync();
  }
}

// Subtracts the products of rows [first, last) from the rows behind them: tiles `part`, part + parts, ...
template <class Team, class T>
GRAPHC_FACTORS void cholesky_rest(const Team& team, long n, T* a, long pitch, long first, long last,
                                  long part, long parts) {
  const T* const rows = a + first * pitch;
  for (long i = last + part * TILE; i < n; i += parts * TILE)
    subtract<true>(team, i, least_of(i + TILE, n), 0, pitch, a, pitch, rows, pitch, last - first,
                   [&](long i, long g) { return rows[g * pitch + i]; });
  team.sync();
}

// Moves rows [begin, end) of the factor, whose transpose is above the diagonal of a, to y.
template <class Team, class T>
GRAPHC_FACTORS void cholesky_end(const Team& team, long n, const T* a, long pitch, T* y, long begin,
                                 long end) {
  const T last = n > 0 ? a[(n - 1) * (pitch + 1)] : T(0);
  load_transposed(team, end - begin, n, n, y + begin * n, n, [&](long r, long k) {
    const long i = begin + r;
    return k > i ? T(0) : last != last ? not_a_number<T>() : a[k * pitch + i];
  });
}

// a holds the upper triangle of a symmetric matrix; y gets L with L L^T = a, zeros above its diagonal; NaN on and below the diagonal
// if the matrix is not positive definite.
template <class Team, class T>
GRAPHC_FACTORS void cholesky(const Team& team, long n, T* a, long pitch, T* y) {
  for (long first = 0; first < n; first += PANEL) {
    const long last = least_of(first + PANEL, n);
    cholesky_panel(team, n, a, pitch, first, last);
    cholesky_rest(team, n, a, pitch, first, last, 0, 1);
  }
  cholesky_end(team, n, a, pitch, y, 0, n);
}

// Rows [first, last), at most GROUP, of the solution of a lower triangular system, from which the earlier ones have been subtracted.
template <bool UNIT, class Team, class T, class Read>
GRAPHC_FACTORS void solve_group(const Team& team, long first, long last, long begin, long end, T* x,
                                long pitch, const Read& read) {
  for (long j = first; j < last; j++) {
    T* const row = x + j * pitch;
    if (!UNIT) {
      const T pivot = read(j, j);
      team.each(begin, end, [&](long k) { row[k] /= pivot; });
    }
    for (long i = j + 1; i < last; i++) {
      const T factor = read(i, j);
      team.each(begin, end, [&](long k) { x[i * pitch + k] -= factor * row[k]; });
    }
  }
}

// Columns [begin, end) of x become the solution of a lower triangular system, whose matrix is read(i, j), for rows [first, last); its
// diagonal counts as 1 if UNIT. Then the products of these rows are subtracted from rows [last, n).
template <bool UNIT, class Team, class T, class Read>
GRAPHC_FACTORS void solve_panel(const Team& team, long first, long last, long n, long begin,
                                long end, T* x, long pitch, const Read& read) {
  for (long group = first; group < last; group += GROUP) {
    const long behind = least_of(group + GROUP, last);
    solve_group<UNIT>(team, group, behind, begin, end, x, pitch, read);
    subtract<false>(team, behind, last, begin, end, x, pitch, x + group * pitch, pitch,
                    behind - group, [&](long i, long g) { return read(i, group + g); });
  }
  subtract<false>(team, last, n, begin, end, x, pitch, x + first * pitch, pitch, last - first,
                  [&](long i, long g) { return read(i, first + g); });
}

// The columns of x before `end` become the solution of a lower triangular system, as above.
template <bool UNIT, class Team, class T, class Read>
GRAPHC_FACTORS void solve_lower(const Team& team, long n, long end, T* x, long pitch,
                                const Read& read) {
  for (long first = 0; first < n; first += PANEL)
    solve_panel<UNIT>(team, first, least_of(first + PANEL, n), n, 0, end, x, pitch, read);
}

template <class Team, class T>
GRAPHC_FACTORS void swap_rows(const Team& team, long begin, long end, T* a, T* b) {
  team.each(begin, end, [&](long k) {
    const T other = a[k];
    a[k] = b[k];
    b[k] = other;
  });
}

// The place of the element of the largest magnitude among x[begin], ..., x[end - 1], the first of equal ones. A NaN is that only at
// the beginning.
template <class T> GRAPHC_FACTORS long largest(long begin, long end, const T* x) {
  const T start = magnitude(x[begin]);
  if (end - begin <= 2 * LANES) {
    long place = begin;
    T most = start;
    for (long i = begin + 1; i < end; i++) {
      const T size = magnitude(x[i]);
      place = size > most ? i : place;
      most = size > most ? size : most;
    }
    return place;
  }
  T most[LANES];
  for (int l = 0; l < LANES; l++) most[l] = start;
  for (long i = end - LANES; i > begin; i -= LANES)
    for (int l = 0; l < LANES; l++) {
      const T size = magnitude(x[i + l]);
      most[l] = size > most[l] ? size : most[l];
    }
  for (int l = 0; l < LANES; l++) {
    const T size = magnitude(x[begin + l]);
    most[l] = size > most[l] ? size : most[l];
  }
  for (int half = LANES / 2; half > 0; half /= 2)
    for (int l = 0; l < half; l++) most[l] = most[l + half] > most[l] ? most[l + half] : most[l];
  if (!(most[0] > start)) return begin;
  long place = begin + 1;
  while (magnitude(x[place]) != most[0]) place++;
  return place;
}

// Columns [first, last) of the factors of lu, from which all earlier columns have been subtracted, and pivots[j], the row that has
// changed places with row j, in these columns so far. columns has GROUP * pitch elements.
template <class Team, class T>
GRAPHC_FACTORS void lu_panel(const Team& team, long n, T* a, long pitch, long first, long last,
                             int* pivots, T* columns) {
  for (long group = first; group < last; group += GROUP) {
    const long width = least_of(GROUP, last - group), behind = group + width;
    // Whole registers of rows, of which those of earlier pivots stay.
    for (long c = 0; c < width; c++)
      team.each(team.whole(group), pitch,
                [&](long i) { columns[c * pitch + i] = i < n ? a[i * pitch + group + c] : T(0); });
    for (long c = 0; c < width; c++) {
      T* const column = columns + c * pitch;
      const long j = group + c;
      team.sync();
      const long place = largest(j, n, column);
      team.sync();
      if (team.first()) pivots[j] = int(place);
      team.each(0, width, [&](long other) {
        const T x = columns[other * pitch + j];
        columns[other * pitch + j] = columns[other * pitch + place];
        columns[other * pitch + place] = x;
      });
      team.sync();
      const T pivot = column[j];
      const long start = team.whole(j + 1);
      if (pivot != 0)
        team.each(start, pitch, [&](long i) { column[i] = i > j ? column[i] / pivot : column[i]; });
      for (long other = c + 1; other < width; other++) {
        const T factor = columns[other * pitch + j];
        T* const changed = columns + other * pitch;
        team.each(start, pitch, [&](long i) {
          const T x = changed[i] - column[i] * factor;
          changed[i] = i > j ? x : changed[i];
        });
      }
    }
    team.sync();
    for (long c = 0; c < width; c++)
      team.each(group, n, [&](long i) { a[i * pitch + group + c] = columns[c * pitch + i]; });
    team.sync();
    for (long j = group; j < behind; j++) {
      if (pivots[j] == j) continue;
      T* const row = a + j * pitch;
      T* const other = a + pivots[j] * pitch;
      swap_rows(team, first, group, row, other);
      swap_rows(team, behind, last, row, other);
      team.sync();
    }
    solve_panel<true>(team, group, behind, n, behind, last, a, pitch,
                      [&](long i, long j) { return a[i * pitch + j]; });
    team.sync();
  }
}

// Columns [begin, end), outside the panel, change places as in the panel, and if they are behind it, what they have in its rows and
// in those below becomes what is right of the panel's factors.
template <class Team, class T>
GRAPHC_FACTORS void lu_rest(const Team& team, long n, T* a, long pitch, long first, long last,
                            const int* pivots, long begin, long end) {
  for (long j = first; j < last; j++) {
    if (pivots[j] != j) swap_rows(team, begin, end, a + j * pitch, a + pivots[j] * pitch);
  }
  if (begin >= last)
    solve_panel<true>(team, first, last, n, begin, end, a, pitch,
                      [&](long i, long j) { return a[i * pitch + j]; });
  team.sync();
}

// The order of rows that the pivots make, and its sign.
template <class Team, class T, class Index>
GRAPHC_FACTORS void lu_end(const Team& team, long n, const int* pivots, Index* order, T* sign) {
  if (!team.first()) return;
  for (long i = 0; i < n; i++) order[i] = i;
  T swaps = 1;
  for (long j = 0; j < n; j++) {
    if (pivots[j] == j) continue;
    swaps = -swaps;
    const Index other = order[pivots[j]];
    order[pivots[j]] = order[j];
    order[j] = other;
  }
  *sign = swaps;
}

// a becomes U and, below the diagonal, L without its diagonal of ones: rows `order` of what it was are L U. sign is that of the
// order as a permutation. pivots has n elements, columns GROUP * pitch.
template <class Team, class T, class Index>
GRAPHC_FACTORS void lu(const Team& team, long n, T* a, long pitch, Index* order, T* sign,
                       int* pivots, T* columns) {
  for (long first = 0; first < n; first += PANEL) {
    const long last = least_of(first + PANEL, n);
    lu_panel(team, n, a, pitch, first, last, pivots, columns);
    lu_rest(team, n, a, pitch, first, last, pivots, 0, first);
    lu_rest(team, n, a, pitch, first, last, pivots, last, last < n ? pitch : n);
  }
  lu_end(team, n, pivots, order, sign);
}
}  // namespace graphc::factors
