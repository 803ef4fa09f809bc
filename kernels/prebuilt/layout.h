// How a box of a program's domain is cut into strips, and where the accesses lie in them.
#pragma once
#include "prebuilt/strips.h"

namespace graphc::strips {
// `extent` indices, `stride` bytes from one to the next.
struct Level {
  long extent, stride;
};

enum Way : uint8_t {
  IN_PLACE,  // the elements of a strip are neighbours
  SAME,      // one element is that of the whole strip
  ROWS,      // one element is that of a whole row of the strip
  COPIED,    // others, run by run
};

// An access in the strips of a box. Addresses are numbers, so that an index is one, too.
struct Lines {
  long first;          // at the box's first element
  long here;           // at the strip's
  long stride[AXES];   // along the layout's axes
  Level levels[AXES];  // the axes of a strip, from the fastest, as few as step alike
  long jump;           // of what is used in place: bytes from a row's end to the next row
  int depth, bytes, padding;
  Way way;
};

// The axes of a box, as few as all accesses step through alike. Those from `inner` on are in a strip,
// `inner` itself `cut` indices of it at a time.
struct Layout {
  int rank = 0, inner = 0;
  long extent[AXES];
  uint32_t axes[AXES];  // the domain's
  long cut = 1, behind = 1, pieces = 1, strips = 1;
  long row = 0;  // elements of the last axis where a strip is `cut` rows of whole registers, else 0

