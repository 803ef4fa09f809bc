// What is done to the sums of rows, by their combination and dtype.
#pragma once
#include "prebuilt/sums.h"

namespace graphc::reduce {
namespace {
using namespace sums;

// What is done to rows, for each combination and dtype.
struct Functions {
  void (*clear)(char* sums, long count);
  void (*add)(char* sums, int chains, const char* terms, long step, long registers, int first);
  void (*beside)(char* sums, long sums_pitch, int chains, const char* terms, long pitch, long rows,
                 long length, long first);
  // Whole rows joined to their results, or null.
  void (*whole)(const char* terms, long pitch, long step, long registers, int chains, char* results,
                long rows);
  // The sums of a row joined to its result.
  void (*finish)(char* sums, int chains, int groups, char* result);
  // Those of rows beside each other.
  void (*finish_beside)(char* sums, int chains, long pitch, long rows, char* results);
};
template <Combine C, class T> struct Of {
  static void clear(char* sums, long count) {
    for (long i = 0; i < count; i++) ((T*)sums)[i] = neutral<C, T>();
  }
  static void add(char* sums, int chains, const char* terms, long step, long registers, int first) {
    sums::add<C, T>((vec<T>*)sums, chains, (const T*)terms, step, registers, first);
  }
  static void beside(char* sums, long sums_pitch, int chains, const char* terms, long pitch,
                     long rows, long length, long first) {
    auto f = sums::beside<C, T, 0>;
    if constexpr (common<C, T>)
      if (chains == 1 || chains == 4)
        f = chains == 1 ? sums::beside<C, T, 1> : sums::beside<C, T, 4>;
    f((T*)sums, sums_pitch, chains, (const T*)terms, pitch, rows, length, first);
  }
  static void whole(const char* terms, long pitch, long step, long registers, int chains,
                    char* results, long rows) {
    const auto f = chains == 16 / W   ? sums::whole_rows<C, T, 16 / W>
                   : chains == 32 / W ? sums::whole_rows<C, T, 32 / W>
                                      : sums::whole_rows<C, T, 64 / W>;
    f((const T*)terms, pitch, step, registers, (T*)results, rows);
  }
  static void finish(char* sums, int chains, int groups, char* result) {
    vec<T>* const own = (vec<T>*)sums;
    for (int g = 0; g < groups; g++) own[g] = halved<C>(own + g * chains, chains);
    T& total = *(T*)result;
    total = join_one(total, across<C>(halved<C>(own, groups)));
  }
  static void finish_beside(char* sums, int chains, long pitch, long rows, char* results) {
    T *own = (T*)sums, *total = (T*)results;
    for (int half = chains / 2; half; half /= 2)
      for (int c = 0; c < half; c++)
        for (long r = 0; r < rows; r += W)
          store(own + c * pitch + r,
                join<C>(load(own + c * pitch + r), load(own + (c + half) * pitch + r)));
    for (long r = 0; r < rows; r += W) store(total + r, join<C>(load(total + r), load(own + r)));
  }
  static T join_one(T a, T b) { return join<C>(splat(a), splat(b))[0]; }
  static constexpr auto own_whole() {
    if constexpr (common<C, T>) return whole;
    else return nullptr;
  }
  static constexpr Functions ALL = {clear, add, beside, own_whole(), finish, finish_beside};
};
#define GRAPHC_OF(T) {&Of<SUM, T>::ALL, &Of<PROD, T>::ALL, &Of<MAX, T>::ALL, &Of<MIN, T>::ALL}
const Functions* const FUNCTIONS[][4] = {GRAPHC_OF(float),  GRAPHC_OF(double),  GRAPHC_OF(uint8_t),
                                         GRAPHC_OF(int8_t), GRAPHC_OF(int32_t), GRAPHC_OF(int64_t)};
#undef GRAPHC_OF
}  // namespace
}  // namespace graphc::reduce
