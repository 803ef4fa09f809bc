// The terms of sums: where they lie in both operands, and which exist for a class of lines.
#pragma once
#include "prebuilt/lines.h"
#include "prebuilt/packing.h"
#include "prebuilt/products.h"

namespace graphc::products {
// The terms of a class of a side, by their indices along the summed axes.
struct Existing {
  int32_t* at[SUMMED];  // what each index adds to the offset
  uint8_t* on[SUMMED];  // whether terms of the index exist; those of the last axis are in `last`
  int32_t last_count;
  int32_t *last, *rank;  // the indices of the last axis whose terms exist, and which one each is
};

// The indices of summed axis number `s`, of which a strided one has those of a lane.
inline long extent_of(const Contraction& d, long s) {
  return s == d.strided ? d.strided_extent : d.axes[d.kept() + s].extent;
}
// How many of them are listed: where blocks lie alike, those of the first one.
inline long listed_of(const Contraction& d, long s) {
  const long extent = d.axes[d.kept() + s].extent;
  return s == 0 && d.shifts ? least(extent, d.block) : extent;
}
inline long index_of(const Contraction& d, long s, long i, long lane) {
  return s == d.strided ? i * PARTIAL + lane : i;
}

// The existing terms of all classes of a side; of a strided axis, those of a lane.
template <int COUNT>
Existing* list_existing(const Contraction& d, long lane, const Classes& classes, const Side& side,
                        bool x, Scratches<COUNT>& scratch, int memory) {
  const Axis* const z = d.axes + d.kept();
  const long all = z[0].extent + z[1].extent + z[2].extent, words = 2 * all + 2 * z[2].extent;
  const long each = ceil_div(sizeof(Existing), 4) * 4 + words * 4;
  char* const memory_at = scratch.template get<char>(memory, classes.count * each);
  auto* const found = (Existing*)memory_at;
  auto* next = (int32_t*)(found + classes.count);
  for (long k = 0; k < classes.count; k++) {
    if (side.first[k] == side.first[k + 1]) continue;
    Existing& own = found[k];
    for (int s = 0; s < SUMMED; s++) {
      own.at[s] = next, own.on[s] = (uint8_t*)(next + z[s].extent);
      next += 2 * z[s].extent;
      for (long i = 0; i < listed_of(d, s); i++) {
        const long index = index_of(d, s, i, lane);
        own.on[s][i] = index < extent_of(d, s);
        own.at[s][i] = own.on[s][i] ? int32_t(d.offset(x ? z[s].x : z[s].y, index)) : 0;
      }
    }
    for (long p = 0; p < d.pairs; p++) {
      if (!classes.apart[p]) continue;
      const Pair& pair = d.pair[p];
      const long s = pair.summed - d.kept();
      const long first = classes.digit(d, p, k) * extent_of(d, s);
      const int64_t term = x ? pair.x_term : pair.y_term;
      for (long i = 0; i < listed_of(d, s); i++) {
        if (!own.on[s][i]) continue;
        const long index = first + index_of(d, s, i, lane);
        own.on[s][i] = d.table<uint8_t>(pair.exists)[index];
        if (term) own.at[s][i] += d.table<int32_t>(term)[index];
      }
    }
    own.last = next, own.rank = next + z[2].extent;
    next += 2 * z[2].extent;
    own.last_count = 0;
    for (long i = 0; i < z[2].extent; i++) {
      own.rank[i] = own.last_count;
      if (own.on[2][i]) own.last[own.last_count++] = int32_t(i);
    }
  }
  return found;
}

// Units [begin, end) of terms: indices of the first `block_depth` summed axes.
struct Block {
  long begin, end;
};

// Calls body(i, k) for the indices of the first two summed axes in a block.
template <class Body> INLINE void each_pair(const Contraction& d, Block block, const Body& body) {
  const long middle = d.axes[d.kept() + 1].extent;
  if (d.block_depth == 1) {
    for (long i = block.begin; i < block.end; i++)
      for (long k = 0; k < middle; k++) body(i, k);
    return;
  }
  long i = block.begin / middle, k = block.begin % middle;
  for (long u = block.begin; u < block.end; u++) {
    body(i, k);
    if (++k == middle) k = 0, i++;
  }
}

// The offsets of a class's terms in a block.
inline long list_terms(const Contraction& d, Block block, const Existing& own, int32_t* to) {
  int32_t* const begin = to;
  each_pair(d, block, [&](long i, long k) {
    if (!(own.on[0][i] & own.on[1][k])) return;
    const int32_t base = own.at[0][i] + own.at[1][k];
    for (long n = 0; n < own.last_count; n++) to[n] = base + own.at[2][own.last[n]];
    to += own.last_count;
  });
  return to - begin;
}

// The steps of terms that exist for a class of rows and one of columns. An operand that is copied, by
// a pitch above 0, has its class's terms one behind another; else they are in place.
inline long list_steps(const Contraction& d, Block block, const Existing& x, const Existing& y,
                       long x_pitch, long y_pitch, int32_t* both, Step* to) {
  Step* const begin = to;
  long count = 0;
  for (long n = 0; n < x.last_count; n++)
    if (y.on[2][x.last[n]]) both[count++] = x.last[n];
  long row = 0, column = 0;
  each_pair(d, block, [&](long i, long k) {
    const bool in_x = x.on[0][i] & x.on[1][k], in_y = y.on[0][i] & y.on[1][k];
    if (in_x && in_y) {
      const int32_t x_at = x.at[0][i] + x.at[1][k], y_at = y.at[0][i] + y.at[1][k];
      for (long n = 0; n < count; n++) {
        const long m = both[n];
        to[n] = {x_pitch ? int32_t((row + x.rank[m]) * x_pitch) : x_at + x.at[2][m],
                 y_pitch ? int32_t((column + y.rank[m]) * y_pitch) : y_at + y.at[2][m]};
      }
      to += count;
    }
    row += in_x ? x.last_count : 0, column += in_y ? y.last_count : 0;
  });
  for (int n = 0; n < AHEAD; n++) to[n] = to > begin ? to[-1] : Step{0, 0};
  return to - begin;
}

// How the terms of a class lie: neighbours along the first axis, or runs of neighbours.
inline Terms terms_of(const int32_t* at, long count, long indices, bool neighbours) {
  if (neighbours && count) return {at, count, count / indices};
  bool ascending = true;
  for (long t = 1; t < count; t++) ascending &= at[t] > at[t - 1];
  return {at, count, ascending ? 1 : 0};
}

// The offsets of the terms of one class in a block; where blocks lie alike, for all of them.
struct ListedTerms {
  int32_t* at;
  bool neighbours;
  long kind = -1;
  Terms terms{};

  Terms of(const Contraction& d, Block block, long number, const Existing& own) {
    const long whole = least(d.block, d.axes[d.kept()].extent);
    if (!d.shifts || number != kind) {
      const Block listed = d.shifts ? Block{0, whole} : block;
      terms = terms_of(at, list_terms(d, listed, own, at), listed.end - listed.begin, neighbours);
      kind = number;
    }
    Terms found = terms;
    if (d.shifts) found.count = terms.count / whole * block.end;
    return found;
  }
};
}  // namespace graphc::products
