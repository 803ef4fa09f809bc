// How the processor rounds and treats denormals while kernels run: to nearest even, no traps, and
// with GRAPHC_FLUSH numbers below the smallest normal one as zeros. Set back at the end.
#pragma once
#include <stdint.h>

namespace {

#if defined(GRAPHC_FLUSH)
constexpr bool flush = true;
#else
constexpr bool flush = false;
#endif

class FloatingPointMode {
 public:
#if defined(__SSE2__)
  FloatingPointMode() : saved_(__builtin_ia32_stmxcsr()) {
    __builtin_ia32_ldmxcsr(flush ? 0x9fc0 : 0x1f80);
  }
  ~FloatingPointMode() { __builtin_ia32_ldmxcsr(saved_); }

 private:
  unsigned saved_;
#elif defined(__aarch64__)
  FloatingPointMode() {
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved_));
    set(flush ? uint64_t{1} << 24 : 0);
  }
  ~FloatingPointMode() { set(saved_); }

 private:
  static void set(uint64_t mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode)); }
  uint64_t saved_;
#elif defined(__arm__) && defined(__ARM_FP)
  FloatingPointMode() {
    __asm__ volatile("vmrs %0, fpscr" : "=r"(saved_));
    set(flush ? uint32_t{1} << 24 : 0);
  }
  ~FloatingPointMode() { set(saved_); }

 private:
  static void set(uint32_t mode) { __asm__ volatile("vmsr fpscr, %0" : : "r"(mode)); }
  uint32_t saved_;
#else
  FloatingPointMode() {}
  ~FloatingPointMode() {}
#endif

  FloatingPointMode(const FloatingPointMode&) = delete;
  FloatingPointMode& operator=(const FloatingPointMode&) = delete;
};

}  // namespace
