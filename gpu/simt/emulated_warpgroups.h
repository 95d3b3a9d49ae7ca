// Products of warpgroups for the SIMT checker, at the level of instructions: what they mean is in warpgroup_units.h, written
// from the manual and not from warpgroups.h.
#pragma once

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
EQ_DEVICE void eq_wgmma_wait() { eq_simt_wgmma_wait(pending, eq_simt_read); }
