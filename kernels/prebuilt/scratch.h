// Scratch memory of a thread.
#pragma once
#include <stdlib.h>

namespace graphc {
// It grows, and keeps its size.
class Scratch {
 public:
  char* at_least(size_t bytes) {
    if (bytes > size_) {
      free(memory_);
      size_ = (bytes + 4095) / 4096 * 4096;
      memory_ = (char*)aligned_alloc(4096, size_);
      __builtin_memset(memory_, 0, size_);
    }
    return memory_;
  }
  ~Scratch() { free(memory_); }

 private:
  char* memory_ = nullptr;
  size_t size_ = 0;
};
}  // namespace graphc
