// Elements that are put, or combined, at indices that are data.
#include "cpu/index/index.h"
#include "prebuilt/strips.h"

namespace graphc {
namespace {
// An element of memory at an index of the domain, as for strips.
struct Place {
  int64_t memory, offset, strides[strips::AXES];
};

// Axes of the domain.
struct Axes {
  int32_t count, axes[strips::AXES - 1];
};

struct Index {
  int64_t chunks, scatters, combine, dtype, index_bytes;
  Place output, old, index, source;  // `old` has memory -1 where the output begins with zeros
  int64_t extents[strips::AXES];
  Axes a, i, b;  // of both, of what is put, and behind the axis j that the index is along
  int64_t j;
};
enum { SUM, PROD, MAX, MIN, REPLACE };

// Calls body(indices) for the indices along some axes with numbers [begin, end).
template <class Body> INLINE void each(const Index& k, const Axes& axes, long begin, long end,
                                       long* at, const Body& body) {
  long rest = begin;
  for (int d = axes.count - 1; d >= 0; d--) {
    const long extent = k.extents[axes.axes[d]];
    at[axes.axes[d]] = rest ? rest % extent : 0;
    rest = rest ? rest / extent : 0;
  }
  for (long unit = begin; unit < end; unit++) {
    body();
    for (int d = axes.count - 1; d >= 0; d--) {
      if (++at[axes.axes[d]] < k.extents[axes.axes[d]]) break;
      at[axes.axes[d]] = 0;
    }
  }
}
long count(const Index& k, const Axes& axes) {
  long product = 1;
  for (int d = 0; d < axes.count; d++) product *= k.extents[axes.axes[d]];
  return product;
}

template <class T> struct Elements {
  T* first;
  const int64_t* strides;
  int rank;
  Elements(const Place& place, void* const* arguments, int rank)
      : first((T*)((char*)arguments[place.memory] + place.offset)),
        strides(place.strides),
        rank(rank) {}
  T* at(const long* index) const {
    T* found = first;
    for (int d = 0; d < rank; d++) found += index[d] * strides[d];
    return found;
  }
};

template <class T> INLINE T combined(long combine, T a, T b) {
  switch (combine) {
    case SUM:
      return T(a + b);
    case PROD:
      return T(a * b);
    case MAX:
      return maximum(a, b);
    case MIN:
      return minimum(a, b);
    default:
      return b;
  }
}
// y[k] and x[k] for k < n.
template <class T> void combine_run(long combine, T* y, long y_step, const T* x, long x_step,
                                    long n) {
  long k = 0;
  if (y_step == 1 && x_step == 1 && (combine == SUM || combine == REPLACE))
    for (; k + W <= n; k += W) {
      const vec<T> own = load(x + k);
      store(y + k, combine == SUM ? load(y + k) + own : own);
    }
  for (; k < n; k++) y[k * y_step] = combined(combine, y[k * y_step], x[k * x_step]);
}

// Units [begin, end) of the axes that are shared out: of j for a gather's gradient, else of a and b.
template <class T> void play_index(const Index& k, void* const* arguments, long begin, long end) {
  int rank = strips::AXES;  // few axes, whose sums are not worth registers
  while (rank > 0 && k.extents[rank - 1] == 1) rank--;
  const Elements<T> output(k.output, arguments, rank), source(k.source, arguments, rank);
  const Elements<char> index(k.index, arguments, rank);
  Axes outer = k.b;  // of b, with its last axis as runs
  const int run_axis = k.b.axes[--outer.count];
  const long run = k.extents[run_axis], as = count(k, k.a), bs = count(k, outer),
             is = count(k, k.i), j_end = k.scatters ? k.extents[k.j] : end,
             j_begin = k.scatters ? 0 : begin;
  if (run == 0) return;
  long at[strips::AXES] = {};
  // Of a's indices those, and of the neighbours behind the axis those, that are this chunk's.
  for (long a = 0; a < as; a++) {
    long first = 0, last = bs * run;
    if (k.scatters) {
      first = most(begin - a * last, 0), last = least(end - a * last, last);
      if (first >= last) continue;
    }
    const auto each_run = [&](const auto& body) {
      for (long b = first / run; b * run < last; b++) {
        each(k, outer, b, b + 1, at, [&] {
          const long from = most(first - b * run, 0), to = least(last - b * run, run);
          at[run_axis] = from;
          body(to - from);
        });
      }
      at[run_axis] = 0;
    };
    each(k, k.a, a, a + 1, at, [&] {
      const bool same = k.old.memory >= 0 && arguments[k.old.memory] == arguments[k.output.memory];
      for (long j = j_begin; j < j_end && !same; j++) {
        at[k.j] = j;
        each_run([&](long n) {
          T* const y = output.at(at);
          const long step = output.strides[run_axis];
          if (k.old.memory < 0 && step == 1) __builtin_memset(y, 0, n * sizeof(T));
          else if (k.old.memory < 0)
            for (long m = 0; m < n; m++) y[m * step] = T(0);
          else {
            const Elements<T> old(k.old, arguments, rank);
            combine_run(REPLACE, y, step, (const T*)old.at(at), old.strides[run_axis], n);
          }
        });
      }
      at[k.j] = 0;
      each(k, k.i, 0, is, at, [&] {
        const auto place = [&] {
          long offset = 0;
          for (int d = 0; d < rank; d++) offset += at[d] * index.strides[d];
          const char* const first = index.first;
          return k.index_bytes == 8   ? long(((const int64_t*)first)[offset])
                 : k.index_bytes == 4 ? long(((const int32_t*)first)[offset])
                 : k.index_bytes == 1 ? long(((const int8_t*)first)[offset])
                                      : long(((const uint8_t*)first)[offset]);
        };
        const bool moves = index.strides[run_axis] != 0;
        if (!moves && outer.count == 0) {
          const long p = place();
          if (p < j_begin || p >= j_end) return;
        }
        each_run([&](long n) {
          const long from = at[run_axis];
          for (long m = 0; m < n; m = moves ? m + 1 : n) {
            at[run_axis] = from + m;
            const long p = place();
            if (p < j_begin || p >= j_end) continue;
            const T* const x = source.at(at);
            at[k.j] = p;
            combine_run(k.combine, output.at(at), output.strides[run_axis], x,
                        source.strides[run_axis], moves ? 1 : n);
            at[k.j] = 0;
          }
        });
      });
    });
  }
}
}  // namespace
}  // namespace graphc

extern "C" void graphc_index(void* const* arguments, int, int chunk) {
  using namespace graphc;
  const auto& k = *(const Index*)arguments[-1];
  const long units = k.scatters ? count(k, k.a) * count(k, k.b) : k.extents[k.j];
  const long begin = chunk * units / k.chunks, end = (chunk + 1) * units / k.chunks;
  switch (k.dtype) {
    case 0:
      return play_index<float>(k, arguments, begin, end);
    case 1:
      return play_index<double>(k, arguments, begin, end);
    case 2:
      return play_index<uint8_t>(k, arguments, begin, end);
    case 3:
      return play_index<int8_t>(k, arguments, begin, end);
    case 4:
      return play_index<int32_t>(k, arguments, begin, end);
    default:
      return play_index<int64_t>(k, arguments, begin, end);
  }
}
