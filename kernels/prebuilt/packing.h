// Copies of operands in the order in which tiles read them.
#pragma once
#include "cpu/shared/transpose.h"
#include "prebuilt/contraction.h"

namespace graphc::products {
// Offsets of terms, and what is known of them.
struct Terms {
  const int32_t* at;
  long count;
  long period;  // terms t and t + period are mostly neighbours in memory; 0 if none are
};

// `lines` lines of W neighbours become columns of `to`.
SHARED void turn(const float* from, const int32_t* lines_at, int lines, float* to, long to_stride) {
  vec<float> r[W];
#pragma GCC unroll 16
  for (int i = 0; i < W; i++) r[i] = i < lines ? load(from + lines_at[i]) : vec<float>{};
  exchange_rows<1>(r);
#pragma GCC unroll 16
  for (int i = 0; i < W; i++) store(to + i * to_stride, r[i]);
}

// to[t * pitch + i] = from[lines_at[i] + terms.at[t]] for at most W lines; the rest of W becomes zeros, or is
// left. `end` is where the operand ends.
inline void pack(const float* from, const float* end, const int32_t* lines_at, int lines,
                 const Terms& terms, float* to, long pitch) {
  bool adjacent = true;
  for (int i = 1; i < lines; i++) adjacent &= lines_at[i] == lines_at[0] + i;
  const auto copy = [&](long t) {
    float* const row = to + t * pitch;
    const float* const one = from + terms.at[t];
    for (int i = 0; i < lines; i++) row[i] = one[lines_at[i]];
    for (int i = lines; i < W; i++) row[i] = 0;
  };
  if (adjacent) {
    for (long t = 0; t < terms.count; t++) {
      const float* const one = from + lines_at[0] + terms.at[t];
      if (one + W <= end) store(to + t * pitch, load(one));
      else copy(t);
    }
    return;
  }
  if (terms.period == 0) {
    for (long t = 0; t < terms.count; t++) copy(t);
    return;
  }
  const long period = terms.period, run = W * period;
  long t = 0;
  for (; t + run <= terms.count;) {
    if (period == 1 && terms.at[t + W - 1] - terms.at[t] != W - 1) {
      copy(t++);
      continue;
    }
    for (long p = t; p < t + period; p++) {
      if (terms.at[p + run - period] - terms.at[p] == W - 1)
        turn(from + terms.at[p], lines_at, lines, to + p * pitch, period * pitch);
      else
        for (long u = p; u < p + run; u += period) copy(u);
    }
    t += run;
  }
  for (; t < terms.count; t++) copy(t);
}
}  // namespace graphc::products
