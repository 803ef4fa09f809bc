// The peak rates of this machine: multiply-adds on full vectors, and bytes read and written beyond
// the caches. Both are the best of a few windows of some milliseconds.
#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

namespace {

#if defined(__AVX512F__)
constexpr int BYTES = 64;
#elif defined(__AVX__)
constexpr int BYTES = 32;
#else
constexpr int BYTES = 16;
#endif
typedef float vec __attribute__((vector_size(BYTES)));
constexpr int WINDOWS = 12, CHAINS = 12;
constexpr long STEPS = 200'000, FLOATS = 4 << 20;  // of one thread: 32 MiB in two arrays

// Named variables, since GCC 12 keeps an array of vectors in memory. With two constants they are
// within 16 registers, and hide a latency of six cycles on two units.
void multiply_add(float* sink) {
  const vec b = vec{} + 0.999f, c = vec{} + 1e-3f;
  vec a0 = b, a1 = b, a2 = b, a3 = b, a4 = b, a5 = b;
  vec a6 = b, a7 = b, a8 = b, a9 = b, a10 = b, a11 = b;
  for (long s = 0; s < STEPS; s++) {
    const auto step = [&](vec& a) __attribute__((always_inline)) {
      a = a * b + c;
      asm volatile("" : "+x"(a));
    };
    step(a0), step(a1), step(a2), step(a3), step(a4), step(a5);
    step(a6), step(a7), step(a8), step(a9), step(a10), step(a11);
  }
  const vec sum = a0 + a1 + a2 + a3 + a4 + a5 + a6 + a7 + a8 + a9 + a10 + a11;
  *sink += sum[0];
}

void scale(const float* from, float* to) {
  for (long i = 0; i < FLOATS; i++) to[i] = 0.5f * from[i];
  asm volatile("" : : "r"(to) : "memory");
}

// Units per second: `work(t)` does `units` of them in each of the threads.
template <class Work>
double best(int threads, double units, Work work) {
  double rate = 0;
  for (int window = 0; window < WINDOWS; window++) {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<std::thread> others;
    for (int t = 1; t < threads; t++) others.emplace_back(work, t);
    work(0);
    for (auto& other : others) other.join();
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    rate = std::max(rate, threads * units / spent.count());
  }
  return rate;
}

}  // namespace

extern "C" {

// Floating-point operations per second.
double graphc_flops(int threads) {
  std::vector<float> sinks(threads * 16);
  return best(threads, 2.0 * STEPS * CHAINS * BYTES / 4,
              [&](int t) { multiply_add(&sinks[t * 16]); });
}

// Bytes read and written per second, the reads of lines that are written not counted.
double graphc_bytes(int threads) {
  std::vector<std::vector<float>> from(threads), to(threads);
  for (int t = 0; t < threads; t++) from[t].assign(FLOATS, 1.0f), to[t].assign(FLOATS, 1.0f);
  return best(threads, 2.0 * FLOATS * 4, [&](int t) { scale(from[t].data(), to[t].data()); });
}

}  // extern "C"
