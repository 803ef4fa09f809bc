// A plan as the player sees it: a list of tasks with edges.
//
// A task is one phase of a launch, or a copy. The order of a stream and its events have become
// edges between tasks before they reach this file, so a task may run when its `waiting` falls to
// zero. At most one task of a stream is ready at a time; it lies in the stream's slot as a
// ticket: the task's index in the upper half, the next chunk to take in the lower. A worker takes
// a chunk by adding one to the ticket; what the addition returns says which task and chunk it got,
// so a worker that comes late takes a chunk of whatever is there by then, or nothing. The worker
// that ends the last chunk of a task makes its successors ready. One that has a single chunk it
// plays itself, without telling anybody.
//
// A loop is a task that stands for those behind it in the list, which wait for nothing outside of
// it. When it is ready, those that wait for nothing begin; when the last of them has ended, the
// worker that ended it moves the addresses on and lets them begin again, or ends the loop.
//
// Every counter is set back by the worker that brings it to zero, so a program is ready to be
// played again when the last task has ended.
#pragma once
#include <time.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "specs.h"

namespace graphc {

// Of a clock that never goes back. Not <chrono>, which compiles for longer than all of this.
inline int64_t nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1000000000} + now.tv_nsec;
}

constexpr int64_t copy_chunk = 1 << 18;  // bytes of a copy that one chunk moves

struct alignas(64) Task {
  TaskSpec spec;
  int64_t start = 0, stop = 0;              // nanoseconds, where the program is timed: first
  int64_t begin = 0, spent = 0;             // start, last end; start of this run, sum of all
  alignas(64) std::atomic<int> waiting{0};  // predecessors that have not ended
  std::atomic<int> unfinished{0};           // chunks that have not ended
};

struct alignas(64) Loop {
  LoopSpec spec;
  std::vector<int> roots;  // tasks that wait for nothing
  int sinks = 0;
  int iteration = 0;                           // written between iterations alone, as is
  bool skips = false;                          // whether guarded tasks do nothing
  alignas(64) std::atomic<int> unfinished{0};  // sinks that have not ended
};

struct alignas(64) Slot {
  std::atomic<uint64_t> ticket{uint64_t{1} << 31};
};

class Program;

// A thread that plays the tasks that wait for other processes, in the order in which they are
// posted.
class Messenger {
 public:
  virtual void post(Program& program, int task) = 0;

 protected:
  ~Messenger() = default;
};

class Program {
 public:
  Program(const TaskSpec* specs, int tasks, const int32_t* successors, int successor_count,
          const Argument* arguments, int argument_count, const LoopSpec* loops, int loop_count,
          const Move* moves, int move_count, int slots, int threads, bool flush)
      : task_count_(tasks),
        slot_count_(slots),
        threads_(threads),
        loop_count_(loop_count),
        flush_(flush),
        tasks_(new Task[tasks]),
        slots_(new Slot[slots]),
        loops_(new Loop[loop_count]),
        successors_(successors, successors + successor_count),
        moves_(moves, moves + move_count),
        arguments_(arguments, arguments + argument_count),
        table_(argument_count) {
    bool several_chunks = false;
    for (int i = 0; i < loop_count; i++) loops_[i].spec = loops[i];
    for (int i = 0; i < tasks; i++) {
      Task& task = tasks_[i];
      task.spec = specs[i];
      task.waiting = specs[i].predecessors;
      task.unfinished = specs[i].chunks;
      several_chunks |= specs[i].chunks > 1;
      sends_ |= specs[i].message != 0;
      const int loop = specs[i].inside;
      if (specs[i].predecessors == 0) (loop < 0 ? roots_ : loops_[loop].roots).push_back(i);
      if (specs[i].successors == 0) (loop < 0 ? sinks_ : loops_[loop].sinks)++;
    }
    parallel_ = sends_ || (threads > 1 && (several_chunks || slots > 1));
  }

  int threads() const { return threads_; }
  bool parallel() const { return parallel_; }
  bool sends() const { return sends_; }  // whether a messenger plays some of its tasks
  bool flush() const { return flush_; }  // numbers below the smallest normal one to zero
  bool finished() const { return unfinished_sinks_.load(std::memory_order_acquire) == 0; }
  const Task& task(int index) const { return tasks_[index]; }
  int task_count() const { return task_count_; }

  // Let a task, which is no copy, be played by another function. Only between calls.
  void replace(int task, Function function) { tasks_[task].spec.function = function; }

