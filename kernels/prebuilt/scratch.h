// Scratch memory of a thread: it grows when more is asked for, and is given back when the thread ends.
#pragma once
#include <stdlib.h>

namespace graphc {
class Scratch {
 public:
  ~Scratch() { free(memory_); }
  // Memory for `bytes`, and 64 more, at a multiple of `alignment`; what it held is lost if it grows.
  char* at_least(long bytes, long alignment = 64) {
    if (bytes + 64 > size_) {
      free(memory_);
      size_ = (bytes + bytes / 4 + 64 + 4095) / 4096 * 4096;
      memory_ = (char*)aligned_alloc(alignment, size_);
      if (!memory_) abort();
      __builtin_memset(memory_, 0, size_);
    }
    return memory_;
  }

  char* memory() const { return memory_; }

 private:
  char* memory_ = nullptr;
  long size_ = 0;
};

// Several of them, by number.
template <int COUNT> class Scratches {
 public:
  // Memory number n for `count` elements.
  template <class T> T* get(int n, long count) {
    return (T*)memory_[n].at_least(count * long(sizeof(T)));
  }

 private:
  Scratch memory_[COUNT];
};
}  // namespace graphc