  // The layout's axes among those of the domain, as bits.
  uint32_t merged(uint32_t domain) const {
    uint32_t found = 0;
    for (int d = 0; d < rank; d++) found |= uint32_t((axes[d] & domain) != 0) << d;
    return found;
  }
  // Indices of an axis in a strip: 1 of those outside, and where there is no such axis.
  long extent_in_strip(int d) const { return d < inner ? 1 : d == inner ? cut : extent[d]; }
  uint32_t in_strip() const { return (~0u << inner) & ((1u << rank) - 1); }
};

// Appends an axis to the layout, or joins it to the last one.
inline void append(Layout& layout, const Program& p, Lines* lines, int axis, uint32_t bit,
                   long extent) {
  const Access* accesses = p.array<Access>(p.accesses_at);
  bool joins = layout.rank > 0;
  for (int a = 0; joins && a < p.accesses; a++)
    joins = lines[a].stride[layout.rank - 1] == accesses[a].strides[axis] * extent;
  const int at = joins ? layout.rank - 1 : layout.rank++;
  layout.extent[at] = joins ? layout.extent[at] * extent : extent;
  layout.axes[at] = joins ? layout.axes[at] | bit : bit;
  for (int a = 0; a < p.accesses; a++) lines[a].stride[at] = accesses[a].strides[axis];
}

constexpr long ENOUGH = 128;  // elements of a strip beside which its beginning costs little

// Makes a strip of some rows, each of which is the last axis and fills registers. Operations go from row
// to row in steps of their own, so that accesses that do not step alike along both axes need not be copied.
inline bool cut_rows(Layout& layout, long most) {
  if (layout.rank < 2) return false;
  const long row = layout.extent[layout.rank - 1], extent = layout.extent[layout.rank - 2];
  if (row % W != 0 || 2 * row > most || (extent * row < ENOUGH && layout.rank > 2)) return false;
  const long fitting = least(most / row, extent), pieces = (extent + fitting - 1) / fitting;
  layout.inner = layout.rank - 2, layout.row = layout.behind = row;
  layout.cut = (extent + pieces - 1) / pieces;
  layout.pieces = layout.strips = (extent + layout.cut - 1) / layout.cut;
  for (int d = 0; d < layout.inner; d++) layout.strips *= layout.extent[d];
  return true;
}

// Takes axes into the strip while it has room, and as many indices of one more as fit. What some accesses do not step through as
// through one axis is left outside if the strip is long enough without.
inline void cut(Layout& layout, long most) {
  int inner = layout.rank;
  long behind = 1;
  while (inner > 0 && behind < ENOUGH && behind * layout.extent[inner - 1] <= most)
    behind *= layout.extent[--inner];
  if (inner > 0 && behind < ENOUGH && most / behind > 1) {
    const long extent = layout.extent[--inner], fitting = most / behind;
    long own = (extent + fitting - 1) / fitting;
    own = (extent + own - 1) / own;
    if (behind == 1) own = (own + 15) / 16 * 16;
    layout.cut = own, layout.behind = behind, layout.pieces = (extent + own - 1) / own;
  } else if (inner < layout.rank) {
    layout.cut = layout.extent[inner], layout.behind = behind / layout.cut;
  }
  layout.inner = inner;
  layout.strips = layout.pieces;
  for (int d = 0; d < inner; d++) layout.strips *= layout.extent[d];
}

// Decides how an access is made.
inline void place(Lines& own, const Layout& layout, const Access& access, long padding) {
  own.bytes = access.bytes, own.depth = 0, own.padding = access.padded ? int(padding) : 0;
  bool same = true, dense = true;
  long expected = access.bytes;
  for (int d = layout.rank - 1; d >= layout.inner; d--) {
    const long stride = own.stride[d], extent = layout.extent_in_strip(d);
    same = same && stride == 0, dense = dense && stride == expected;
    expected *= extent;
    Level& last = own.levels[own.depth - (own.depth > 0)];
    if (own.depth && last.stride * last.extent == stride && !own.padding) last.extent *= extent;
    else own.levels[own.depth++] = {extent, stride};
  }
  if (!own.depth) own.levels[own.depth++] = {1, access.bytes};
  own.way = same ? SAME : dense && !own.padding ? IN_PLACE : COPIED, own.jump = 0;
  if (!layout.row || own.way != COPIED) return;
  const long across = own.stride[layout.rank - 1], down = own.stride[layout.rank - 2];
  if (across == 0) own.way = ROWS;
  if (across == access.bytes) own.way = IN_PLACE, own.jump = down - layout.row * access.bytes;
}

// Where the accesses begin for the box from `low` on.
inline void begin_at(const Program& p, char* const* memory, const long* low, Lines* lines) {
  const Access* accesses = p.array<Access>(p.accesses_at);
  for (int a = 0; a < p.accesses; a++) {
    const Access& access = accesses[a];
    long first = access.offset;
    if (access.memory == OWN) first += (long)&p;
    else if (access.memory >= 0) first += (long)memory[access.memory];
    for (int d = 0; d < p.rank; d++)
      first += access.strides[d] * (d == p.lane ? low[d] / p.width : low[d]);
    lines[a].first = first;
  }
}

// The layout of low <= index < high, of whose blocks of lanes `lanes` are live each.
inline Layout lay_out(const Program& p, const long* low, const long* high, long lanes,
                      Lines* lines) {
  Layout layout;
  const Access* accesses = p.array<Access>(p.accesses_at);
  for (int k = 0; k < p.rank; k++) {
    const int d = p.order[k];
    const long size = d == p.lane ? p.width : 1;
    const long extent = (high[d] - low[d] + size - 1) / size;
    if (extent > 1) append(layout, p, lines, d, 1u << d, extent);
  }
  if (p.lane >= 0) append(layout, p, lines, p.rank, 1u << p.lane, lanes);
  const bool by_rows = p.plain && (p.lane < 0 || lanes == p.width);
  if (!by_rows || !cut_rows(layout, p.strip)) cut(layout, p.strip);
  for (int a = 0; a < p.accesses; a++) place(lines[a], layout, accesses[a], p.width - lanes);
  return layout;
}

// Calls body(address, place, count) for every run of the first n elements of a strip.
template <class Body> INLINE void each_run(const Lines& own, long n, const Body& body) {
  long index[AXES] = {}, at = own.here;
  const long run = own.levels[0].extent;
  for (long k = 0; k < n; k += run) {
    body(at, k, least(run, n - k));
    for (int d = 1; d < own.depth; d++) {
      at += own.levels[d].stride;
      if (++index[d] < own.levels[d].extent) break;
      at -= own.levels[d].stride * own.levels[d].extent;
      index[d] = 0;
    }
  }
}
}  // namespace graphc::strips
