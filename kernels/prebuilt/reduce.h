// The description of a kernel with reductions.
//
// Rows are the indices along the axes that are kept. A block of them is computed loop by loop: a
// loop's program leaves the terms of its sums in scratch memory, a piece of the rows at a time, and
// reads the sums of the loops before it from there. Memories of programs are the node's arguments,
// the terms of each sum, and the results of each.
#pragma once
#include "prebuilt/strips.h"

namespace graphc::reduce {
// Axes from the slowest, cut into boxes: single indices of those before `cut_axis`, `cut` of that
// axis, all of those behind.
struct Cut {
  int32_t rank, cut_axis;
  int32_t axes[strips::AXES];  // of the domain
  int64_t cut, pieces;
  // Elements of scratch memory, of a block where lanes are split off.
  int64_t strides[strips::AXES];
  // A single step along an axis: a block's width or 1.
  int64_t single[strips::AXES];
};

// Of a row; or of a column, over all rows, in the workspace at `partial` for output `results`.
struct Sum {
  int32_t combine, dtype, bytes, column;
  int64_t terms, partial, results;  // bytes from the beginning of scratch memory
  // Memory that has the terms as they are, or -1; bytes before the first and elements from one index
  // of each axis of the domain, and from one register of a run, to the next.
  int64_t memory, offset, step, strides[strips::AXES];
};

// What is computed once per row and kept for later programs.
struct Once {
  int64_t place, bytes;
};

struct Loop {
  // Programs, in bytes from the beginning: once per row, and per element; or 0.
  int64_t first, each;
  int32_t begin, end;  // its sums
};

struct Reduce {
  int64_t arguments;              // of the node
  int64_t phase, chunks, blocks;  // which phase does the work, and in how many chunks; of rows
  int64_t loops, sums, once, loops_at, sums_at, once_at;  // the last loop has no elements
  int64_t scratch;                                        // bytes
  int64_t along;   // whether a register of terms belongs to one row, not to neighbouring rows
  int64_t across;  // whether its lanes are those of blocks of an axis, of which a run has all
  // Elements from one row to the next, or, where rows lie beside each other, of a term.
  int64_t pitch;
  int64_t run;             // elements from one run along the last axis to the next
  int64_t chains, groups;  // sums that take registers of a run, and those that take blocks, in turn
  int64_t parts, steps, step;  // of a row: steps of so many indices along its first axis
  int64_t lane, width;         // the axis whose blocks are split off, or -1
  // Of sums over all rows: parts of the rows, of steps of so many of them; bytes that a part has in
  // the workspace; chunks that add the parts in the second phase. No parts if there are none.
  int64_t column_parts, column_steps, column_step, column_bytes, column_chunks;
  int64_t extents[strips::AXES];
  Cut rows, row;

  template <class T> const T* array(int64_t at) const { return (const T*)((const char*)this + at); }
};
}  // namespace graphc::reduce
