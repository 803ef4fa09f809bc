// Running results and sorts along an axis by description: the orders of prefix.h, the entries of sort.h.
#include "cpu/prefix/sort.h"
#include "prebuilt/scratch.h"

namespace graphc::axis {
namespace {
constexpr int AXES = 8;

// The element at an index of the domain; memory -1 where there is none. The offset is in bytes.
struct Access {
  int64_t memory, offset, strides[AXES];
};
enum { RUNNING_SUM, RUNNING_PROD, LATEST_MAX, LATEST_MIN, SORT };

// What kernels/prebuilt/along.py writes. `backwards`: whether a running result is, or a sort descends.
struct Along {
  int64_t chunks, kind, dtype, axis, backwards, blocks, pieces, count, extents[AXES];
  Access input, value, place;
};
thread_local Scratches<2> scratch;

// An array along the axis.
template <class T> struct Line {
  T* first;
  long step;
  Line(const Access& access, void* const* arguments, const long* row, long axis)
      : first(nullptr), step(access.strides[axis]) {
    if (access.memory < 0) return;
    first = (T*)((char*)arguments[access.memory] + access.offset);
    for (int d = 0; d < AXES; d++) first += row[d] * access.strides[d];
  }
  T& operator[](long j) const { return first[j * step]; }
};

template <int KIND, class V> INLINE V join(V a, V b) {
  return KIND == RUNNING_SUM ? V(a + b) : V(a * b);
}

// Elements of a row, or of W rows beside each other, V, one after another.
template <int KIND, class V, class T> void down(const Along& k, Line<const T> x, Line<T> y) {
  const long extent = k.extents[k.axis];
  const V neutral = V{} + T(KIND == RUNNING_SUM ? 0 : 1);
  V before = neutral;
  for (long p = 0; p < k.pieces; p++) {
    V state = neutral;
    for (long s = extent * p / k.pieces; s < extent * (p + 1) / k.pieces; s++) {
      const long j = k.backwards ? extent - 1 - s : s;
      V own;
      __builtin_memcpy(&own, &x[j], sizeof own);
      state = join<KIND>(state, own);
      own = k.pieces > 1 ? join<KIND>(before, state) : state;
      __builtin_memcpy(&y[j], &own, sizeof own);
    }
    before = join<KIND>(before, state);
  }
}

// Blocks of 16 elements of a row, each scanned by itself: elements join those 1, 2, 4 and 8 before them.
template <int KIND, class T> void along(const Along& k, Line<const T> x, Line<T> y) {
  const long extent = k.extents[k.axis], blocks = (extent + 15) / 16;
  const T neutral = T(KIND == RUNNING_SUM ? 0 : 1);
  T before = neutral;
  for (long p = 0; p < k.pieces; p++) {
    T carry = neutral;
    for (long s = blocks * p / k.pieces; s < blocks * (p + 1) / k.pieces; s++) {
      const long at = 16 * (k.backwards ? blocks - 1 - s : s), live = least(extent - at, 16);
      T own[16];
      for (int l = 0; l < 16; l++) own[l] = neutral;
      for (int l = 0; l < live; l++) own[k.backwards ? 15 - l : l] = x[at + l];
      for (int distance = 1; distance < 16 && distance < extent; distance *= 2) {
        for (int l = 15; l >= distance; l--) own[l] = join<KIND>(own[l - distance], own[l]);
        for (int l = 0; l < distance; l++) own[l] = join<KIND>(neutral, own[l]);
      }
      for (int l = 0; l < 16; l++) own[l] = join<KIND>(carry, own[l]);
      carry = own[15];
      for (int l = 0; l < live; l++) {
        const T one = own[k.backwards ? 15 - l : l];
        y[at + l] = k.pieces > 1 ? join<KIND>(before, one) : one;
      }
    }
    before = join<KIND>(before, carry);
  }
}

// The last one of the extremes so far, and its place.
template <class T> void extremes(const Along& k, Line<const T> x, Line<T> y, Line<int64_t> place) {
  const long extent = k.extents[k.axis];
  T best{};
  long at = 0;
  for (long s = 0; s < extent; s++) {
    const long j = k.backwards ? extent - 1 - s : s;
    const T own = x[j];
    if (s == 0 || own != own || (k.kind == LATEST_MAX ? own >= best : own <= best))
      best = own, at = j;
    if (y.first) y[j] = best;
    if (place.first) place[j] = at;
  }
}

template <class T, bool DESCENDING>
void sort(const Along& k, Line<const T> x, Line<T> y, Line<int64_t> place) {
  const long extent = k.extents[k.axis];
  Entry<T>* const entries = scratch.get<Entry<T>>(0, extent);
  for (long j = 0; j < extent; j += W) {
    const long live = least(extent - j, W);
    vec<T> own{};
    for (long l = 0; l < live; l++) own[l] = x[j + l];
    const auto packed = pack<T, DESCENDING>(own, splat(int32_t(j)) + lanes());
    for (long l = 0; l < live; l++) entries[j + l] = packed.lane(l);
  }
  const Entry<T>* const sorted = sort_bytes(entries, scratch.get<Entry<T>>(1, extent), extent);
  for (long j = 0; j < k.count; j += W) {
    const long live = least(k.count - j, W);
    Entries<T> own{};
    for (long l = 0; l < live; l++) own.set(l, sorted[j + l]);
    const Ordered<T> found = unpack<T, DESCENDING>(own);
    for (long l = 0; l < live; l++) {
      if (y.first) y[j + l] = found.value[l];
      if (place.first) place[j + l] = found.place[l];
    }
  }
}

// A row, or W rows beside each other.
template <class T> void play_row(const Along& k, void* const* arguments, const long* row,
                                 bool wide) {
  const Line<const T> x(k.input, arguments, row, k.axis);
  const Line<T> y(k.value, arguments, row, k.axis);
  const Line<int64_t> place(k.place, arguments, row, k.axis);
  if (k.kind == SORT)
    return k.backwards ? sort<T, true>(k, x, y, place) : sort<T, false>(k, x, y, place);
  if (k.kind >= LATEST_MAX) return extremes(k, x, y, place);
  if (k.kind == RUNNING_SUM) {
    if (k.blocks) along<RUNNING_SUM>(k, x, y);
    else if (wide) down<RUNNING_SUM, vec<T>>(k, x, y);
    else down<RUNNING_SUM, T>(k, x, y);
  } else {
    if (k.blocks) along<RUNNING_PROD>(k, x, y);
    else if (wide) down<RUNNING_PROD, vec<T>>(k, x, y);
    else down<RUNNING_PROD, T>(k, x, y);
  }
}

// Groups of rows, neighbours along the last axis where they are in memory too.
template <class T> void play(const Along& k, void* const* arguments, int chunk) {
  int last = AXES - 1;
  while (last > 0 && (last == k.axis || k.extents[last] == 1)) last--;
  const bool beside = last != k.axis && k.kind < LATEST_MAX && !k.blocks &&
                      k.input.strides[last] == 1 && k.value.strides[last] == 1;
  const long extent = last == k.axis ? 1 : k.extents[last], size = beside ? W : 1,
             groups = (extent + size - 1) / size;
  long units = groups;
  for (int d = 0; d < last; d++) units *= d == k.axis ? 1 : k.extents[d];
  for (long unit = chunk * units / k.chunks; unit < (chunk + 1) * units / k.chunks; unit++) {
    long row[AXES] = {}, rest = unit / groups;
    for (int d = last - 1; d >= 0; d--) {
      if (d == k.axis) continue;
      row[d] = rest % k.extents[d];
      rest /= k.extents[d];
    }
    const long first = unit % groups * size;
    const bool wide = beside && first + W <= extent;
    for (long r = first; r < least(first + (wide ? 1 : size), extent); r++) {
      if (last != k.axis) row[last] = r;
      play_row<T>(k, arguments, row, wide);
    }
  }
}
}  // namespace
}  // namespace graphc::axis

extern "C" void graphc_along(void* const* arguments, int phase, int chunk) {
  using namespace graphc::axis;
  const Along& k = *(const Along*)arguments[-1];
  if (phase != 0) return;
  switch (k.dtype) {
    case 0:
      return play<float>(k, arguments, chunk);
    case 1:
      return play<double>(k, arguments, chunk);
    case 2:
      return play<int32_t>(k, arguments, chunk);
    default:
      return play<int64_t>(k, arguments, chunk);
  }
}
