// Scratch memory of a thread: it grows when more is asked for, and is given back when the thread ends.
#pragma once
#include <stdlib.h>

namespace graphc {
template <int COUNT>
class Scratches {
 public:
  ~Scratches() {
    for (auto& one : memory) free(one.at);
  }
  // Memory number N for `count` elements, at a multiple of 64 bytes; what it held is lost.
  template <class T> T* get(int n, long count) {
    auto& one = memory[n];
    const long bytes = (count * long(sizeof(T)) + 127) / 64 * 64;
    if (bytes > one.bytes) {
      free(one.at);
      one.bytes = bytes + bytes / 4 / 64 * 64;
      one.at = aligned_alloc(64, one.bytes);
      if (!one.at) abort();
    }
    return (T*)one.at;
  }

 private:
  struct {
    void* at = nullptr;
    long bytes = 0;
  } memory[COUNT];
};
}  // namespace graphc
