// Plays a kernel of the CPU again and again: benchmarks/tiers.py.
#include <ctime>

namespace {
double now() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}
}  // namespace

// The seconds of this thread for `repeats` calls of all chunks.
extern "C" double play(void (*kernel)(void* const*, int, int), void* const* arguments,
                       const int* chunks, int phases, int repeats) {
  const double begin = now();
  for (int i = 0; i < repeats; i++)
    for (int phase = 0; phase < phases; phase++)
      for (int chunk = 0; chunk < chunks[phase]; chunk++) kernel(arguments, phase, chunk);
  return now() - begin;
}
