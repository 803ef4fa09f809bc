// The rows or columns of a unit of work, and the classes that they belong to.
#pragma once
#include "prebuilt/contraction.h"
#include "prebuilt/scratch.h"

namespace graphc::products {
// A range of each kept axis.
struct Box {
  long low[AXES], high[AXES];
};

// Rows, or columns: registers of W of them, or single ones where lanes are summed.
struct Lines {
  static constexpr int ARRAYS = 5;
  union {
    struct {
      int32_t *operand, *sums, *out;  // offsets
      int32_t* lane;                  // the index along the last axis
      int32_t* kind;                  // the class
    };
    int32_t* array[ARRAYS];
  };
};

// The lines of a unit in the order of their axes, and sorted by class.
struct Side {
  long count, classes;
  Lines natural, sorted;
  int32_t* first;  // of each class among the sorted, and the end
};

inline long ceil_div(long a, long b) { return (a + b - 1) / b; }

// The numbers of the classes of a side: a digit for each of its pairs.
struct Classes {
  long count = 1;
  long apart[PAIRS] = {};  // the classes of a pair; 0 where it is of the other side

  Classes(const Contraction& d, long first, long last) {
    for (long p = 0; p < d.pairs; p++)
      if (d.pair[p].kept >= first && d.pair[p].kept < last) {
        apart[p] = count;
        count *= d.pair[p].classes;
      }
  }
  long digit(const Contraction& d, long p, long kind) const {
    return kind / apart[p] % d.pair[p].classes;
  }
};

// Index i of an axis, as what it adds to each array of lines.
inline void add_index(const Contraction& d, long a, long i, long low, bool x, bool last,
                      const Classes& classes, int32_t* (&add)[Lines::ARRAYS], long n) {
  const Axis& axis = d.axes[a];
  add[0][n] = int32_t(d.offset(x ? axis.x : axis.y, i));
  add[1][n] = int32_t(d.offset(axis.sums, i - low));
  add[2][n] = int32_t(d.offset(axis.out, i));
  add[3][n] = last ? int32_t(i) : 0;
  add[4][n] = 0;
  for (long p = 0; p < d.pairs; p++)
    if (d.pair[p].kept == a)
      add[4][n] += int32_t(classes.apart[p] * d.table<uint8_t>(d.pair[p].class_of)[i]);
}

// Sorts by class, each class in the order of its axes.
inline void sort(Side& side) {
  int32_t* const first = side.first;
  for (long k = 0; k <= side.classes; k++) first[k] = 0;
  for (long i = 0; i < side.count; i++) first[side.natural.kind[i] + 1]++;
  for (long k = 0; k < side.classes; k++) first[k + 1] += first[k];
  if (side.classes == 1) {
    side.sorted = side.natural;
    return;
  }
  for (long i = 0; i < side.count; i++) {
    const long place = first[side.natural.kind[i]]++;
    for (int e = 0; e < Lines::ARRAYS; e++) side.sorted.array[e][place] = side.natural.array[e][i];
  }
  for (long k = side.classes; k > 0; k--) first[k] = first[k - 1];
  first[0] = 0;
}

// The lines of axes [first, last) within the box; the last axis goes by `step`.
template <int COUNT>
Side list_lines(const Contraction& d, const Box& box, long first, long last, long step, bool x,
                const Classes& classes, Scratches<COUNT>& scratch, int memory) {
  Side side{1, classes.count, {}, {}, nullptr};
  long widest = 1;
  for (long a = first; a < last; a++) {
    const long n = ceil_div(box.high[a] - box.low[a], a + 1 == last ? step : 1);
    side.count *= n, widest = most(widest, n);
  }
  const long each = side.count;
  int32_t* const all = scratch.template get<int32_t>(
      memory, Lines::ARRAYS * (2 * each + widest) + classes.count + 1);
  int32_t* add[Lines::ARRAYS];
  for (int e = 0; e < Lines::ARRAYS; e++) {
    side.natural.array[e] = all + e * each, side.sorted.array[e] = all + (Lines::ARRAYS + e) * each;
    add[e] = all + 2 * Lines::ARRAYS * each + e * widest;
    side.natural.array[e][0] = 0;
  }
  side.first = all + Lines::ARRAYS * (2 * each + widest);
  long made = 1;
  for (long a = first; a < last; a++) {
    long n = 0;
    for (long i = box.low[a]; i < box.high[a]; i += a + 1 == last ? step : 1, n++)
      add_index(d, a, i, box.low[a], x, a + 1 == last, classes, add, n);
    for (int e = 0; e < Lines::ARRAYS; e++) {  // backwards, in place
      int32_t* const line = side.natural.array[e];
      for (long i = made - 1; i >= 0; i--) {
        const int32_t base = line[i];
        for (long k = n - 1; k >= 0; k--) line[i * n + k] = base + add[e][k];
      }
    }
    made *= n;
  }
  sort(side);
  return side;
}
}  // namespace graphc::products
