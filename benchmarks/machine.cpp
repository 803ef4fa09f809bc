// The machine's limit: multiply-adds on full vectors, 12 independent chains per thread.
// Arguments: the number of threads. Prints the best and the median GFLOP/s of 40 windows.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#if defined(__AVX512F__)
constexpr int bytes = 64;
#elif defined(__AVX__)
constexpr int bytes = 32;
#else
constexpr int bytes = 16;
#endif
typedef float vec __attribute__((vector_size(bytes)));
constexpr int lanes = bytes / 4, chains = 12;  // with b and c within 16 registers
constexpr long steps = 4'000'000;

// Named variables, since GCC 12 keeps an array of vectors in memory.
static void work(float* sink) {
  const vec b = vec{} + 0.999f, c = vec{} + 1e-3f;
  vec a0 = b, a1 = b, a2 = b, a3 = b, a4 = b, a5 = b;
  vec a6 = b, a7 = b, a8 = b, a9 = b, a10 = b, a11 = b;
  for (long s = 0; s < steps; s++) {
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

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  std::vector<double> rates;
  std::vector<float> sinks(threads * 16);
  for (int window = 0; window < 40; window++) {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<std::thread> others;
    for (int t = 1; t < threads; t++) others.emplace_back(work, &sinks[t * 16]);
    work(&sinks[0]);
    for (auto& other : others) other.join();
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    rates.push_back(2.0 * threads * steps * chains * lanes / spent.count() / 1e9);
  }
  std::sort(rates.begin(), rates.end());
  std::printf("%.1f %.1f\n", rates.back(), rates[rates.size() / 2]);
}
