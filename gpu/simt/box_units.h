// Copies of boxes into local memory, the maps that describe arrays to them, and the barriers that count their bytes, as the PTX
// ISA manual describes them (mbarrier, tensormap.replace, cp.async.bulk.tensor). Part of the scheduler (runtime.cpp).
//
// Copies write as asynchronous units do. Their end is seen by who waits for the phase of their barrier. In between they write
// whenever they like: in forward order as late as can be, in reverse order at once, else by chance.
#pragma once
#include "warpgroup_units.h"

// An mbarrier: its state is in the 64 bits of the object itself, so that who overwrites one is found out.
struct Meeting {
  unsigned phase, expected, pending;
  int bytes;  // that must still arrive
  bool valid;

  static constexpr unsigned most = (1 << 20) - 1;
  static Meeting of(uint64_t bits) {
    const auto field = [&](int from, int count) { return (unsigned)(bits >> from & ((1u << count) - 1)); };
    return Meeting{field(0, 1), field(1, 20), field(21, 20), (int)field(41, 21) - (1 << 20), bits >> 62 == 1};
  }
  uint64_t bits() const {
    return (uint64_t)1 << 62 | (uint64_t)(bytes + (1 << 20)) << 41 | (uint64_t)pending << 21 | expected << 1 | phase;
  }
  void turn() {
    if (pending || bytes) return;
    phase ^= 1;
    pending = expected;
  }
};

// A tensor map: 128 bytes, which only these units read.
struct TensorMap {
  uint64_t global_address, global_stride[4];  // bytes from one line to the next
  uint32_t global_dim[5], box_dim[5], element_stride[5];
  uint32_t rank, elemtype, interleave_layout, swizzle_mode, fill_mode;  // the rank is counted from 0
  uint32_t known;
  static constexpr uint32_t is_map = 0x7ab1e;

  // What the manual forbids, or the checker does not know; null for a map of lines of 2-byte elements that copies may use.
  const char *fault() const {
    if (known != is_map) return "no tensor map there";
    if (rank != 1) return "a tensor map of a rank that the checker does not know";
    if (elemtype != 1 && elemtype != 6 && elemtype != 10) return "a tensor map of elements that the checker does not know";
    if (interleave_layout || fill_mode || swizzle_mode > 3) return "a tensor map of a kind that the checker does not know";
    if (global_address % 16 || global_stride[0] % 16) return "a tensor map whose lines are not at multiples of 16 bytes";
    if (global_stride[0] < 2 * (uint64_t)global_dim[0]) return "a tensor map whose lines overlap";
    for (int i = 0; i < 2; ++i)
      if (box_dim[i] < 1 || box_dim[i] > 256 || element_stride[i] != 1 || !global_dim[i])
        return "a tensor map whose boxes or dimensions are out of range";
    if (box_dim[0] * 2 % 16) return "a box whose lines are no multiple of 16 bytes";
    if (swizzle_mode && box_dim[0] * 2 > 16u << swizzle_mode) return "a box wider than its pattern";
    return nullptr;
  }
};
static_assert(sizeof(TensorMap) <= 128, "maps take 128 bytes");

struct BoxCopy {
  TensorMap map;
  unsigned to;
  int column, row;
  uint64_t *meeting;
};

// Writes a box to both views of local memory; false if it does not lie inside. `copy` moves 2 bytes from global memory.
template <class Copy>
bool write_box(const BoxCopy &box, LocalMemories &memories, Copy copy) {
  const TensorMap &map = box.map;
  const unsigned width = map.box_dim[0], line = width * 2;
  for (unsigned j = 0; j < map.box_dim[1]; ++j)
    for (unsigned i = 0; i < width; ++i) {
      unsigned at = box.to + j * line + i * 2;
      at ^= (at >> 7 & ((1u << map.swizzle_mode) - 1)) << 4;  // modes 1 to 3: 32, 64 and 128 bytes
      const LocalMemory *const m = memories.holding(at, 2);
      if (m == nullptr) return false;
      const long long column = (long long)box.column + i, row = (long long)box.row + j;
      uint16_t value = 0;
      if (column >= 0 && column < map.global_dim[0] && row >= 0 && row < map.global_dim[1])
        copy(&value, (const char *)map.global_address + row * map.global_stride[0] + column * 2);
      *(volatile uint16_t *)(m->memory + (at - m->place)) = value;
      *(volatile uint16_t *)(m->seen + (at - m->place)) = value;
    }
  return true;
}
