// fences.h: what blocks of one launch know of each other through fences and atomic operations.
//
// A thread that passes a fence and then changes an address leaves there what it knew at the fence: all
// that its block did before the barrier that it passed last, and what it has learnt of other blocks. A
// thread that changes the address later, and then passes a fence, knows that; its block does behind
// the next barrier. A thread that puts a word leaves there what it knew at its last fence, in place of
// what others left; one that waits for the word knows that. Nothing else orders blocks. (Release and
// acquire patterns of the PTX memory model, with the barrier of a block between its threads.)
//
// A module's own variables, which outlive a launch, are changed by atomic operations alone, and have
// in the end the values that they had: the next launch begins as this one did.
#pragma once
#include <cstdint>
#include <cstring>
#include <map>

#include "launch.h"

namespace graphc_sim {

struct Changed {
  Epochs left;
  std::uint32_t by = 0;  // the last block
  unsigned bytes = 0;    // of a variable of the module, which was `before`
  std::uint64_t before = 0;
  void* pc = nullptr;
};
inline std::map<std::uintptr_t, Changed> changed;  // by address, in this launch

inline void device_fence() {
  Thread& thread = *launch.current;
  Block& block = launch.block;
  thread.known.join(thread.met);
  thread.met.before.clear();
  thread.fenced = block.known;
  thread.fenced.join(thread.known);
  thread.fenced.know(block.number, block.epoch);
}

inline void change(std::uintptr_t address, unsigned bytes, void* pc) {
  if (launch.module.shared.contains(address)) return;  // of this block alone
  Changed& at = changed[address];
  if (!at.bytes && launch.module.image.contains(address)) {
    at.bytes = bytes;
    at.pc = pc;
    std::memcpy(&at.before, reinterpret_cast<const void*>(address), bytes);
  }
  at.left.join(launch.current->fenced);
  at.by = launch.block.number;
  launch.current->met.join(at.left);
}

// What the current thread leaves at a word, which it has changed, does not add to what others left.
inline void replace_left(std::uintptr_t address) { changed[address].left = launch.current->fenced; }

// Behind a wait for the value of a word. Who put it must be a block of a lower number: those begin
// first, and need not wait until this one has ended.
inline void know_put(std::uintptr_t address, const char* file, int line) {
  const auto found = changed.find(address);
  if (found == changed.end()) return;
  if (found->second.by > launch.block.number)
    fail(nullptr,
         format("waits at %s:%d for block %u, of a higher number, which need not have begun", file,
                line, found->second.by));
  launch.current->known.join(found->second.left);
}

// Whether an access of a thread of another block comes before what the current thread does.
inline bool fenced_before(const Record& record) {
  if (!launch.current || !record.bytes || record.block == launch.block.number) return false;
  return launch.block.known.has(record.block, record.epoch) ||
         launch.current->known.has(record.block, record.epoch);
}

// Behind a launch: reports variables of the module that are not what they were. Those of a launch that
// failed get their values back, as on a device where the module would be loaded again.
inline void end_changes() {
  for (const auto& [address, at] : changed) {
    if (!at.bytes) continue;
    void* const place = reinterpret_cast<void*>(address);
    std::uint64_t now = 0;
    std::memcpy(&now, place, at.bytes);
    if (now == at.before) continue;
    if (!launch.failed)
      report(0, at.pc,
             format("leaves %lu in a variable that was %lu, with which the next launch begins", now,
                    at.before));
    std::memcpy(place, &at.before, at.bytes);
  }
  changed.clear();
}

}  // namespace graphc_sim
