// strips: straight-line code over an index space with a description read at run time.
//
// A Program holds what a kernel's text would say: the accesses of a body, and its statements as
// instructions over strips, boxes of some hundred elements that lie in the first-level cache. Each
// instruction is a function over the registers of its operands' strips, compiled once, with the same
// expression as in generated kernels (operations.h), so that the bits are the same.
//
// An operand that lies contiguous along a strip is used in place; what is the same along it is one
// register; others are gathered into a strip of their own. What does not change from one strip to
// the next is kept.
#pragma once
#include "cpu/shared/lanes.h"
#include "prebuilt/scratch.h"

namespace graphc::strips {
constexpr int AXES = 8;        // of a domain, its lanes included
constexpr int CONSTANT = 128;  // bytes of a constant: a register of any width
constexpr int OWN = -1;        // the memory that is the program itself: constant arrays

// The element at the domain's index i lies at offset + sum of strides[d] * i[d] bytes of its memory.
// Where lanes are split off, stride `lane` is that of a block and stride `rank` that of a lane. As an
// index (for conditions, counters and reads under a condition) it counts elements instead.
struct Access {
  int32_t memory;
  int16_t bytes;   // of an element
  int16_t padded;  // whether the lanes behind the last element of a block are to be zeros
  int64_t offset;
  int64_t strides[AXES];
};

// A strip in scratch memory.
struct Value {
  int32_t offset;  // in bytes
  int32_t bytes;   // of an element
};

// What it does: from FIRST on the number of an operation, else one of these.
enum Kind : int32_t { LOAD, STORE, INDEX, INSIDE, LOAD_IF, TAKE, SEARCH, PHILOX, WINDOW, FIRST };

// Places count the accesses, then the values, then the constants; -1 is none.
struct Instruction {
  int32_t kind;
  int32_t result;       // the place that it writes
  int32_t operands[4];  // the places that it reads
  uint32_t axes;        // the axes of the domain that the result depends on, a bit each
  int32_t settings;     // the first of its numbers among the settings
};

// The arrays lie behind it, at offsets in bytes from its beginning, a multiple of 64.
struct Program {
  int32_t rank, lane, width;  // axes; the axis whose blocks of `width` are split off, or -1
  int32_t strip;              // most elements of a strip, a multiple of 16
  int32_t accesses, values, constants, instructions;
  int32_t accesses_at, values_at, constants_at, instructions_at, settings_at;
  int32_t scratch;  // bytes
  int64_t extents[AXES];
  int32_t order[AXES];  // the axes from the slowest to the fastest
  int32_t plain;        // whether all instructions are operations, loads and stores

  template <class T> const T* array(int32_t at) const { return (const T*)((const char*)this + at); }
};

// A program made ready for boxes of one size. The program stays as it is until `program` is set to null.
struct Kept {
  const Program* program = nullptr;
  long size[AXES];
  Scratch tables;
};

// Plays the program for the box low <= index < high of its domain. memory[i] is the address of memory
// i: a node's arguments in order, then what the caller adds. Along a split axis, low is a multiple of
// the width, and so is high unless it is the extent.
// What it finds out about the program stays in `kept`, if given, for the next box of the same size.
void run(const Program& program, char* const* memory, const long* low, const long* high,
         Kept* kept = nullptr);

// The strips of the whole domain, and playing [part / parts, (part + 1) / parts) of them.
void run_share(const Program& program, char* const* memory, long begin, long end, long of);
}  // namespace graphc::strips
