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
// Every counter is set back by the worker that brings it to zero, so a program is ready to be
// played again when the last task has ended.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

namespace graphc {

using Function = void (*)(void* const* arguments, int phase, int chunk);

constexpr int64_t copy_chunk = 1 << 18;  // bytes of a copy that one chunk moves

// What the loader says of a task. Laid out as `TASK` in runtime/player.py.
struct TaskSpec {
    Function function;          // null for a copy from argument 0 to argument 1
    int64_t bytes;              // of a copy
    int32_t first_argument;     // index in the table of arguments
    int32_t phase;
    int32_t chunks;             // at least 1
    int32_t slot;               // the stream
    int32_t predecessors;       // how many tasks it waits for
    int32_t first_successor;    // index in the list of successors
    int32_t successors;
    int32_t padding;
};

// An argument's address is that of its base, which may change from call to call, plus an offset.
// Laid out as `ARGUMENT` in runtime/player.py.
struct Argument {
    int64_t base;
    int64_t offset;
};

struct alignas(64) Task {
    TaskSpec spec;
    int64_t start = 0, stop = 0;                // nanoseconds, where the program is timed
    alignas(64) std::atomic<int> waiting{0};    // predecessors that have not ended
    std::atomic<int> unfinished{0};             // chunks that have not ended
};

struct alignas(64) Slot {
    std::atomic<uint64_t> ticket{uint64_t{1} << 31};
};

class Program {
public:
    Program(const TaskSpec* specs, int tasks, const int32_t* successors, int successor_count,
            const Argument* arguments, int argument_count, int slots, int threads)
        : task_count_(tasks), slot_count_(slots), threads_(threads),
          tasks_(new Task[tasks]), slots_(new Slot[slots]),
          successors_(successors, successors + successor_count),
          arguments_(arguments, arguments + argument_count), table_(argument_count) {
        bool several_chunks = false;
        for (int i = 0; i < tasks; i++) {
            Task& task = tasks_[i];
            task.spec = specs[i];
            task.waiting = specs[i].predecessors;
            task.unfinished = specs[i].chunks;
            several_chunks |= specs[i].chunks > 1;
            if (specs[i].predecessors == 0) roots_.push_back(i);
            if (specs[i].successors == 0) sinks_++;
        }
        parallel_ = threads > 1 && (several_chunks || slots > 1);
    }

    int threads() const { return threads_; }
    bool parallel() const { return parallel_; }
    bool finished() const { return unfinished_sinks_.load(std::memory_order_acquire) == 0; }
    const Task& task(int index) const { return tasks_[index]; }
    int task_count() const { return task_count_; }

    // Let the arguments be what `bases` says. Only between calls.
    void bind(const uint64_t* bases) {
        for (size_t i = 0; i < table_.size(); i++) {
            const uint64_t address = bases[arguments_[i].base] + uint64_t(arguments_[i].offset);
            table_[i] = reinterpret_cast<void*>(address);
        }
    }

    void time(bool timed) { timed_ = timed; }

    // Tasks `first` to `last` (exclusive), one after another, in the order of the list.
    void play_in_order(int first, int last) {
        for (int i = first; i < last; i++) {
            Task& task = tasks_[i];
            if (timed_) task.start = now();
            for (int chunk = 0; chunk < task.spec.chunks; chunk++) run(task, chunk);
            if (timed_) task.stop = now();
        }
    }

    // Make the tasks without predecessors ready. The caller of `play` does this, then works.
    void begin() {
        unfinished_sinks_.store(sinks_, std::memory_order_relaxed);
        for (int root : roots_) publish(root);
    }

    // Take chunks of one ready task until it has none left. False if no task was ready.
    bool work() {
        for (int i = 0; i < slot_count_; i++)
            if (work(slots_[i].ticket)) return true;
        return false;
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
        if (timed_ && uint32_t(ticket) == 0) task.start = now();
        int ended = 0;
        for (uint32_t chunk = uint32_t(ticket); chunk < chunks;
             chunk = uint32_t(slot.fetch_add(1, std::memory_order_acq_rel))) {
            run(task, int(chunk));
            ended++;
        }
        if (task.unfinished.fetch_sub(ended, std::memory_order_acq_rel) == ended) end(task);
        return true;
    }

    // `task` has ended: make its successors ready, and play on while one has a single chunk.
    void end(Task& task) {
        for (Task* ended = &task; ended;) {
            ended->unfinished.store(ended->spec.chunks, std::memory_order_relaxed);
            if (timed_) ended->stop = now();
            Task* next = ready_successors(*ended);
            if (ended->spec.successors == 0)
                unfinished_sinks_.fetch_sub(1, std::memory_order_acq_rel);
            if (next) {
                if (timed_) next->start = now();
                run(*next, 0);
            }
            ended = next;
        }
    }

    // Publishes the successors of `task` that nothing else holds back, but keeps one with a
    // single chunk for this worker.
    Task* ready_successors(const Task& task) {
        Task* kept = nullptr;
        for (int i = 0; i < task.spec.successors; i++) {
            const int index = successors_[task.spec.first_successor + i];
            Task& next = tasks_[index];
            if (next.waiting.fetch_sub(1, std::memory_order_acq_rel) != 1) continue;
            next.waiting.store(next.spec.predecessors, std::memory_order_relaxed);
            if (!kept && next.spec.chunks == 1) kept = &next;
            else publish(index);
        }
        return kept;
    }

    void publish(int index) {
        const uint64_t ticket = uint64_t(index) << 32;
        slots_[tasks_[index].spec.slot].ticket.store(ticket, std::memory_order_release);
    }

    void run(const Task& task, int chunk) const {
        void* const* arguments = table_.data() + task.spec.first_argument;
        if (task.spec.function) return task.spec.function(arguments, task.spec.phase, chunk);
        const int64_t start = chunk * copy_chunk, left = task.spec.bytes - start;
        std::memcpy(static_cast<char*>(arguments[1]) + start,
                    static_cast<const char*>(arguments[0]) + start,
                    size_t(left < copy_chunk ? left : copy_chunk));
    }

    static int64_t now() {
        using namespace std::chrono;
        return duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
    }

    int task_count_, slot_count_, threads_, sinks_ = 0;
    bool parallel_ = false, timed_ = false;
    std::unique_ptr<Task[]> tasks_;
    std::unique_ptr<Slot[]> slots_;
    std::vector<int32_t> successors_, roots_;
    std::vector<Argument> arguments_;
    std::vector<void*> table_;
    alignas(64) std::atomic<int> unfinished_sinks_{0};
};

}  // namespace graphc
