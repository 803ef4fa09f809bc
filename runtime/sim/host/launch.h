// launch.h: the state of the running launch, of which there is one at a time.
#pragma once
#include <cstdint>
#include <random>
#include <vector>

#include "block.h"
#include "memory.h"
#include "shadow.h"

namespace graphc_sim {

// Bytes that a launch declares. Scratch may be read where it was written before.
struct Range {
  std::uint64_t start, stop;
  std::int32_t reads, writes, scratch;
  std::int32_t period, live;  // what is written: the first `live` bytes of every `period`, or all
  std::int32_t unused;
  const char* name;
};

// A variable of shared memory, `offset` bytes from its start.
struct SharedVariable {
  std::uint64_t offset, bytes;
  const char* name;
};

// Filled by native.py.
struct Request {
  void (*entry)(const unsigned char* packed);
  const unsigned char* packed;
  Index3 grid, block;
  char* dynamic;  // where dynamic shared memory is, or nullptr
  std::uint32_t shared_bytes, order, seed, check;
  std::uint32_t touch_serial;  // of the launches that write the declared bytes together
  std::uint32_t opening, completes, range_count, shared_count;
  std::uint32_t milliseconds;  // of processor time that the launch may take
  std::uint32_t cooperative;   // whether all blocks run at once
  std::uint32_t cluster;       // blocks that run together and reach each other's memory
  const Range* ranges;
  const SharedVariable* shared_variables;
};

struct Segment {
  std::uintptr_t start = 0, size = 0;
  bool contains(std::uintptr_t address) const { return address - start < size; }
};

// What a module's code may touch besides the device's memory.
struct Module {
  Segment image, shared;
};

struct Launch {
  Request request{};
  Module module;
  Block block;
  Thread* current = nullptr;
  void* scheduler = nullptr;  // stack pointer
  bool failed = false;
  volatile bool late = false;  // it has taken more time than it may
  std::uint32_t serial = 0, block_serial = 0, blocks_started = 0;
  std::mt19937 random;

  Order order() const { return static_cast<Order>(request.order); }
};

inline Launch launch;
inline Memory memory;
inline Stacks stacks;
inline Findings findings;

inline void report(int kind, void* pc, const std::string& text) {
  Finding finding{};
  finding.pc = reinterpret_cast<std::uint64_t>(pc);
  finding.block = launch.block.index;
  if (launch.current) finding.thread = launch.current->place;
  finding.has_thread = launch.current != nullptr;
  findings.add(kind, finding, text);
}

// Ends the launch; called on the stack of a thread, which never runs again.
[[noreturn]] inline void fail(void* pc, const std::string& text) {
  report(0, pc, text);
  launch.failed = true;
  void* abandoned;
  graphc_sim_switch(&abandoned, launch.scheduler);
  __builtin_unreachable();
}

inline std::string late_text() {
  return format("has taken %u ms of processor time and goes on", launch.request.milliseconds);
}

inline void wait() { graphc_sim_switch(&launch.current->stack_pointer, launch.scheduler); }

}  // namespace graphc_sim
