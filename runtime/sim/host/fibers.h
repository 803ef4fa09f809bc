// fibers.h: threads of a block as fibers: a stack each, and a switch that saves the registers that
// the calling convention of x86-64 preserves. A switch takes a few nanoseconds; ucontext, which
// also saves the signal mask by a system call, takes fifteen times as long.
#pragma once
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#if !defined(__x86_64__) || !defined(__linux__)
#error "the simulated GPU needs Linux on x86-64"
#endif

// Stores the stack pointer of the caller in *saved and goes on where `to` was stored.
extern "C" void graphc_sim_switch(void** saved, void* to);
asm(R"(
.text
.globl graphc_sim_switch
.hidden graphc_sim_switch
.type graphc_sim_switch,@function
graphc_sim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size graphc_sim_switch,.-graphc_sim_switch
)");

namespace graphc_sim {

// Stacks of 64 KiB, each above a page that must not be touched.
class Stacks {
 public:
  // The top of a stack that is not in use. The one that was given back last comes first: threads
  // that never wait all run on the same one.
  char* take() {
    if (free_.empty()) free_.push_back(make());
    char* top = free_.back();
    free_.pop_back();
    return top;
  }
  void give(char* top) { free_.push_back(top); }
  // Takes back all of them, also those of threads that will never end.
  void reset() {
    free_.clear();
    for (std::size_t i = made_; i-- > 0;) free_.push_back(top(i));
  }
  bool contains(std::uintptr_t address) const {
    return address - reinterpret_cast<std::uintptr_t>(base_) < all;
  }

 private:
  static constexpr std::size_t page = 4096, stack = 64 << 10;
  static constexpr std::size_t most = 8 * 1024;  // of as many blocks as run at once (module.py)
  static constexpr std::size_t all = most * (stack + page);

  char* make() {
    if (!base_) {
      void* mapped =
          mmap(nullptr, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (mapped == MAP_FAILED) throw std::bad_alloc();
      base_ = static_cast<char*>(mapped);
    }
    char* first = base_ + made_ * (stack + page) + page;
    if (mprotect(first, stack, PROT_READ | PROT_WRITE)) throw std::bad_alloc();
    return top(made_++);
  }
  // Neighbours' frames must not lie at the same distance from a page, or they share cache lines.
  char* top(std::size_t i) const { return base_ + (i + 1) * (stack + page) - i * 7 % 61 * 192; }

  char* base_ = nullptr;
  std::size_t made_ = 0;
  std::vector<char*> free_;
};

// What graphc_sim_switch goes on with: `enter`, on an empty stack.
inline void* first_frame(char* top, void (*enter)()) {
  void** frame = reinterpret_cast<void**>(top);
  *--frame = nullptr;  // where `enter` would return to; keeps its stack aligned
  *--frame = reinterpret_cast<void*>(enter);
  for (int i = 0; i < 6; i++) *--frame = nullptr;
  return frame;
}

}  // namespace graphc_sim
