// The type of the functions that strips are computed by.
#pragma once

namespace graphc::strips {
// Where the registers of operands and result begin, and the bytes from one register to the next: 0 for
// an operand that is the same in all.
struct Operands {
  char* result;
  const char* at[3];
  long step[3];
};
using Operation = void (*)(const Operands& operands, long registers);

extern const Operation OPERATIONS[];
}  // namespace graphc::strips
