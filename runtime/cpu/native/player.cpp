// The C interface of the player; runtime/cpu/player.py holds its Python side.
#ifdef GRAPHC_CALLER  // Python's header comes first
#include "caller.h"
#endif
#include <pthread.h>

#include <new>

#include "pool.h"

using graphc::Argument;
using graphc::LoopSpec;
using graphc::Move;
using graphc::Pool;
using graphc::Program;
using graphc::TaskSpec;

namespace {

// Never freed: its threads live as long as the process. A forked child has none of its parent's
// threads, so it begins with a pool of its own.
Pool* pool = new Pool;

[[maybe_unused]] const int at_fork = pthread_atfork(nullptr, nullptr, [] { pool = new Pool; });

}  // namespace

extern "C" {

// Null if memory is short.
Program* graphc_load(const TaskSpec* tasks, int task_count, const int32_t* successors,
                     int successor_count, const Argument* arguments, int argument_count,
                     const LoopSpec* loops, int loop_count, const Move* moves, int move_count,
                     int slots, int threads, int flush) {
  try {
    return new Program(tasks, task_count, successors, successor_count, arguments, argument_count,
                       loops, loop_count, moves, move_count, slots, threads, flush != 0);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void graphc_free(Program* program) {
  pool->forget(*program);
  delete program;
}

// Let another function play a task from now on. Only between calls.
void graphc_replace(Program* program, int task, graphc::Function function) {
  program->replace(task, function);
}

void graphc_play(Program* program, const uint64_t* bases) {
  program->bind(bases);
  pool->play(*program);
}

// Tasks `first` to `last` (exclusive) by this thread alone, in the order of the list, in these
// iterations of the loops around them.
void graphc_play_in_order(Program* program, const uint64_t* bases, int first, int last,
                          const int32_t* iterations) {
  program->bind(bases);
  program->seek(iterations);
  graphc::FloatingPointMode mode(program->flush());
  program->play_in_order(first, last);
  program->rewind();
}

// As graphc_play; `times` takes the first start and the last end of each task, nanoseconds of one
// clock, and how many it took in all iterations.
void graphc_play_timed(Program* program, const uint64_t* bases, int64_t* times) {
  program->bind(bases);
  program->time(true);
  pool->play(*program);
  program->time(false);
  for (int i = 0; i < program->task_count(); i++) {
    times[3 * i] = program->task(i).start;
    times[3 * i + 1] = program->task(i).stop;
    times[3 * i + 2] = program->task(i).spent;
  }
}

#ifdef GRAPHC_CALLER
PyMODINIT_FUNC PyInit_graphc_caller() { return graphc::caller::module(); }
#endif

}  // extern "C"
