// check.h: the tests of every load and store of a check build: it is in memory of the device that
// the launch declares, or in a variable of shared memory; its address is aligned; what it reads has
// been written; no access of another thread races with it.
#pragma once
#include <sys/mman.h>

#include <cstdint>
#include <new>
#include <string>
#include <vector>

#include "fences.h"

namespace graphc_sim {

// Kinds of findings: one of each is reported per place in the code.
enum Kind { outside = 1, undeclared, uninitialised, race_written, race_read, pending, extent };

constexpr std::uint32_t for_good = 1;  // the serial of values in global memory

class Shadow {
 public:
  Cell* global() {
    if (!global_) {
      void* mapped = mmap(nullptr, Memory::size / 4 * sizeof(Cell), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (mapped == MAP_FAILED) throw std::bad_alloc();
      global_ = static_cast<Cell*>(mapped);
    }
    return global_;
  }
  std::vector<Cell> shared;

  // Gives back what is known of global memory between two multiples of a page.
  void forget(std::uintptr_t start, std::uintptr_t stop) {
    if (!global_) return;
    Cell* first = global_ + (start - memory.base()) / 4;
    madvise(first, (stop - start) / 4 * sizeof(Cell), MADV_DONTNEED);
  }

  // Calls body(cell, mask) for bytes of global memory.
  template <class Body>
  void each_global(std::uintptr_t start, std::uintptr_t count, const Body& body) {
    Cell* cells = global();
    each_cell(start - memory.base(), count,
              [&](std::uintptr_t i, std::uint8_t mask) { body(cells[i], mask); });
  }

 private:
  Cell* global_ = nullptr;
};

inline Shadow shadow;

struct Access {
  std::uintptr_t address;
  unsigned bytes;
  bool write, atomic;
  void* pc;

