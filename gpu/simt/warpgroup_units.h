// Local memory as asynchronous units see it, and the products of warpgroups, as the PTX ISA manual describes them. Part of
// the scheduler (runtime.cpp); kernels call it through emulated_warpgroups.h.
//
// Proxies: what threads write is not seen by asynchronous units before a fence.proxy.async, so these have a view of their own.
// A product is computed as late as the manual allows, when its warpgroup waits for it, by each thread for its own sums: who
// reads sums too early gets old ones. It may read operands at any time before, so they must not change in between.
#pragma once
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

struct LocalMemory {  // what one EQ_SHARED declares
  int id;
  size_t size;
  unsigned place;  // its address in the block's window of local memory
  char *memory, *seen;  // by threads, and by asynchronous units
};

constexpr unsigned kAlignment = 1024, kFirstPlace = 1024;  // the first KiB is the system's: a null address is never valid

// Bits of a matrix descriptor.
struct MatrixDescriptor {
  unsigned start, leading, stride, base_offset, swizzle_bits;
  explicit MatrixDescriptor(uint64_t bits)
      : start(decoded(bits)), leading(decoded(bits >> 16)), stride(decoded(bits >> 32)), base_offset(bits >> 49 & 7) {
    static const unsigned bits_of_mode[] = {0, 3, 2, 1};  // none, 128, 64, 32 bytes
    swizzle_bits = bits_of_mode[bits >> 62];
  }
  // The address of an element of two bytes, at `line` of 64 or n and `k` of 16. The canonical layouts: core matrices of 8
  // lines of 16 bytes, along k, or along the lines where the operand is transposed.
  unsigned address(int line, int k, int transposed) const {
    const unsigned span = 16u << swizzle_bits;
    unsigned at = start;
    if (!transposed) {
      at += line % 8 * span + line / 8 * stride + k / 8 * (swizzle_bits ? 16 : leading) + k % 8 * 2;
    } else {
      const unsigned chunk = line / 8, chunks = 1u << swizzle_bits;
      at += chunk % chunks * 16 + k % 8 * span + line % 8 * 2;
      at += chunk / chunks * (swizzle_bits ? leading : stride) + k / 8 * (swizzle_bits ? stride : leading);
    }
    return at ^ (at >> 7 & ((1u << swizzle_bits) - 1)) << 4;
  }

 private:
  static unsigned decoded(uint64_t bits) { return (unsigned)(bits & 0x3fff) << 4; }
};

struct WarpgroupProduct {
  float *sums;
  int columns;
  eq_simt_operands operands;
  unsigned commit;
  int site;
  uint64_t read;  // a digest of the operands when it was issued
};

// Plain arrays: what fibers take from the heap or copy by library functions is seen by sanitizers.
struct Asynchronous {  // state of one thread
  static constexpr unsigned most = 64;
  WarpgroupProduct products[most];
  unsigned first, issued, commits;
  bool fenced;
  static constexpr unsigned most_maps = 4;
  const void *maps[most_maps];  // acquired last
  unsigned acquired;
};
struct Issued {  // the operands of the last products of a warpgroup, each with its number, from 1 on
  static constexpr unsigned most = 64;
  eq_simt_operands operands[most];
  unsigned number[most];
};
inline bool operator==(const eq_simt_operands &x, const eq_simt_operands &y) {
  return x.a == y.a && x.b == y.b && x.transposed_a == y.transposed_a && x.transposed_b == y.transposed_b &&
         x.bfloat == y.bfloat;
}

inline float value_of_half(uint16_t bits, int bfloat) {
  if (bfloat) {
    const uint32_t word = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &word, 4);
    return value;
  }
  _Float16 value;
  memcpy(&value, &bits, 2);
  return (float)value;
}

