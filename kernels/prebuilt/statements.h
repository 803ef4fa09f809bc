// Statements that are no operation on registers: loads and stores, indices and what depends on them.
#pragma once
#include "cpu/shared/random.h"
#include "prebuilt/copies.h"
#include "prebuilt/operation.h"

namespace graphc::strips {
// Where a strip lies, the bytes from one register to the next, 0 where all of a row are the same, and
// those from a row's end to the next row.
struct Place {
  char* at;
  long step, jump;
};

struct Step;
// A program in a strip of a box.
struct State {
  const Program* program;
  char* const* memory;
  Layout layout;
  Lines* lines;
  Place* places;
  long n;  // elements of the strip
};

// An instruction made ready for a box.
struct Step {
  Operation operation;
  Operands operands;
  void (*statement)(const State& state, const Step& step);
  const Instruction* instruction;
  const int64_t* settings;
  uint32_t axes;  // those of the layout that it depends on
  int32_t bytes;  // of an element of the result
  bool uniform;   // whether one register is the whole result
  bool per_row;   // whether a row has one register
  bool by_rows;   // whether its operands have jumps between rows of several registers
  bool in_place;  // whether it touches memory in place

  int32_t result() const { return instruction->result; }
  int32_t operand(int i) const { return instruction->operands[i]; }
};

inline void load(const State& state, const Step& step) {
  const Lines& own = state.lines[step.result()];
  char* const to = state.places[step.result()].at;
  if (own.way == SAME) GRAPHC_BY_SIZE(own.bytes, spread, own, to);
  else if (own.way == ROWS)
    GRAPHC_BY_SIZE(own.bytes, spread_rows, own, to, state.n / state.layout.row);
  else GRAPHC_BY_SIZE(own.bytes, gather, own, to, state.n);
}

inline void store(const State& state, const Step& step) {
  const Lines& own = state.lines[step.result()];
  GRAPHC_BY_SIZE(own.bytes, scatter, own, state.places[step.result()].at, state.n);
}

// Elements of a place: element k, where a uniform place has one.
template <class T> struct Elements {
  T* at;
  bool moves;
  Elements(const State& state, int32_t place)
      : at((T*)state.places[place].at), moves(state.places[place].step != 0) {}
  T& operator[](long k) const { return at[moves ? k : 0]; }
};

// Calls body(number, k) with the index of every element k, or of one that is then in all of a register.
template <class T, class Body> INLINE void each_index(const State& state, const Step& step,
                                                      int32_t access, const Body& body) {
  const Lines& own = state.lines[access];
  T* const to = (T*)state.places[step.result()].at;
  if (step.uniform) {
    const T value = body(own.here, 0);
    for (int l = 0; l < W; l++) to[l] = value;
    return;
  }
  const long stride = own.levels[0].stride;
  each_run(own, state.n, [&](long at, long k, long count) __attribute__((always_inline)) {
    for (long i = 0; i < count; i++) to[k + i] = body(at + i * stride, k + i);
  });
}

// Settings: divisor.
inline void index(const State& state, const Step& step) {
  const long divisor = step.settings[0];
  if (divisor == 1)
    each_index<int64_t>(state, step, step.operand(0), [](long at, long) { return at; });
  else
    each_index<int64_t>(state, step, step.operand(0), [=](long at, long) { return at / divisor; });
}

// Settings: divisor, bound.
inline void inside(const State& state, const Step& step) {
  const long divisor = step.settings[0], high = step.settings[1];
  if (divisor == 1)
    each_index<int32_t>(state, step, step.operand(0),
                        [=](long at, long) { return -int32_t(at >= 0 && at < high); });
  else
    each_index<int32_t>(state, step, step.operand(0), [=](long at, long) {
      return -int32_t(at >= 0 && at < high && at % divisor == 0);
    });
}

// The memory that settings k and k + 1 say: its number, and the bytes before its first element.
inline const char* memory_of(const State& state, const Step& step, int k) {
  const long number = step.settings[k];
  return (number == OWN ? (const char*)state.program : state.memory[number]) + step.settings[k + 1];
}

template <class T> void load_where(const State& state, const Step& step) {
  const long divisor = step.settings[0];
  const T* const from = (const T*)memory_of(state, step, 1);
  const Elements<int32_t> condition(state, step.operand(1));
  const Lines& own = state.lines[step.operand(0)];
  const long stride = own.levels[0].stride;
  if (step.uniform || divisor != 1 || stride != 1) {
    each_index<T>(state, step, step.operand(0),
                  [=](long at, long k) { return condition[k] ? from[at / divisor] : T(0); });
    return;
  }
  T* const to = (T*)state.places[step.result()].at;
  each_run(own, state.n, [&](long at, long k, long count) __attribute__((always_inline)) {
    int32_t all = -1, any = 0;
    for (long i = 0; i < count; i++) all &= condition[k + i], any |= condition[k + i];
    if (all) __builtin_memcpy(to + k, from + at, count * sizeof(T));
    else if (!any) __builtin_memset(to + k, 0, count * sizeof(T));
    else
      for (long i = 0; i < count; i++) to[k + i] = condition[k + i] ? from[at + i] : T(0);
  });
}
// Operands: index, condition. Settings: divisor, memory, bytes before.
inline void load_if(const State& state, const Step& step) {
  GRAPHC_BY_SIZE(step.bytes, load_where, state, step);
}

// An index in a register of an integer type of `bytes`; signed unless it says otherwise.
INLINE long index_at(const char* place, long k, long kind) {
  switch (kind) {
    case 8:
      return ((const int64_t*)place)[k];
    case 4:
      return ((const int32_t*)place)[k];
    case 1:
      return ((const int8_t*)place)[k];
    default:
      return ((const uint8_t*)place)[k];
  }
}
template <class T> void take_from(const State& state, const Step& step) {
  const long divisor = step.settings[0], stride = step.settings[3], extent = step.settings[4],
             kind = step.settings[5];
  const T* const table = (const T*)memory_of(state, step, 1);
  const Elements<int32_t> condition(state, step.operand(1));
  const Place index = state.places[step.operand(2)];
  const Lines& own = state.lines[step.operand(0)];
  const auto element = [=](long at, long k) {
    const long i = index_at(index.at, index.step ? k : 0, kind);
    return condition[k] && i >= 0 && i < extent ? table[at / divisor + i * stride] : T(0);
  };
  const int last = state.layout.rank - 1;
  const bool whole = !step.uniform && divisor == 1 && own.levels[0].stride == 1 && own.bytes == 1 &&
                     state.layout.inner <= last &&
                     !(state.layout.merged(uint32_t(step.settings[6])) >> last & 1) &&
                     own.levels[0].extent <= state.layout.extent[last];
  if (!whole) {
    each_index<T>(state, step, step.operand(0), element);
    return;
  }
  T* const to = (T*)state.places[step.result()].at;
  each_run(own, state.n, [&](long at, long k, long count) __attribute__((always_inline)) {
    const long i = index_at(index.at, index.step ? k : 0, kind);
    if (condition[k] && i >= 0 && i < extent)
      __builtin_memcpy(to + k, table + at + i * stride, count * sizeof(T));
    else __builtin_memset(to + k, 0, count * sizeof(T));
  });
}
// Operands: the table's element of index 0, condition, index. Settings: divisor, memory, bytes before,
// stride and extent of the table, kind of index, the axes that the index and the condition depend on.
inline void take(const State& state, const Step& step) {
  GRAPHC_BY_SIZE(step.bytes, take_from, state, step);
}

template <class T> void search_in(const State& state, const Step& step) {
  const long divisor = step.settings[0], stride = step.settings[3], extent = step.settings[4];
  const bool right = step.settings[5];
  const T* const table = (const T*)memory_of(state, step, 1);
  const Elements<int32_t> condition(state, step.operand(1));
  const Elements<T> values(state, step.operand(2));
  each_index<int64_t>(state, step, step.operand(0), [=](long at, long k) {
    const T* const row = table + at / divisor;
    const T value = values[k];
    long low = 0, high = condition[k] ? extent : 0;
    while (low < high) {
      const long middle = (low + high) / 2;
      const T x = row[middle * stride];
      const bool before =
          right ? x <= value || value != value : x < value || (value != value && x == x);
      low = before ? middle + 1 : low;
      high = before ? high : middle;
    }
    return int64_t(low);
  });
}
// Operands: a row's first element, condition, value. Settings: divisor, memory, bytes before, stride and
// extent of a row, whether equal elements come before, kind of element.
inline void search(const State& state, const Step& step) {
  switch (step.settings[6]) {
    case 0:
      return search_in<float>(state, step);
    case 1:
      return search_in<double>(state, step);
    case 2:
      return search_in<uint8_t>(state, step);
    case 3:
      return search_in<int8_t>(state, step);
    case 4:
      return search_in<int32_t>(state, step);
    default:
      return search_in<int64_t>(state, step);
  }
}

// Operands: the element's number, the step. Settings: seed, number, word.
inline void philox(const State& state, const Step& step) {
  const Place index = state.places[step.operand(0)], count = state.places[step.operand(1)];
  float* const to = (float*)state.places[step.result()].at;
  const long registers = step.uniform ? 1 : (state.n + W - 1) / W;
  for (long r = 0; r < registers; r++) {
    vec<uint64_t> i;
    vec<int32_t> t;
    __builtin_memcpy(&i, index.at + r * index.step, sizeof i);
    __builtin_memcpy(&t, count.at + r * count.step, sizeof t);
    graphc::store(to + r * W, philox(uint32_t(step.settings[0]), uint32_t(step.settings[1]), t, i,
                                     int(step.settings[2])));
  }
}
}  // namespace graphc::strips