  const char* verb() const { return atomic ? "changes" : write ? "writes" : "reads"; }
};

inline Actor actor(std::uint32_t serial) {
  const Thread& thread = *launch.current;
  return {serial, launch.block.number, thread.number, launch.block.epoch,
          launch.block.warps[thread.warp()].epoch};
}

inline std::string other_text(const Record& record) {
  if (record.block == several_blocks) return "threads of other blocks";
  std::string who = record.thread == several_warps    ? "threads of several warps"
                    : record.thread & several_of_warp ? "other threads of the warp"
                                                      : format("thread %u", record.thread);
  if (record.block != launch.block.number) who += format(" of block %u", record.block);
  return who;
}

// Tests one cell against earlier accesses and remembers this one. `name()` says where it is.
template <class Name>
inline void check_cell(Cell& cell, std::uint8_t mask, const Access& access, const Actor& who,
                       std::uint32_t valid_serial, const Name& name) {
  if (cell.written.races(who, mask) && !(access.atomic && cell.written.atomic) &&
      !fenced_before(cell.written))
    report(race_written, access.pc,
           format("%s %s, which %s wrote, with no barrier between", access.verb(), name().c_str(),
                  other_text(cell.written).c_str()));
  if (access.write && cell.read.races(who, mask) && !fenced_before(cell.read))
    report(race_read, access.pc,
           format("%s %s, which %s read, with no barrier between", access.verb(), name().c_str(),
                  other_text(cell.read).c_str()));
  if ((!access.write || access.atomic) && (cell.valid_in(valid_serial) & mask) != mask)
    report(uninitialised, access.pc,
           format("%s %s, which nobody has written", access.verb(), name().c_str()));
  if (access.write) {
    cell.make_valid(valid_serial, mask);
    cell.written.set(who, mask, access.atomic);
  } else {
    // Those before which this one knows of are known by whoever knows of this one.
    if (!(cell.read.bytes & ~mask) && fenced_before(cell.read)) cell.read = {};
    cell.read.add(who, mask);
  }
}

// The variable with a byte of shared memory, or nullptr. Most accesses are to that of the last one.
inline const SharedVariable* shared_variable(std::uint64_t offset) {
  static std::uint32_t last = 0;
  const Request& request = launch.request;
  const auto has = [&](std::uint32_t i) {
    const SharedVariable& variable = request.shared_variables[i];
    return offset - variable.offset < variable.bytes;
  };
  if (last < request.shared_count && has(last)) return &request.shared_variables[last];
  for (last = 0; last < request.shared_count; last++)
    if (has(last)) return &request.shared_variables[last];
  return nullptr;
}

// What a bulk copy wrote is read behind a wait for its barrier (bulk.h).
void check_landed(const Line& line, void* pc);
// What another block of the cluster reads is not written meanwhile (peers.h).
void check_peer_reads(std::uintptr_t offset, unsigned bytes, void* pc);

inline void check_shared(const Access& access) {
  const std::uintptr_t offset = access.address - launch.module.shared.start;
  const SharedVariable* variable = shared_variable(offset);
  const bool dynamic = variable && launch.request.dynamic &&
                       variable->offset + launch.module.shared.start ==
                           reinterpret_cast<std::uintptr_t>(launch.request.dynamic);
  const std::uint64_t size = !variable ? 0
                             : dynamic ? launch.request.shared_bytes
                                       : variable->bytes;
  if (!variable || offset + access.bytes > variable->offset + size) {
    std::string where = "of shared memory that no variable has";
    if (variable)
      where = format("at byte %lu of shared %s, which has %lu", offset - variable->offset,
                     variable->name, size);
    return report(outside, access.pc,
                  format("%s %u bytes %s", access.verb(), access.bytes, where.c_str()));
  }
  const auto name = [&] {
    return format("byte %lu of shared %s", offset - variable->offset, variable->name);
  };
  const Actor who = actor(launch.block_serial);
  each_cell(offset, access.bytes, [&](std::uintptr_t i, std::uint8_t mask) {
    Cell& cell = shadow.shared[i];
    if (cell.valid_in(launch.block_serial) && cell.pending & mask)
      report(pending, access.pc,
             format("%s %s while an asynchronous copy by thread %u into it may be under way",
                    access.verb(), name().c_str(), cell.written.thread));
    check_cell(cell, mask, access, who, launch.block_serial, name);
    if (access.write) cell.fences = launch.current->fences;
  });
  if (access.write) check_peer_reads(offset, access.bytes, access.pc);
  if (launch.block.phases.empty()) return;
  for (std::uintptr_t i = offset / line_bytes; i <= (offset + access.bytes - 1) / line_bytes; i++)
    if (!access.write) check_landed(launch.block.lines[i], access.pc);
}

// What the launch declares of an access: the range that allows it, else one that has the bytes.
inline const Range* declared_range(const Access& access, bool& allowed) {
  static std::uint32_t last = 0;
  const Request& request = launch.request;
  const Range* found = nullptr;
  allowed = false;
  if (last >= request.range_count) last = 0;
  for (std::uint32_t i = 0; i < request.range_count; i++) {
    const std::uint32_t at = (last + i) % request.range_count;
    const Range& range = request.ranges[at];
    if (access.address < range.start || access.address + access.bytes > range.stop) continue;
    found = &range;
    // What a launch writes it may read back.
    allowed = access.write ? range.writes || range.scratch : true;
    if (allowed && (access.write || range.reads || range.scratch)) {
      last = at;
      return found;
    }
  }
  return found;
}

// Where an access is: in a declared range, else beside the nearest one of the same memory.
inline std::string global_name(const Access& access, const Range* range) {
  if (range) return format("byte %lu of %s", access.address - range->start, range->name);
  const Allocation* allocation = memory.before(access.address);
  std::uint64_t nearest = 1 << 20;
  std::string name = place_text(memory, access.address);
  for (std::uint32_t i = 0; i < launch.request.range_count; i++) {
    const Range& other = launch.request.ranges[i];
    if (memory.before(other.start) != allocation) continue;
    const bool behind = access.address >= other.start;
    // Of an access that runs over the end of a range this says where it begins.
    const std::uint64_t distance = !behind                       ? other.start - access.address
                                   : access.address < other.stop ? 0
                                                                 : access.address - other.stop;
    if (distance >= nearest) continue;
    nearest = distance;
    name = format("%lu bytes %s %s", distance, behind ? "behind the end of" : "before", other.name);
  }
  return name;
}

inline void check_global(const Access& access) {
  const Allocation* allocation = memory.before(access.address);
  if (!allocation || allocation->freed || access.address + access.bytes > allocation->stop)
    fail(access.pc, format("%s %u bytes, %s", access.verb(), access.bytes,
                           place_text(memory, access.address).c_str()));
  const Request& request = launch.request;
  bool allowed = true;
  const Range* range = nullptr;
  if (request.range_count) {
    range = declared_range(access, allowed);
    if (!range || !allowed)
      return report(undeclared, access.pc,
                    format("%s %s, which the launch does not declare%s", access.verb(),
                           global_name(access, range).c_str(), range ? " to be written" : ""));
  }
  const bool own = range && !range->reads && !range->scratch && !access.write;
  const Actor who = actor(launch.serial);
  const auto name = [&] { return global_name(access, range); };
  shadow.each_global(access.address, access.bytes, [&](Cell& cell, std::uint8_t mask) {
    const bool now = cell.touched_serial == request.touch_serial;
    if (own && !(now && (cell.touched_writes & mask) == mask))
      report(undeclared, access.pc,
             format("reads %s before this launch has written it", name().c_str()));
    cell.touch(request.touch_serial, mask, access.write);
    check_cell(cell, mask, access, who, for_good, name);
  });
}

inline void check_access(const Access& access) {
  if (!launch.current || stacks.contains(access.address)) return;
  if (launch.late) fail(access.pc, late_text());
  if (memory.contains(access.address)) return check_global(access);
  const Segment& shared = launch.module.shared;
  if (shared.contains(access.address)) return check_shared(access);
  if ((!access.write || access.atomic) && launch.module.image.contains(access.address)) return;
  const std::uintptr_t behind = access.address - shared.start - shared.size;
  if (shared.size && behind < 64 << 10)
    fail(access.pc, format("%s %u bytes, %lu bytes behind the end of shared memory", access.verb(),
                           access.bytes, behind));
  fail(access.pc, format("%s %u bytes at 0x%lx, which is not memory of the device", access.verb(),
                         access.bytes, access.address));
}

// What lies on a thread's stack is the host compiler's to align: two pointers move as 16 bytes.
inline void check_aligned(std::uintptr_t address, unsigned bytes, const char* verb, void* pc) {
  if (launch.current && address % bytes && !stacks.contains(address))
    fail(pc, format("%s %u bytes at an address that %u does not divide (%s)", verb, bytes, bytes,
                    memory.contains(address) ? place_text(memory, address).c_str() : "shared"));
}

// After the last launch that writes them: declared bytes that were not written.
inline void check_written() {
  for (std::uint32_t i = 0; i < launch.request.range_count; i++) {
    const Range& range = launch.request.ranges[i];
    if (!range.writes) continue;
    std::uint64_t missing = 0, first = 0, at = range.start;
    shadow.each_global(range.start, range.stop - range.start, [&](Cell& cell, std::uint8_t mask) {
      const bool touched = cell.touched_serial == launch.request.touch_serial;
      std::uint8_t lost = touched ? mask & ~cell.touched_writes : mask;
      for (int bit = 0; range.period && bit < 8; bit++)  // padding is none
        if ((at - range.start + bit - __builtin_ctz(mask)) % range.period >=
            static_cast<std::uint64_t>(range.live))
          lost &= ~(1u << bit);
      if (lost && !missing) first = at - range.start + __builtin_ctz(lost) - __builtin_ctz(mask);
      missing += __builtin_popcount(lost);
      at += __builtin_popcount(mask);
    });
    if (missing)
      report(extent + 1 + static_cast<int>(i), nullptr,
             format("leaves %lu of the %lu bytes of %s unwritten, from byte %lu on", missing,
                    range.stop - range.start, range.name, first));
  }
}

// Scratch has no value when a launch begins; if it may be read, parts of it may be other values.
inline void forget_scratch() {
  for (std::uint32_t i = 0; i < launch.request.range_count; i++) {
    const Range& range = launch.request.ranges[i];
    if (range.scratch && !range.reads)
      shadow.each_global(range.start, range.stop - range.start, [&](Cell& cell, std::uint8_t mask) {
        cell.valid = cell.valid_in(for_good) & ~mask;
      });
  }
}

}  // namespace graphc_sim
