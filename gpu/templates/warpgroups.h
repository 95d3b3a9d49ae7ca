// Products that four waves make together while they go on: wgmma, on compute capability 9.0 alone (sm_90a). Include after
// matrix_units.h.
//
//   eq_descriptor(tile, leading, stride)   an operand in LDS: bytes from one block of 64 columns to the next of a turned
//                                   tile, and from 8 rows (turned: 8 k) to the next 8. Lines have 128 bytes, whose 16-byte chunk
//                                   c lies in place c ^ line % 8 (128-byte swizzle); tiles begin at multiples of 1024
//   eq_wgmma<turned_a, turned_b>(T{}, sums, a, b)   sums[n / 16] += a[64][16] b[16][n], fragments of eq_matrix<T, 16>; wave w
//                                   of the four has rows 16 w ..; runs on until it is waited for
//   eq_wgmma_begin()                before the first product after sums were written or read
//   eq_wgmma_commit(), eq_wgmma_wait<n>()  all but the last n commits are waited for
//   eq_async_fence()                what this thread wrote to LDS is seen by such products and copies
//
// Copies of boxes of an array that run on while the block computes (cp.async.bulk.tensor):
//
//   eq_describe(map, from, columns, rows, ld, box)   array [rows][columns] of 2-byte elements, rows ld apart, in boxes of `box`
//                                   rows and 64 columns, swizzled as above; zeros outside. `map`: 128 bytes of LDS, all 0
//   eq_map_publish(global, map), eq_map_acquire(global)   a wave moves it to global memory, where copies find it; the thread
//                                   that copies acquires it. Addresses of maps are multiples of 128
//   eq_copy_box(lds, global, column, row, barrier)   begins a copy of the box at that place
//   eq_meeting                      in LDS: counts arrivals, and bytes of copies that name it. It goes from phase to phase
//   eq_meeting_begin(m, arrivals)   before its use; to be published like other writes
//   eq_meeting_expect(m, bytes)     arrives, and so many bytes must arrive too; eq_meeting_arrive(m) only arrives
//   eq_meeting_wait(m, parity)      waits for the end of a phase: of the first one by parity 0, of the next by 1, and so on
//   eq_wave_barrier()               lanes of a wave that went different ways meet
//
// Source: PTX ISA, asynchronous warpgroup level matrix instructions, canonical layouts of its matrix descriptors, mbarrier,
// tensormap.replace, cp.async.bulk.tensor.
#pragma once

typedef unsigned long long eq_meeting;

#if defined(EQ_SIMT)
#include "emulated_warpgroups.h"
#else

EQ_DEVICE unsigned eq_shared_address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

EQ_DEVICE void eq_async_fence() { asm volatile("fence.proxy.async.shared::cta;" : : : "memory"); }
EQ_DEVICE void eq_wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }
EQ_DEVICE void eq_wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory"); }
template <int n>
EQ_DEVICE void eq_wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(n) : "memory"); }

// Sums as operands of the assembly text: those of one fragment, and the names of 32, 64 and 128.
#define EQ_FRAGMENT(f)                                                                                        \
  "+f"(d[f].v[0]), "+f"(d[f].v[1]), "+f"(d[f].v[2]), "+f"(d[f].v[3]), "+f"(d[f].v[4]), "+f"(d[f].v[5]),       \
      "+f"(d[f].v[6]), "+f"(d[f].v[7])
#define EQ_FRAGMENTS(f) EQ_FRAGMENT(f), EQ_FRAGMENT(f + 1), EQ_FRAGMENT(f + 2), EQ_FRAGMENT(f + 3)
#define EQ_SUMS_32                                                                                            \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28" \
  ",%29,%30,%31"
#define EQ_SUMS_64                                                                                            \
  EQ_SUMS_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54"   \
             ",%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define EQ_SUMS_128                                                                                           \
  EQ_SUMS_64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86"   \
             ",%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107"   \
             ",%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125"     \
             ",%126,%127"
#define EQ_WGMMA(T, name, n, sums, a, b, plus, turn_a, turn_b, ...)                                           \
  template <int turned_a, int turned_b>                                                                       \
  EQ_DEVICE void eq_wgmma(T, eq_sums<16> (&d)[n / 16], unsigned long long left, unsigned long long right) {   \
    asm volatile("{.reg .pred p; setp.ne.b32 p, " plus ", 0;\n"                                               \
                 "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." name "." name " {" sums "}, " a ", " b     \
                 ", p, 1, 1, " turn_a ", " turn_b ";}"                                                        \
                 : __VA_ARGS__ : "l"(left), "l"(right), "r"(1), "n"(turned_a), "n"(turned_b));                \
  }
#define EQ_WGMMAS(T, name)                                                                                    \
  EQ_WGMMA(T, name, 64, EQ_SUMS_32, "%32", "%33", "%34", "%35", "%36", EQ_FRAGMENTS(0))                       \
  EQ_WGMMA(T, name, 128, EQ_SUMS_64, "%64", "%65", "%66", "%67", "%68", EQ_FRAGMENTS(0), EQ_FRAGMENTS(4))     \
  EQ_WGMMA(T, name, 256, EQ_SUMS_128, "%128", "%129", "%130", "%131", "%132", EQ_FRAGMENTS(0),                \
           EQ_FRAGMENTS(4), EQ_FRAGMENTS(8), EQ_FRAGMENTS(12))
