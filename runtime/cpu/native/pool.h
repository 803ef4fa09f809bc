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
#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <atomic>
#include <deque>
#include <memory>
#include <new>
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
  // Spins for 50 microseconds in all, then yields the core, or sleeps for as long where others wait
  // for the network and need it. True after a millisecond.
  bool rest(bool sleeps = false) {
    pause();
    if (++rests_ % 64) return false;
    const int64_t now = nanoseconds();
    if (rests_ == 64) since_ = now;
    if (now - since_ < 50'000) return false;
    const timespec moment = {0, 50'000};
    if (sleeps) nanosleep(&moment, nullptr);
    else sched_yield();
    rests_ = 127;  // look at the clock, and yield, each time from now on
    return now - since_ > 1'000'000;
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
  int64_t since_ = 0;
};

class Mutex {
 public:
  void lock() { pthread_mutex_lock(&mutex_); }
  void unlock() { pthread_mutex_unlock(&mutex_); }
  void wait(pthread_cond_t& condition) { pthread_cond_wait(&condition, &mutex_); }

 private:
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
};

class Locked {
 public:
  explicit Locked(Mutex& mutex) : mutex_(mutex) { mutex_.lock(); }
  ~Locked() { mutex_.unlock(); }

 private:
  Mutex& mutex_;
};

// A number of calls that goes up, and that threads may sleep on until it has.
class Calls {
 public:
  uint32_t number() const { return number_.load(); }
  void next() {
    number_.fetch_add(1);
    // Who counts itself as a sleeper before this reads the count is woken; who does so after it
    // sees the new number, and stays awake.
    if (!sleepers_.load()) return;
    Locked locked(mutex_);
    pthread_cond_broadcast(&gone_up_);
  }
  // Sleep until the number is another than this.
  void wait(uint32_t number) {
    Locked locked(mutex_);
    sleepers_.fetch_add(1);
    while (number_.load() == number) mutex_.wait(gone_up_);
    sleepers_.fetch_sub(1);
  }

 private:
  std::atomic<uint32_t> number_{0};
  std::atomic<int> sleepers_{0};
  Mutex mutex_;
  pthread_cond_t gone_up_ = PTHREAD_COND_INITIALIZER;
};

// The thread of tasks that wait for other processes. It sleeps while there are none.
class MessengerThread final : public Messenger {
 public:
  // False if the system refuses the thread.
  bool begin() {
    if (running_) return true;
    SignalsBlocked blocked;
    pthread_t thread;
    running_ = pthread_create(&thread, nullptr, serve, this) == 0;
    if (running_) pthread_detach(thread);
    return running_;
  }

  void post(Program& program, int task) override {
    Locked locked(mutex_);
    posted_.push_back({&program, task});
    pthread_cond_signal(&there_);
  }

 private:
  struct Post {
    Program* program;
    int task;
  };

  static void* serve(void* self) { static_cast<MessengerThread*>(self)->serve(); }
  [[noreturn]] void serve() {
    for (;;) {
      const Post post = next();
      FloatingPointMode mode(post.program->flush());
      post.program->deliver(post.task);
    }
  }

  Post next() {
    Locked locked(mutex_);
    while (posted_.empty()) mutex_.wait(there_);
    const Post post = posted_.front();
    posted_.pop_front();
    return post;
  }

  bool running_ = false;
  Mutex mutex_;
  pthread_cond_t there_ = PTHREAD_COND_INITIALIZER;
  std::deque<Post> posted_;
};

class Pool {
 public:
  // Play every task of `program`. Returns when the last has ended.
  void play(Program& program) {
    FloatingPointMode mode(program.flush());
    const bool serial = !program.parallel() || (program.sends() && !messenger_.begin());
    if (serial) return program.play_in_order(0, program.task_count());
    grow(program.threads() - 1);
    program.begin(&messenger_);
    current_.store(&program);
    calls_.next();
    work(program);
    current_.store(nullptr);
  }

  // Wait until no worker looks at `program`, which is not being played.
  void forget(const Program& program) {
    Locked locked(growing_);
    for (auto& worker : workers_)
      while (worker->watched.load() == &program) sched_yield();
  }

 private:
  struct alignas(64) Worker {
    Worker(Pool& pool, int index) : pool(pool), index(index) {}
    Pool& pool;
    const int index;
    std::atomic<Program*> watched{nullptr};
  };

  // The system may refuse threads or memory: then fewer workers play, with the same results.
  void grow(int workers) {
    if (int(workers_.size()) >= workers) return;
    Locked locked(growing_);
    SignalsBlocked blocked;
    try {
      while (int(workers_.size()) < workers) {
        workers_.push_back(std::make_unique<Worker>(*this, int(workers_.size()) + 1));
        pthread_t thread;
        if (pthread_create(&thread, nullptr, serve, workers_.back().get()))
          return workers_.pop_back();
        pthread_detach(thread);
      }
    } catch (const std::bad_alloc&) {
    }
  }

  static void work(Program& program) {
    Idle idle;
    while (!program.finished()) {
      if (program.work()) idle.reset();
      else idle.rest(program.sends());
    }
  }

  static void* serve(void* worker) {
    static_cast<Worker*>(worker)->pool.serve(*static_cast<Worker*>(worker));
  }
  [[noreturn]] void serve(Worker& worker) {
    for (Idle idle;;) {
      const uint32_t call = calls_.number();
      if (Program* program = current_.load()) {
        worker.watched.store(program);
        // `forget` must see the name before the program is touched.
        if (program == current_.load() && worker.index < program->threads()) {
          FloatingPointMode mode(program->flush());
          work(*program);
          idle.reset();
        }
        worker.watched.store(nullptr);
      }
      if (idle.rest()) calls_.wait(call), idle.reset();
    }
  }

  alignas(64) std::atomic<Program*> current_{nullptr};
  alignas(64) Calls calls_;  // their number goes up when a call begins
  Mutex growing_;
  std::vector<std::unique_ptr<Worker>> workers_;
  MessengerThread messenger_;
};

}  // namespace graphc