class LocalMemories {
 public:
  LocalMemory *of(int id) {
    for (LocalMemory &m : all_)
      if (m.id == id) return &m;
    return nullptr;
  }
  LocalMemory *add(int id, size_t size, unsigned char fill) {
    if (all_.capacity() < 64) all_.reserve(64);  // addresses of entries are tags, and must not move
    const unsigned place = all_.empty() ? kFirstPlace : aligned(all_.back().place + (unsigned)all_.back().size);
    all_.push_back(LocalMemory{id, size, place, filled(size, fill), filled(size, fill)});
    return &all_.back();
  }
  // The address of a byte within the block's window; 0 where it is no local memory.
  unsigned place(const void *p) const {
    for (const LocalMemory &m : all_)
      if (p >= m.memory && p < m.memory + m.size) return m.place + (unsigned)((const char *)p - m.memory);
    return 0;
  }
  // The memory that holds all bytes from an address on; null where none does.
  LocalMemory *holding(unsigned address, size_t bytes) {
    for (LocalMemory &m : all_)
      if (address >= m.place && address + bytes <= m.place + m.size) return &m;
    return nullptr;
  }
  void fence() {
    for (LocalMemory &m : all_) {
      size_t i = 0;  // not memcpy, which a sanitizer would take for an access by the kernel
      for (; i + 8 <= m.size; i += 8) *(volatile uint64_t *)&m.seen[i] = *(const volatile uint64_t *)(m.memory + i);
      for (; i < m.size; ++i) m.seen[i] = *(const volatile char *)(m.memory + i);
    }
  }
  std::vector<LocalMemory> &all() { return all_; }

 private:
  static char *filled(size_t size, unsigned char fill) {
    void *memory = nullptr;
    if (posix_memalign(&memory, kAlignment, size)) abort();
    for (size_t i = 0; i < size; ++i) ((volatile unsigned char *)memory)[i] = fill;
    return (char *)memory;
  }
  static unsigned aligned(unsigned at) { return (at + kAlignment - 1) / kAlignment * kAlignment; }
  std::vector<LocalMemory> all_;
};

// The elements of a product's operands that a thread's sums need: rows group and group + 8 of its wave's 16, and two neighbours
// of every eight columns, as fragments of sums are laid out.
class Elements {
 public:
  Elements(const WarpgroupProduct &product, int thread, LocalMemories &memories, void (*read)(const void *))
      : product_(product), memories_(memories), read_(read), a_(product.operands.a), b_(product.operands.b),
        row_(thread % 128 / 32 * 16 + thread % 32 / 4), column_(thread % 4 * 2) {
    outside = a_.base_offset || b_.base_offset;
  }

  void digest_all() {
    for (int k = 0; k < 16; ++k) {
      for (int h = 0; h < 2; ++h) left(h, k);
      for (int i = 0; i < product_.columns / 4; ++i) right(i, k);
    }
  }
  void add_to_sums() {
    for (int k = 0; k < 16; ++k) {
      const float rows[] = {left(0, k), left(1, k)};
      for (int i = 0; i < product_.columns / 4; ++i) {
        const float column = right(i, k);
        for (int h = 0; h < 2; ++h) product_.sums[4 * (i / 2) + 2 * h + i % 2] += rows[h] * column;
      }
    }
  }
  bool outside;  // an operand is not in local memory, or its pattern begins elsewhere than at a multiple of 1024 bytes
  uint64_t digest = 0xcbf29ce484222325u;

 private:
  float left(int half, int k) { return element(a_.address(row_ + 8 * half, k, product_.operands.transposed_a)); }
  float right(int i, int k) {
    return element(b_.address(i / 2 * 8 + column_ + i % 2, k, product_.operands.transposed_b));
  }
  float element(unsigned address) {
    const LocalMemory *const m = memories_.holding(address, 2);
    if (m == nullptr) outside = true;
    if (outside) return 0;
    const uint16_t bits = *(const uint16_t *)(m->seen + (address - m->place));
    if (read_) read_(m->memory + (address - m->place));
    digest = (digest ^ bits) * 0x100000001b3u;
    return value_of_half(bits, product_.operands.bfloat);
  }
  const WarpgroupProduct &product_;
  LocalMemories &memories_;
  void (*const read_)(const void *);
  const MatrixDescriptor a_, b_;
  const int row_, column_;
};
