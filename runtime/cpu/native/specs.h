// What the loader says of a plan, in the layouts of runtime/cpu/player.py.
#pragma once
#include <cstdint>

namespace graphc {

using Function = void (*)(void* const* arguments, int phase, int chunk);

// What the loader says of a task. Laid out as `TASK` in runtime/cpu/player.py.
struct TaskSpec {
  Function function;       // null for a copy from argument 0 to argument 1
  int64_t bytes;           // of a copy
  int32_t first_argument;  // index in the table of arguments; one before it may be what a prebuilt
                           // function reads of its kernel
  int32_t phase;
  int32_t chunks;           // at least 1
  int32_t slot;             // the stream
  int32_t predecessors;     // how many tasks it waits for
  int32_t first_successor;  // index in the list of successors
  int32_t successors;
  int32_t inside;      // index of the loop around it, or -1
  int32_t stands_for;  // index of the loop that it is, or -1
  int32_t first;       // the iterations of that loop around it in which it does anything:
  int32_t last;        // `first` to `last` (exclusive)
  int32_t guarded;     // whether it does nothing where the guard of that loop is false
  int64_t message;     // whether it waits for other processes, so that no worker is to play it
};

// A loop over the `tasks` tasks behind the one that stands for it. Laid out as `LOOP`.
struct LoopSpec {
  int32_t task;
  int32_t tasks;
  int32_t count;       // at least 1
  int32_t first_move;  // index in the list of moves
  int32_t moves;
  int32_t
      guard;  // index of the argument that says, when an iteration begins, whether guarded tasks
              // are to do anything: a byte; or -1
};

// In iteration t the argument lies (t mod period) * stride bytes from where it begins. Laid out as
// `MOVE`.
struct Move {
  int64_t stride;
  int32_t argument;
  int32_t period;
};

// An argument's address is that of its base, which may change from call to call, plus an offset.
// Laid out as `ARGUMENT` in runtime/cpu/player.py.
struct Argument {
  int64_t base;
  int64_t offset;
};

}  // namespace graphc
