// Context switch between stacks, and what AddressSanitizer and ThreadSanitizer must be told about it.
#pragma once
#include <stddef.h>

extern "C" {
// Saves the callee-saved registers on the current stack, stores the stack pointer to *save, continues at `next`.
void eq_simt_switch(void **save, void *next);

// Weak: null unless the sanitizer is linked in.
void *__tsan_create_fiber(unsigned) __attribute__((weak));
void __tsan_destroy_fiber(void *) __attribute__((weak));
void *__tsan_get_current_fiber() __attribute__((weak));
void __tsan_switch_to_fiber(void *, unsigned) __attribute__((weak));
void __tsan_acquire(void *) __attribute__((weak));
void __tsan_release(void *) __attribute__((weak));
void __sanitizer_start_switch_fiber(void **, const void *, size_t) __attribute__((weak));
void __sanitizer_finish_switch_fiber(void *, const void **, size_t *) __attribute__((weak));
}

#if defined(__x86_64__)
asm(R"(
.text
.globl eq_simt_switch
.type eq_simt_switch,@function
eq_simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size eq_simt_switch,.-eq_simt_switch
)");
// A stack that eq_simt_switch enters `entry` from; `top` is 16-byte aligned.
static void *eq_simt_fresh_stack(char *top, void (*entry)()) {
  void **sp = (void **)top;
  *--sp = nullptr;  // return address of entry, which never returns; keeps the ABI's alignment
  *--sp = (void *)entry;
  for (int i = 0; i < 6; ++i) *--sp = nullptr;
  return sp;
}
#elif defined(__aarch64__)
asm(R"(
.text
.globl eq_simt_switch
.type eq_simt_switch,%function
eq_simt_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size eq_simt_switch,.-eq_simt_switch
)");
static void *eq_simt_fresh_stack(char *top, void (*entry)()) {
  void **sp = (void **)(top - 160);
  for (int i = 0; i < 20; ++i) sp[i] = nullptr;
  sp[11] = (void *)entry;  // x30
  return sp;
}
#else
#error "the SIMT checker runs on x86-64 and aarch64"
#endif
