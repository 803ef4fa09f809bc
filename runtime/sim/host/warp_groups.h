// warp_groups.h: wgmma: asynchronous products that read shared memory themselves.
//
// A warp's 16 rows of the 64 are a product of their own here: 16 x 128 sums, of which a lane holds
// what matrices.h says of each eight columns. Products read when they begin; until they are waited
// for, their sums are NaN to their threads, and what they read may not change.
#pragma once
#include "bulk.h"
#include "matrices.h"
#include "peers.h"

namespace graphc_sim {

struct GroupOperands {
  Element kind;
  float* sum;
  const char *a, *b;
  int k;
  bool a_along_k, b_along_k;
};

// Element (outer, k) of panels of 64 lines of 128 bytes.
inline const char* in_panels(const char* tile, int outer, int k, bool along_k) {
  const int y = along_k ? outer : outer / 64 * 64 + k, x = along_k ? k : outer % 64;
  return tile + 2 * (y * 64 + ((x / 8) ^ (y % 8)) * 8 + x % 8);
}

// What a product reads, tested as a load is; who wrote it must have passed the fence.
inline void check_operand(const char* from, void* pc) {
  const auto address = reinterpret_cast<std::uintptr_t>(from);
  check_access({address, 16, false, false, pc});
  each_cell(address - launch.module.shared.start, 16, [&](std::uintptr_t i, std::uint8_t) {
    const Cell& cell = shadow.shared[i];
    if (cell.written.serial != launch.block_serial) return;  // a bulk copy has written it
    const Thread& writer = launch.block.threads[cell.written.thread];
    const bool own = &writer == launch.current;
    if ((own ? writer.fences : writer.fences_known) <= cell.fences)
      report(race_written, pc,
             format("multiplies what thread %u wrote to shared memory, with no fence for the "
                    "asynchronous proxy before the barrier",
                    cell.written.thread));
  });
}

inline Line& line_of(const char* at) {
  return launch.block.lines[static_cast<std::uintptr_t>(at - shared_start()) / line_bytes];
}
// The products of a warp read what was watched until it has the number `until`.
inline void mark_readers(const std::vector<Watched>& read, std::uint32_t until) {
  if (!launch.request.check) return;
  for (const Watched& one : read) line_of(one.at).readers[launch.current->warp()] = until;
}

// The rows of an operand from `first` on, 16 of k each, into to[row * 16 + k], and what was read.
inline void read_panels(const GroupOperands& of, bool b, int first, int rows, float* to,
                        std::vector<Watched>& watched, void* pc) {
  const char* const tile = b ? of.b : of.a;
  const bool along_k = b ? of.b_along_k : of.a_along_k;
  const int outer = along_k ? 1 : 8, deep = along_k ? 8 : 1;  // elements of a chunk
  for (int r = 0; r < rows; r += outer)
    for (int k = 0; k < 16; k += deep) {
      const char* const chunk = in_panels(tile, first + r, of.k + k, along_k);
      if (launch.request.check) check_operand(chunk, pc);
      Watched one{chunk, {}};
      std::memcpy(one.bytes, chunk, sizeof one.bytes);
      watched.push_back(one);
      for (int i = 0; i < 8; i++) {
        std::uint16_t bits;
        std::memcpy(&bits, one.bytes + 2 * i, sizeof bits);
        to[(r + (along_k ? 0 : i)) * 16 + k + (along_k ? i : 0)] = element_of(of.kind, bits, 0);
      }
    }
}

inline void group_multiply(GroupOperands mine, const char* file, int line, void* pc) {
  for (const char* tile : {mine.a, mine.b}) {
    const auto address = reinterpret_cast<std::uintptr_t>(tile);
    check_aligned(address, 1024, "multiplies a tile", pc);
    if (!launch.module.shared.contains(address)) fail(pc, "multiplies what is not shared");
  }
  Thread& thread = *launch.current;
  Held* held = thread.held_at(mine.sum);
  if (!held) {
    if (!thread.group_fenced)
      fail(pc, format("multiplies at %s:%d into sums that no fence has given away", file, line));
    thread.held.push_back({mine.sum, {}});
    held = &thread.held.back();
    std::memcpy(held->values, mine.sum, sizeof held->values);
    std::memset(mine.sum, 0xFF, sizeof held->values);
  }
  mine.sum = held->values;
  const auto finish = [pc](const Meeting& meeting) {
    const auto at = [&](int lane) { return static_cast<GroupOperands*>(meeting.payloads[lane]); };
    const unsigned warp = launch.current->warp();
    Thread& keeper = launch.block.threads[warp * 32];
    std::vector<float> rows(16 * 16), columns(128 * 16);
    std::vector<Watched>& watched = keeper.group_reads[keeper.product_group];
    read_panels(*at(0), false, static_cast<int>(warp % 4 * 16), 16, rows.data(), watched, pc);
    read_panels(*at(0), true, 0, 128, columns.data(), watched, pc);
    for (int lane = 0; lane < 32; lane++)
      for (int i = 0; i < 64; i++) {
        const float* row = &rows[(lane / 4 + i % 4 / 2 * 8) * 16];
        const float* column = &columns[(i / 4 * 8 + lane % 4 * 2 + i % 2) * 16];
        float& total = at(lane)->sum[i];
        for (int k = 0; k < 16; k++) total += row[k] * column[k];
      }
    mark_readers(watched, under_way);
  };
  meet(at_group_product, ~0u, &mine, file, line, finish);
}

// Ends all groups but the last `pending`, the open one not counted.
inline void group_wait(unsigned pending, void* pc) {
  Thread& thread = *launch.current;
  auto& reads = launch.block.threads[thread.warp() * 32].group_reads;
  for (auto group = reads.begin(); group != reads.end();) {
    if (group->first + pending >= thread.product_group) {
      ++group;
      continue;
    }
    for (const Watched& one : group->second)
      if (std::memcmp(one.at, one.bytes, sizeof one.bytes))
        fail(pc, "waits for a product whose operands were overwritten before it had ended");
    mark_readers(group->second, known_to(thread).warps[place_of(launch.block.rank, thread.warp())]);
    group = reads.erase(group);
  }
  for (const auto& [_, read] : reads) mark_readers(read, under_way);
  if (pending) return;
  for (const Held& held : thread.held) std::memcpy(held.sum, held.values, sizeof held.values);
  thread.held.clear();
  thread.group_fenced = false;
}

}  // namespace graphc_sim
