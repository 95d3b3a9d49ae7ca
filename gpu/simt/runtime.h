// The scheduler of the SIMT checker. One launch at a time in a process: the caller serialises.
#pragma once
#include <stddef.h>

#define EQ_SIMT_SLOT 64  // bytes that a lane can pass in one wave operation

extern "C" {

struct eq_simt_position {
  int thread, block, lane;
};
// The work-item that is running.
extern eq_simt_position *eq_simt_item;

// Runs `blocks` blocks of `threads` work-items, one block after the other. `order` 0: work-items and blocks in order,
// 1: reversed, above: shuffled by that seed, anew at each scheduling round, in each of which a wave rests. Returns 0, or 1 with
// eq_simt_error() set.
int eq_simt_run(void (*body)(void *), void *argument, int blocks, int threads, int wave, unsigned order);
const char *eq_simt_error();

// Called by kernels; `site` is the line of the call.
void eq_simt_barrier(int site);
const char *eq_simt_exchange(const void *mine, int size, int site);
void *eq_simt_shared(int id, size_t size);
// Ends the launch with an error.
void eq_simt_refuse(const char *what, int site);

// Warpgroups (warpgroup_units.h).
struct eq_simt_operands {
  unsigned long long a, b;  // matrix descriptors
  int transposed_a, transposed_b, bfloat;
};
unsigned eq_simt_place(const void *p, int site);
void eq_simt_async_fence();
void eq_simt_wgmma_fence();
void eq_simt_wgmma(float *sums, int columns, const eq_simt_operands *operands, int site);
void eq_simt_wgmma_commit();
void eq_simt_wgmma_wait(int pending, void (*read)(const void *));

// Copies of boxes (box_units.h). `field` is one of eq_simt_map_fields.
enum eq_simt_map_fields {
  eq_simt_global_address, eq_simt_global_stride, eq_simt_global_dim, eq_simt_box_dim, eq_simt_element_stride, eq_simt_rank,
  eq_simt_elemtype, eq_simt_interleave_layout, eq_simt_swizzle_mode, eq_simt_fill_mode
};
void eq_simt_map_replace(void *map, int field, int at, unsigned long long value, int site);
void eq_simt_map_publish(void *global, const void *map, int site);
void eq_simt_map_acquire(const void *global, int site);
void eq_simt_copy_box(void *to, const void *map, int column, int row, unsigned long long *meeting, int site);
void eq_simt_meeting_begin(unsigned long long *meeting, int arrivals, int site);
void eq_simt_meeting_arrive(unsigned long long *meeting, int bytes, int site);
void eq_simt_meeting_wait(unsigned long long *meeting, int parity, int site);

// A number that the last wave operation of this work-item shares with its wave and with no other operation.
unsigned long long eq_simt_operation();
}
