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
// 1: reversed, above: shuffled by that seed, anew at each scheduling round. Returns 0, or 1 with eq_simt_error() set.
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
// A number that the last wave operation of this work-item shares with its wave and with no other operation.
unsigned long long eq_simt_operation();
}
