// What a description says of a contraction: its axes, how they walk through the operands, which
// products exist, and how the output is cut into units of work.
//
//   out[kept] = epilogue(sum over the summed axes of X * Y)
//
// Kept axes are batch axes, which both operands have, then rows, which X alone has, then columns,
// which Y alone has; the last column axis lies in the lanes. X is multiplied as a broadcast element,
// Y as a register. Or a summed axis lies in the lanes of both, so that both are registers, whose
// lanes are added at the end (`lanes_summed`).
//
// Terms are added in the order of the summed axes, of which the last runs fastest. Which of them
// exist depends on the kept index through pairs of axes, one kept and one summed (a pixel and a tap).
// Rows or columns for which the same terms exist are a class; a tile is of one class, and terms that
// do not exist are left out of its list of steps.
#pragma once
#include "cpu/shared/lanes.h"

namespace graphc::products {
constexpr int AXES = 12, PAIRS = 4, SUMMED = 3;
constexpr int PARTIAL = 16;  // partial sums of lanes that are added at the end, on every CPU

// The offset of index i along an axis, in elements: i * stride, in blocks of lanes, or from a table.
struct Walk {
  int64_t stride;
  int64_t block;  // from one block of lanes to the next; 0 without lanes
  int64_t table;  // where int32 offsets lie, in bytes from the description; 0 without a table
};

struct Axis {
  int64_t extent;
  int64_t pieces, step;  // of the units of work; pieces begin at multiples of the step
  Walk x, y;
  Walk sums,
      out;  // of kept axes: in the sums of a unit, where it counts from the unit's first index,
            // and in the output
};

// Of the kept index a and the summed index z: which z exist for a.
struct Pair {
  int64_t kept, summed;  // the numbers of the axes
  int64_t classes;
  int64_t class_of;        // uint8 [extent of a]: its class, in bytes from the description
  int64_t exists;          // uint8 [classes][extent of z]
  int64_t x_term, y_term;  // int32 [classes][extent of z] to add to the offsets of terms, or 0
};

struct Contraction {
  int64_t phase, chunks, units;
  int64_t lanes_summed;
  int64_t x_argument, y_argument, out_argument;
  int64_t x_offset, y_offset;              // of the first elements that are read
  int64_t x_size, y_size;                  // where the operands end; all in elements
  int64_t batches, rows, columns, summed;  // numbers of axes
  int64_t pairs;
  int64_t parts;          // ranges of the first summed axis that are summed apart
  int64_t parts_apart;    // whether each part is a unit of its own, and the next phase adds them
  int64_t workspace;      // the argument that then holds the sums of all parts
  int64_t finish_chunks;  // of the next phase
  // The summed axis of which PARTIAL partial sums take the terms in turn, and its indices; else -1.
  // Its extent as an axis is the most terms of a partial sum.
  int64_t strided, strided_extent;
  int64_t block;  // indices of the first summed axis, or of the first two, in a block of terms
  int64_t block_depth;  // how many summed axes a block cuts: 1 or 2
  int64_t shifts;       // whether all blocks of terms lie alike, and the same of them exist
  int64_t packed;       // whether Y is copied into panels
  int64_t lane_step;    // elements of Y from one lane to the next; 1 is a load of a register
  int64_t x_neighbours, y_neighbours;     // whether the first summed axis goes through neighbours
  int64_t lane_blocks, x_block, y_block;  // registers of a summed axis in lanes, and how far apart
  int64_t sums;                           // floats of a unit's sums
  int64_t direct;                         // whether tiles write to the output
  int64_t epilogue;   // where its program of strips lies, in bytes; 0 where the sums are the output
  int64_t arguments;  // of the node: their number is that of the sums in the program's memory
  // The kept axis whose indices are finished one by one, or -1, and what the program's indices then
  // move by in the sums.
  int64_t apart, apart_step;
  int64_t finished;             // axes of the program's domain
  int64_t finished_axis[8];     // the kept axis that each follows, or -1 for all of it
  int64_t finished_factor[8];   // its indices are those of the kept axis times the factor
  int64_t finished_divisor[8];  // by the divisor
  int64_t finished_extent[8];
  int64_t laned_output;  // whether the output's columns lie in blocks whose rest is zero
  Axis axes[AXES];
  Pair pair[PAIRS];

  template <class T> const T* table(int64_t at) const { return (const T*)((const char*)this + at); }
  long offset(const Walk& walk, long i) const {
    if (walk.table) return table<int32_t>(walk.table)[i];
    return walk.block ? i / W * walk.block + i % W : i * walk.stride;
  }
  long kept() const { return batches + rows + columns; }
  const Axis& lane() const { return axes[kept() - 1]; }
};
static_assert(sizeof(Contraction) == 8 * (34 + 4 * 8 + 6 + 15 * AXES + 7 * PAIRS));
}  // namespace graphc::products
