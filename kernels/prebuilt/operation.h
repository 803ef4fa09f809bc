// The type of the functions that strips are computed by.
#pragma once

namespace graphc::strips {
// Where the registers of operands and result begin, the bytes from one register of a row to the next, 0
// for an operand that is the same in all, and those from a row's end to the next row.
struct Operands {
  char* result;
  const char* at[3];
  long step[3];
  long jump[4];  // the last one is the result's
};
using Operation = void (*)(const Operands& operands, long registers, long rows);

extern const Operation OPERATIONS[];
}  // namespace graphc::strips
