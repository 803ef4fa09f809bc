// Threads that play the chunks of a kernel's phase together. A thread takes a chunk by counting up;
// which thread takes which does not change any result.
#pragma once
#include <pthread.h>

#include "graphc/mode.h"

namespace {

typedef void Kernel(void* const* arguments, int phase, int chunk);

constexpr int most_threads = 64;
constexpr int spins = 4096;  // looks at a flag before a thread sleeps

struct Pool {
  pthread_mutex_t mutex;
  pthread_cond_t begin, end;
  pthread_t threads[most_threads];
  int others;  // threads besides the caller's
  bool stopping;
  // What is being played. Written by the caller's thread while the others wait.
  Kernel* kernel;
  void* const* arguments;
  int phase, chunks;
  alignas(64) unsigned round;  // counts what has been played
  alignas(64) int next;        // the chunk to be taken
  alignas(64) int busy;        // other threads that have not ended this round
};

void work(Pool& pool) {
  for (;;) {
    const int chunk = __atomic_fetch_add(&pool.next, 1, __ATOMIC_RELAXED);
    if (chunk >= pool.chunks) return;
    pool.kernel(pool.arguments, pool.phase, chunk);
  }
}

// Look at a flag for a while, then sleep until it holds.
template <class Holds>
void wait(Pool& pool, pthread_cond_t& changed, Holds holds) {
  for (int i = 0; i < spins; i++)
    if (holds()) return;
  pthread_mutex_lock(&pool.mutex);
  while (!holds()) pthread_cond_wait(&changed, &pool.mutex);
  pthread_mutex_unlock(&pool.mutex);
}

void* serve(void* memory) {
  Pool& pool = *(Pool*)memory;
  const FloatingPointMode mode;
  for (unsigned round = 0;;) {
    wait(pool, pool.begin, [&] { return __atomic_load_n(&pool.round, __ATOMIC_ACQUIRE) != round; });
    round++;
    if (pool.stopping) return nullptr;
    work(pool);
    pthread_mutex_lock(&pool.mutex);
    if (__atomic_sub_fetch(&pool.busy, 1, __ATOMIC_RELEASE) == 0) pthread_cond_signal(&pool.end);
    pthread_mutex_unlock(&pool.mutex);
  }
}

void next_round(Pool& pool) {
  pthread_mutex_lock(&pool.mutex);
  __atomic_store_n(&pool.busy, pool.others, __ATOMIC_RELAXED);
  __atomic_add_fetch(&pool.round, 1, __ATOMIC_RELEASE);
  pthread_cond_broadcast(&pool.begin);
  pthread_mutex_unlock(&pool.mutex);
}

// All chunks of one phase of a kernel, by all threads.
__attribute__((noinline)) void play(void* memory, Kernel* kernel, void* const* arguments, int phase,
                                    int chunks) {
  if (!memory || chunks == 1) {
    for (int chunk = 0; chunk < chunks; chunk++) kernel(arguments, phase, chunk);
    return;
  }
  Pool& pool = *(Pool*)memory;
  pool.kernel = kernel;
  pool.arguments = arguments;
  pool.phase = phase;
  pool.chunks = chunks;
  pool.next = 0;
  next_round(pool);
  work(pool);
  wait(pool, pool.end, [&] { return __atomic_load_n(&pool.busy, __ATOMIC_ACQUIRE) == 0; });
}

// How many threads there are, the caller's among them; the system may refuse some.
int start(void* memory, int threads) {
  Pool& pool = *(Pool*)memory;
  __builtin_memset(&pool, 0, sizeof pool);
  pthread_mutex_init(&pool.mutex, nullptr);
  pthread_cond_init(&pool.begin, nullptr);
  pthread_cond_init(&pool.end, nullptr);
  const int wanted = threads < most_threads ? threads : most_threads;
  while (pool.others + 1 < wanted &&
         pthread_create(&pool.threads[pool.others], nullptr, serve, &pool) == 0)
    pool.others++;
  return pool.others + 1;
}

void stop(void* memory) {
  Pool& pool = *(Pool*)memory;
  pool.stopping = true;
  next_round(pool);
  for (int i = 0; i < pool.others; i++) pthread_join(pool.threads[i], nullptr);
  pthread_cond_destroy(&pool.end);
  pthread_cond_destroy(&pool.begin);
  pthread_mutex_destroy(&pool.mutex);
}

}  // namespace