  // Let the arguments be what `bases` says. Only between calls.
  void bind(const uint64_t* bases) {
    for (size_t i = 0; i < table_.size(); i++) {
      const uint64_t address = bases[arguments_[i].base] + uint64_t(arguments_[i].offset);
      table_[i] = reinterpret_cast<void*>(address);
    }
  }

  // Let the arguments be those of one iteration of each loop. Between `bind` and playing.
  void seek(const int32_t* iterations) {
    for (int i = 0; i < loop_count_; i++) {
      loops_[i].iteration = iterations[i];
      loops_[i].skips = false;
      for (int m = 0; m < loops_[i].spec.moves; m++) {
        const Move& move = moves_[loops_[i].spec.first_move + m];
        shift(move, iterations[i] % move.period * move.stride);
      }
    }
  }

  // Let the loops begin with their first iterations again.
  void rewind() {
    for (int i = 0; i < loop_count_; i++) loops_[i].iteration = 0;
  }

  void time(bool timed) {
    timed_ = timed;
    if (timed)
      for (int i = 0; i < task_count_; i++) tasks_[i].start = tasks_[i].spent = 0;
  }

  // Tasks `first` to `last` (exclusive), one after another, in the order of the list.
  void play_in_order(int first, int last) {
    for (int i = first; i < last; i++) {
      Task& task = tasks_[i];
      starts(task);
      if (task.spec.stands_for >= 0) {
        Loop& loop = loops_[task.spec.stands_for];
        while (!skipped(task) && loop.iteration < loop.spec.count) {
          look(loop);
          play_in_order(i + 1, i + 1 + loop.spec.tasks);
          advance(loop, ++loop.iteration);
        }
        loop.iteration = 0;
        i += loop.spec.tasks;
      } else {
        for (int chunk = 0; chunk < task.spec.chunks; chunk++) run(task, chunk);
      }
      stops(task);
    }
  }

  // Make the tasks without predecessors ready. The caller of `play` does this, then works. The
  // messenger is there if the program sends.
  void begin(Messenger* messenger) {
    messenger_ = messenger;
    unfinished_sinks_.store(sinks_, std::memory_order_relaxed);
    for (int root : roots_) {
      Task* kept = release(root, nullptr);
      if (kept) publish(int(kept - tasks_.get()));
    }
  }

  // Take chunks of one ready task until it has none left. False if no task was ready.
  bool work() {
    for (int i = 0; i < slot_count_; i++)
      if (work(slots_[i].ticket)) return true;
    return false;
  }

  // Play a task that was posted, on the messenger's thread, which leaves what follows to workers.
  void deliver(int index) {
    Task& task = tasks_[index];
    starts(task);
    run(task, 0);
    task.unfinished.store(task.spec.chunks, std::memory_order_relaxed);
    stops(task);
    const Task* next = release_successors(task, nullptr);
    if (next) publish(int(next - tasks_.get()));
  }

 private:
  bool available(uint64_t ticket) const {
    return uint32_t(ticket) < uint32_t(tasks_[ticket >> 32].spec.chunks);
  }

  bool work(std::atomic<uint64_t>& slot) {
    if (!available(slot.load(std::memory_order_acquire))) return false;
    const uint64_t ticket = slot.fetch_add(1, std::memory_order_acq_rel);
    if (!available(ticket)) return false;
    // While this worker has chunks that are not yet counted as ended, the task stays.
    Task& task = tasks_[ticket >> 32];
    const uint32_t chunks = uint32_t(task.spec.chunks);
    if (uint32_t(ticket) == 0) starts(task);
    int ended = 0;
    for (uint32_t chunk = uint32_t(ticket); chunk < chunks;
         chunk = uint32_t(slot.fetch_add(1, std::memory_order_acq_rel))) {
      run(task, int(chunk));
      ended++;
    }
    if (task.unfinished.fetch_sub(ended, std::memory_order_acq_rel) == ended) end(task);
    return true;
  }

  // `task` has ended: make what waits for it ready, and play on while that is a single chunk.
  void end(Task& task) {
    for (Task* ended = &task; ended;) {
      ended->unfinished.store(ended->spec.chunks, std::memory_order_relaxed);
      stops(*ended);
      Task* next = release_successors(*ended, nullptr);
      if (next) {
        starts(*next);
        run(*next, 0);
      }
      ended = next;
    }
  }

  // What these return is a task with a single chunk that this worker keeps for itself; they are
  // given the one that it keeps already, and publish all others.