EQ_WGMMAS(eq_half, "f16")
EQ_WGMMAS(eq_bfloat, "bf16")

EQ_DEVICE void eq_wave_barrier() { __syncwarp(); }
EQ_DEVICE void eq_meeting_begin(eq_meeting *m, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(eq_shared_address(m)), "r"(arrivals) : "memory");
}
EQ_DEVICE void eq_meeting_expect(eq_meeting *m, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               : : "r"(eq_shared_address(m)), "r"(bytes) : "memory");
}
EQ_DEVICE void eq_meeting_arrive(eq_meeting *m) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(eq_shared_address(m)) : "memory");
}
EQ_DEVICE void eq_meeting_wait(eq_meeting *m, int parity) {
  unsigned over;
  do {
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                 : "=r"(over) : "r"(eq_shared_address(m)), "r"(parity) : "memory");
  } while (!over);
}

// One field of a tensor map, some at a place of their own.
#define EQ_MAP_FIELD(field, bits, T, letter)                                                                  \
  EQ_DEVICE void eq_map_##field(void *map, T value) {                                                         \
    asm volatile("tensormap.replace.tile." #field ".shared::cta.b1024." bits " [%0], %1;"                     \
                 : : "r"(eq_shared_address(map)), letter(value) : "memory");                                  \
  }
#define EQ_MAP_FIELD_AT(field, bits, T, letter)                                                               \
  template <int at>                                                                                           \
  EQ_DEVICE void eq_map_##field(void *map, T value) {                                                         \
    asm volatile("tensormap.replace.tile." #field ".shared::cta.b1024." bits " [%0], %1, %2;"                 \
                 : : "r"(eq_shared_address(map)), "n"(at), letter(value) : "memory");                         \
  }
#define EQ_MAP_FIELD_OF(field)                                                                                \
  template <int value>                                                                                        \
  EQ_DEVICE void eq_map_##field(void *map) {                                                                  \
    asm volatile("tensormap.replace.tile." #field ".shared::cta.b1024.b32 [%0], %1;"                          \
                 : : "r"(eq_shared_address(map)), "n"(value) : "memory");                                     \
  }
EQ_MAP_FIELD(global_address, "b64", const void *, "l")
EQ_MAP_FIELD_OF(rank)
EQ_MAP_FIELD_AT(global_dim, "b32", int, "r")
EQ_MAP_FIELD_AT(box_dim, "b32", int, "r")
EQ_MAP_FIELD_AT(element_stride, "b32", int, "r")
EQ_MAP_FIELD_OF(elemtype)
EQ_MAP_FIELD_OF(interleave_layout)
EQ_MAP_FIELD_OF(swizzle_mode)
EQ_MAP_FIELD_OF(fill_mode)
template <int at>
EQ_DEVICE void eq_map_global_stride(void *map, long long bytes) {
#if __CUDACC_VER_MAJOR__ < 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ < 5)
  bytes >>= 4;  // ptxas before 12.5 writes the field as it is, which leaves out the lowest four bits
#endif
  asm volatile("tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%0], %1, %2;"
               : : "r"(eq_shared_address(map)), "n"(at), "l"(bytes) : "memory");
}
EQ_DEVICE void eq_map_publish(void *global, void *map) {
  asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;"
               : : "l"(__cvta_generic_to_global(global)), "r"(eq_shared_address(map)) : "memory");
}
EQ_DEVICE void eq_map_acquire(const void *global) {
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" : : "l"(global) : "memory");
}
EQ_DEVICE void eq_copy_box(void *to, const void *map, int column, int row, eq_meeting *m) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
               : : "r"(eq_shared_address(to)), "l"(map), "r"(column), "r"(row), "r"(eq_shared_address(m)) : "memory");
}

#endif

EQ_DEVICE unsigned long long eq_descriptor(const void *tile, int leading, int stride EQ_SITE_PARAMETER) {
  const unsigned long long at = eq_shared_address(tile EQ_SITE);
  return (at & 0x3ffff) >> 4 | (unsigned long long)(leading >> 4) << 16 | (unsigned long long)(stride >> 4) << 32 | 1ull << 62;
}

// Numbers of the fields: PTX ISA, tensormap.replace. A rank is counted from 0, and elements are u16: of any half, zeros are 0.
EQ_DEVICE void eq_describe(void *map, const void *from, int columns, int rows, long long ld, int box EQ_SITE_PARAMETER) {
  eq_map_global_address(map, from EQ_SITE);
  eq_map_rank<1>(map EQ_SITE);
  eq_map_global_dim<0>(map, columns EQ_SITE);
  eq_map_global_dim<1>(map, rows EQ_SITE);
  eq_map_global_stride<0>(map, ld * 2 EQ_SITE);
  eq_map_box_dim<0>(map, 64 EQ_SITE);
  eq_map_box_dim<1>(map, box EQ_SITE);
  eq_map_element_stride<0>(map, 1 EQ_SITE);
  eq_map_element_stride<1>(map, 1 EQ_SITE);
  eq_map_elemtype<1>(map EQ_SITE);
  eq_map_interleave_layout<0>(map EQ_SITE);
  eq_map_swizzle_mode<3>(map EQ_SITE);
  eq_map_fill_mode<0>(map EQ_SITE);
}
