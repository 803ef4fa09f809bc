// memory.h: the device's memory: one range of addresses whose pages are allocated on first use. An
// allocation starts at a multiple of 256, as CUDA's do, ends as close as that allows before a guard
// page, and has known bytes up to that page.
#pragma once
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <new>
#include <string>

namespace graphc_sim {

struct Allocation {
  std::uintptr_t start, stop, first_page, last_page;
  bool freed = false;
};

class Memory {
 public:
  static constexpr std::uintptr_t size = 64ull << 30, page = 4096;

  std::uintptr_t base() {
    if (!base_) {
      void* mapped =
          mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (mapped == MAP_FAILED) throw std::bad_alloc();
      base_ = next_ = reinterpret_cast<std::uintptr_t>(mapped);
    }
    return base_;
  }
  bool contains(std::uintptr_t address) const { return address - base_ < size; }

  // 0 if the addresses are used up. Every byte is 0xFF: NaN, and a large negative integer.
  std::uintptr_t allocate(std::uintptr_t bytes) {
    base();
    const std::uintptr_t pages = (bytes + 255 + page - 1) / page * page;
    const std::uintptr_t first = next_ + page, last = first + pages;
    if (last + page > base_ + size) return 0;
    if (mprotect(reinterpret_cast<void*>(first), pages, PROT_READ | PROT_WRITE)) return 0;
    next_ = last;
    const std::uintptr_t start = (last - bytes) / 256 * 256;
    allocations_[start] = {start, start + bytes, first, last};
    std::memset(reinterpret_cast<void*>(start), 0xFF, bytes);
    std::memset(reinterpret_cast<void*>(start + bytes), slack, last - start - bytes);
    return start;
  }
  // The addresses are not given out again, so that a use after this is seen.
  const Allocation& free(std::uintptr_t start) {
    Allocation& allocation = allocations_.at(start);
    allocation.freed = true;
    void* first = reinterpret_cast<void*>(allocation.first_page);
    const std::uintptr_t bytes = allocation.last_page - allocation.first_page;
    madvise(first, bytes, MADV_DONTNEED);
    mprotect(first, bytes, PROT_NONE);
    return allocation;
  }
  // The allocation that starts last before an address, or nullptr.
  const Allocation* before(std::uintptr_t address) const {
    auto it = allocations_.upper_bound(address);
    return it == allocations_.begin() ? nullptr : &std::prev(it)->second;
  }
  // The first allocation with a byte behind it that is not as it was, or nullptr.
  const Allocation* overrun() const {
    for (const auto& [start, a] : allocations_)
      if (!a.freed)
        for (std::uintptr_t p = a.stop; p < a.last_page; p++)
          if (*reinterpret_cast<const unsigned char*>(p) != slack) return &a;
    return nullptr;
  }
  void restore(const Allocation& a) {
    std::memset(reinterpret_cast<void*>(a.stop), slack, a.last_page - a.stop);
  }

 private:
  static constexpr unsigned char slack = 0xA5;
  std::uintptr_t base_ = 0, next_ = 0;
  std::map<std::uintptr_t, Allocation> allocations_;
};

// Where an address lies, for messages.
inline std::string place_text(const Memory& memory, std::uintptr_t address) {
  const Allocation* a = memory.before(address);
  if (!a) return "an address before all memory";
  const std::string size = std::to_string(a->stop - a->start) + " bytes";
  if (a->freed && address < a->last_page) return "freed memory";
  if (address < a->stop) return "byte " + std::to_string(address - a->start) + " of " + size;
  return std::to_string(address - a->stop) + " bytes behind the end of " + size;
}

}  // namespace graphc_sim
