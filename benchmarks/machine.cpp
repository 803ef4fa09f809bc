// The machine's limit: multiply-adds on full vectors, 16 independent chains per thread.
// Arguments: the number of threads. Prints the best and the median GFLOP/s of 15 windows.
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
constexpr int lanes = bytes / 4, chains = 16;
constexpr long steps = 2'000'000;

static void work(float* sink) {
    vec a[chains];
    for (int i = 0; i < chains; i++) a[i] = vec{} + (1.0f + 1e-3f * i);
    const vec b = vec{} + 0.999f, c = vec{} + 1e-3f;
    for (long s = 0; s < steps; s++) {
#pragma GCC unroll 16
        for (int i = 0; i < chains; i++) a[i] = a[i] * b + c;
        for (int i = 0; i < chains; i++) asm volatile("" : "+x"(a[i]));
    }
    for (int i = 0; i < chains; i++) *sink += a[i][0];
}

int main(int argc, char** argv) {
    const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
    std::vector<double> rates;
    std::vector<float> sinks(threads * 16);
    for (int window = 0; window < 15; window++) {
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
