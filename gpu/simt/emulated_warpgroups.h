// Products of warpgroups for the SIMT checker, at the level of instructions: what they mean is in warpgroup_units.h, written
// from the manual and not from warpgroups.h.
#pragma once

EQ_DEVICE void eq_wave_barrier(int site = __builtin_LINE()) { eq_simt_gather(0, site); }
EQ_DEVICE void eq_meeting_begin(eq_meeting *m, int arrivals, int site = __builtin_LINE()) {
  eq_simt_meeting_begin(m, arrivals, site);
}
EQ_DEVICE void eq_meeting_expect(eq_meeting *m, int bytes, int site = __builtin_LINE()) {
  eq_simt_meeting_arrive(m, bytes, site);
}
EQ_DEVICE void eq_meeting_arrive(eq_meeting *m, int site = __builtin_LINE()) { eq_simt_meeting_arrive(m, 0, site); }
EQ_DEVICE void eq_meeting_wait(eq_meeting *m, int parity, int site = __builtin_LINE()) {
  eq_simt_meeting_wait(m, parity, site);
}
#define EQ_MAP_FIELD(field)                                                                                       \
  EQ_DEVICE void eq_map_##field(void *map, const void *value, int site) {                                         \
    eq_simt_map_replace(map, eq_simt_##field, 0, (unsigned long long)value, site);                                \
  }
#define EQ_MAP_FIELD_AT(field)                                                                                    \
  template <int at>                                                                                               \
  EQ_DEVICE void eq_map_##field(void *map, long long value, int site) {                                           \
    eq_simt_map_replace(map, eq_simt_##field, at, value, site);                                                   \
  }
#define EQ_MAP_FIELD_OF(field)                                                                                    \
  template <int value>                                                                                            \
  EQ_DEVICE void eq_map_##field(void *map, int site) {                                                            \
    eq_simt_map_replace(map, eq_simt_##field, 0, value, site);                                                    \
  }
EQ_MAP_FIELD(global_address)
EQ_MAP_FIELD_OF(rank)
EQ_MAP_FIELD_AT(global_dim)
EQ_MAP_FIELD_AT(global_stride)
EQ_MAP_FIELD_AT(box_dim)
EQ_MAP_FIELD_AT(element_stride)
EQ_MAP_FIELD_OF(elemtype)
EQ_MAP_FIELD_OF(interleave_layout)
EQ_MAP_FIELD_OF(swizzle_mode)
EQ_MAP_FIELD_OF(fill_mode)
static void eq_map_publish(void *global, const void *map, int site = __builtin_LINE()) {
  eq_simt_gather(0, site);  // .aligned
  if (eq_simt_item->lane == 0) eq_simt_map_publish(global, map, site);
  eq_simt_gather(0, site);
}
EQ_DEVICE void eq_map_acquire(const void *global, int site = __builtin_LINE()) { eq_simt_map_acquire(global, site); }
EQ_DEVICE void eq_copy_box(void *to, const void *map, int column, int row, eq_meeting *m, int site = __builtin_LINE()) {
  eq_simt_copy_box(to, map, column, row, m, site);
}

EQ_DEVICE unsigned eq_shared_address(const void *p, int site) { return eq_simt_place(p, site); }
EQ_DEVICE void eq_async_fence() { eq_simt_async_fence(); }
EQ_DEVICE void eq_wgmma_begin() { eq_simt_wgmma_fence(); }

static void eq_simt_product(float *sums, int columns, const eq_simt_operands &operands, int site) {
  const auto lanes = eq_simt_gather(operands, site);  // .aligned: the lanes of a wave meet here
  for (int l = 0; l < EQ_WAVE; ++l)
    if (lanes[l].a != operands.a || lanes[l].b != operands.b) eq_simt_refuse("lanes name different operands", site);
  eq_simt_wgmma(sums, columns, &operands, site);
}
template <int turned_a, int turned_b, int fragments>
static void eq_wgmma(eq_half, eq_sums<16> (&d)[fragments], unsigned long long a, unsigned long long b,
                     int site = __builtin_LINE()) {
  eq_simt_product(d[0].v, fragments * 16, eq_simt_operands{a, b, turned_a, turned_b, 0}, site);
}
template <int turned_a, int turned_b, int fragments>
static void eq_wgmma(eq_bfloat, eq_sums<16> (&d)[fragments], unsigned long long a, unsigned long long b,
                     int site = __builtin_LINE()) {
  eq_simt_product(d[0].v, fragments * 16, eq_simt_operands{a, b, turned_a, turned_b, 1}, site);
}
EQ_DEVICE void eq_wgmma_commit() { eq_simt_wgmma_commit(); }

// Under ThreadSanitizer a product reads its operands as the thread that waits for it would.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define EQ_RACES
#endif
#endif
#if defined(__SANITIZE_THREAD__) || defined(EQ_RACES)
static void eq_simt_read(const void *element) { (void)*(const volatile unsigned short *)element; }
#else
static void (*const eq_simt_read)(const void *) = nullptr;
#endif
template <int pending>
static void eq_wgmma_wait(int site = __builtin_LINE()) {
  eq_simt_wgmma_wait(pending, eq_simt_read);
  eq_simt_gather(0, site);  // .aligned: no lane goes on before all have waited
}