  Task* release_successors(const Task& task, Task* kept) {
    for (int i = 0; i < task.spec.successors; i++) {
      const int index = successors_[task.spec.first_successor + i];
      Task& next = tasks_[index];
      if (next.waiting.fetch_sub(1, std::memory_order_acq_rel) != 1) continue;
      next.waiting.store(next.spec.predecessors, std::memory_order_relaxed);
      kept = release(index, kept);
    }
    return task.spec.successors == 0 ? end_sink(task.spec.inside, kept) : kept;
  }

  Task* release(int index, Task* kept) {
    Task& task = tasks_[index];
    if (task.spec.stands_for >= 0) {
      starts(task);
      if (skipped(task)) {
        stops(task);
        return release_successors(task, kept);
      }
      return begin_iteration(loops_[task.spec.stands_for], kept);
    }
    if (task.spec.message) return messenger_->post(*this, index), kept;
    if (!kept && task.spec.chunks == 1) return &task;
    publish(index);
    return kept;
  }

  Task* begin_iteration(Loop& loop, Task* kept) {
    loop.unfinished.store(loop.sinks, std::memory_order_relaxed);
    look(loop);
    for (int root : loop.roots) kept = release(root, kept);
    return kept;
  }

  // A task without successors has ended in loop `inside`, or outside of all.
  Task* end_sink(int inside, Task* kept) {
    if (inside < 0) {
      unfinished_sinks_.fetch_sub(1, std::memory_order_acq_rel);
      return kept;
    }
    Loop& loop = loops_[inside];
    if (loop.unfinished.fetch_sub(1, std::memory_order_acq_rel) != 1) return kept;
    advance(loop, ++loop.iteration);
    if (loop.iteration < loop.spec.count) return begin_iteration(loop, kept);
    loop.iteration = 0;
    Task& task = tasks_[loop.spec.task];
    stops(task);
    return release_successors(task, kept);
  }

  // An iteration begins: see whether guarded tasks are to do anything in it.
  void look(Loop& loop) const {
    if (loop.spec.guard >= 0)
      loop.skips = !*static_cast<const unsigned char*>(table_[loop.spec.guard]);
  }

  bool skipped(const Task& task) const {
    return task.spec.guarded && loops_[task.spec.inside].skips;
  }

  // Iteration t - 1 has ended: let the arguments be those of iteration t, or after the last one
  // of the first.
  void advance(const Loop& loop, int t) {
    const Move* moves = moves_.data() + loop.spec.first_move;
    const bool over = t == loop.spec.count;
    for (int m = 0; m < loop.spec.moves; m++) {
      const Move& move = moves[m];
      const int last = move.period < t ? (t - 1) % move.period : t - 1;
      if (over || last + 1 == move.period) shift(move, -last * move.stride);
      else shift(move, move.stride);
    }
  }

  void shift(const Move& move, int64_t bytes) {
    table_[move.argument] = static_cast<char*>(table_[move.argument]) + bytes;
  }

  void starts(Task& task) {
    if (!timed_) return;
    task.begin = nanoseconds();
    if (!task.start) task.start = task.begin;
  }

  void stops(Task& task) {
    if (!timed_) return;
    task.stop = nanoseconds();
    task.spent += task.stop - task.begin;
  }

  void publish(int index) {
    const uint64_t ticket = uint64_t(index) << 32;
    slots_[tasks_[index].spec.slot].ticket.store(ticket, std::memory_order_release);
  }

  void run(const Task& task, int chunk) const {
    if (task.spec.inside >= 0) {
      const int iteration = loops_[task.spec.inside].iteration;
      if (iteration < task.spec.first || iteration >= task.spec.last) return;
    }
    if (skipped(task)) return;
    void* const* arguments = table_.data() + task.spec.first_argument;
    if (task.spec.function) return task.spec.function(arguments, task.spec.phase, chunk);
    const int64_t start = chunk * copy_chunk, left = task.spec.bytes - start;
    std::memcpy(static_cast<char*>(arguments[1]) + start,
                static_cast<const char*>(arguments[0]) + start,
                size_t(left < copy_chunk ? left : copy_chunk));
  }

  int task_count_, slot_count_, threads_, loop_count_, sinks_ = 0;
  bool flush_, parallel_ = false, sends_ = false, timed_ = false;
  Messenger* messenger_ = nullptr;
  std::unique_ptr<Task[]> tasks_;
  std::unique_ptr<Slot[]> slots_;
  std::unique_ptr<Loop[]> loops_;
  std::vector<int32_t> successors_, roots_;
  std::vector<Move> moves_;
  std::vector<Argument> arguments_;
  std::vector<void*> table_;
  alignas(64) std::atomic<int> unfinished_sinks_{0};
};

}  // namespace graphc
