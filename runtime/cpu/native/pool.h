// The threads of the CPU device: one pool per process, shared by all programs.
//
// The caller of `play` is worker 0 and plays at once; the others join when they see the program.
// Nothing waits for a worker that holds no chunk: neither a task's end nor the end of a call. A
// worker may therefore look at a program after its call has ended, and names the program it looks
// at (`watched`) so that `forget` knows when it may be freed.
//
// Waiting spins for some 50 microseconds, then yields the core again and again; between calls a
// worker sleeps after a millisecond. `play` must not be entered by two threads at once; runtime/cpu/executable.py holds the lock.
#pragma once
#include <signal.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "program.h"

namespace graphc {

// Default rounding, no exceptions, numbers below the smallest normal one taken for zeros and made
// zeros unless the program keeps them: the same on every worker; set back at the end.
class FloatingPointMode {
 public:
#if defined(__SSE2__)
  explicit FloatingPointMode(bool flush) : saved_(_mm_getcsr()) {
    _mm_setcsr(flush ? 0x9fc0 : 0x1f80);
  }
  ~FloatingPointMode() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
#elif defined(__aarch64__)
  explicit FloatingPointMode(bool flush) {
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    set(flush ? uint64_t{1} << 24 : 0);
  }
  ~FloatingPointMode() { set(saved_); }

 private:
  static void set(uint64_t mode) { asm volatile("msr fpcr, %0" : : "r"(mode)); }
  uint64_t saved_;
#else
  explicit FloatingPointMode(bool) {}
  ~FloatingPointMode() {}
#endif
};

// Threads made while this lives take no signals: those are the business of the user's threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &saved_, nullptr); }

 private:
  sigset_t saved_;
};

// How long a worker has found nothing to do, and what it does meanwhile.
class Idle {
 public:
  // Spins for 50 microseconds in all, then yields the core. True after a millisecond.
  bool rest() {
    pause();
    if (++rests_ % 64) return false;
    const auto now = std::chrono::steady_clock::now();
    if (rests_ == 64) since_ = now;
    if (now - since_ < std::chrono::microseconds(50)) return false;
    std::this_thread::yield();
    rests_ = 127;  // look at the clock, and yield, each time from now on
    return now - since_ > std::chrono::milliseconds(1);
  }
  void reset() { rests_ = 0; }

 private:
  static void pause() {
#if defined(__SSE2__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }
  unsigned rests_ = 0;
  std::chrono::steady_clock::time_point since_;
};

class Pool {
 public:
  // Play every task of `program`. Returns when the last has ended.
  void play(Program& program) {
    FloatingPointMode mode(program.flush());
    if (!program.parallel()) return program.play_in_order(0, program.task_count());
    grow(program.threads() - 1);
    program.begin();
    current_.store(&program);
    call_.fetch_add(1);
    call_.notify_all();
    work(program);
    current_.store(nullptr);
  }

  // Wait until no worker looks at `program`, which is not being played.
  void forget(const Program& program) {
    std::lock_guard guard(growing_);
    for (auto& worker : workers_)
      while (worker->watched.load() == &program) std::this_thread::yield();
  }

 private:
  struct alignas(64) Worker {
    std::atomic<Program*> watched{nullptr};
  };

  // The system may refuse threads: then fewer workers play, with the same results.
  void grow(int workers) {
    if (int(workers_.size()) >= workers) return;
    std::lock_guard guard(growing_);
    SignalsBlocked blocked;
    while (int(workers_.size()) < workers) {
      workers_.push_back(std::make_unique<Worker>());
      const int index = int(workers_.size());
      try {
        std::thread([this, index, worker = workers_.back().get()] {
          serve(*worker, index);
        }).detach();
      } catch (const std::system_error&) {
        return workers_.pop_back();
      }
    }
  }

  static void work(Program& program) {
    Idle idle;
    while (!program.finished()) {
      if (program.work()) idle.reset();
      else idle.rest();
    }
  }

  [[noreturn]] void serve(Worker& worker, int index) {
    for (Idle idle;;) {
      const uint32_t call = call_.load();
      if (Program* program = current_.load()) {
        worker.watched.store(program);
        // `forget` must see the name before the program is touched.
        if (program == current_.load() && index < program->threads()) {
          FloatingPointMode mode(program->flush());
          work(*program);
          idle.reset();
        }
        worker.watched.store(nullptr);
      }
      if (idle.rest()) call_.wait(call), idle.reset();
    }
  }

  alignas(64) std::atomic<Program*> current_{nullptr};
  alignas(64) std::atomic<uint32_t> call_{0};  // goes up when a call begins
  std::mutex growing_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace graphc
