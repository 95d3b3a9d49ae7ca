// The dialect for the SIMT checker: every work-item is a fiber, barriers and wave operations switch fibers.
// Compile with -DEQ_SIMT -DEQ_WAVE=32|64 and, for matrix units, -DEQ_MATRIX=... (see matrix_units.h).
#pragma once
#include <stdint.h>
#include <string.h>

#if !defined(EQ_WAVE)
#error "the checker needs -DEQ_WAVE=32 or -DEQ_WAVE=64"
#endif

#include "runtime.h"

#define EQ_KERNEL(threads) extern "C" void
#define EQ_KERNEL_OF_MANY_REGISTERS(threads) EQ_KERNEL(threads)
#define EQ_DEVICE inline
#define EQ_RESTRICT
#define EQ_INLINE
#define EQ_UNROLL
#define EQ_UNROLL_BY(n)
#define EQ_SITE_PARAMETER , int site = __builtin_LINE()
#define EQ_SITE , site
#define EQ_SITE_ONLY site
#define EQ_SHARED(type, name, dims)     \
  typedef type eq_type_of_##name dims;  \
  eq_type_of_##name &name = *(eq_type_of_##name *)eq_simt_shared(__COUNTER__, sizeof(eq_type_of_##name))
#define EQ_SHARED_AT_LAUNCH(type, name, dims) EQ_SHARED(type, name, dims)

EQ_DEVICE int eq_thread() { return eq_simt_item->thread; }
EQ_DEVICE int eq_block() { return eq_simt_item->block; }
EQ_DEVICE void eq_barrier(int site = __builtin_LINE()) { eq_simt_barrier(site); }

// What each lane of my wave passed to this wave operation, in lane order.
template <class T>
struct eq_simt_lanes {
  const char *slots;
  T operator[](int lane) const {
    T value;
    memcpy(&value, slots + EQ_SIMT_SLOT * (lane & (EQ_WAVE - 1)), sizeof(T));
    return value;
  }
};
template <class T>
static eq_simt_lanes<T> eq_simt_gather(const T &mine, int site) {
  static_assert(sizeof(T) <= EQ_SIMT_SLOT, "a lane passes at most EQ_SIMT_SLOT bytes");
  return eq_simt_lanes<T>{eq_simt_exchange(&mine, sizeof(T), site)};
}

EQ_DEVICE int eq_word_shuffle(int word, int lane, int site) { return eq_simt_gather(word, site)[lane]; }
template <int n>
EQ_DEVICE int eq_word_rotate16(int word, int site) {
  const int lane = eq_simt_item->lane;
  return eq_simt_gather(word, site)[(lane & ~15) | ((lane - n) & 15)];
}

EQ_DEVICE void eq_publish() {}
EQ_DEVICE void eq_observe() {}
EQ_DEVICE int eq_arrive(int *counter) { return __atomic_fetch_add(counter, 1, __ATOMIC_ACQ_REL); }
template <class T, class Combine>
static void eq_simt_atomic(T *p, Combine combine) {
  T old = __atomic_load_n(p, __ATOMIC_RELAXED);
  T next = combine(old);
  while (!__atomic_compare_exchange_n(p, &old, next, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) next = combine(old);
}
template <class T>
EQ_DEVICE void eq_word_atomic_add(T *p, T v) { eq_simt_atomic(p, [v](T old) { return (T)(old + v); }); }
template <class T>
EQ_DEVICE void eq_word_atomic_max(T *p, T v) { eq_simt_atomic(p, [v](T old) { return old > v ? old : v; }); }
template <class T>
EQ_DEVICE void eq_word_atomic_min(T *p, T v) { eq_simt_atomic(p, [v](T old) { return old < v ? old : v; }); }
// Compare-and-swap takes integers only.
template <class T, class Word>
static void eq_simt_float_add(T *p, T v) {
  eq_simt_atomic((Word *)p, [v](Word old) { return __builtin_bit_cast(Word, (T)(__builtin_bit_cast(T, old) + v)); });
}
EQ_DEVICE void eq_word_atomic_add(float *p, float v) { eq_simt_float_add<float, uint32_t>(p, v); }
EQ_DEVICE void eq_word_atomic_add(double *p, double v) { eq_simt_float_add<double, uint64_t>(p, v); }

// Copies that run ahead: done as late as the kernel allows, when it waits for them, so that one who does not wait reads
// what was there before. The queue is the copy engine's, not the kernel's memory.
struct eq_simt_copy {
  void *to;
  const void *from;
  int size;
  bool inside;
  unsigned commit;
};
struct eq_simt_copies {
  eq_simt_copy queue[256];
  int first, count, block;
  unsigned commits, issued;
};
static eq_simt_copies eq_simt_engine[1024];
struct eq_simt_wave_load {  // number `load` of the wave's loads in this block
  char *base;
  int block;
  unsigned load;
};
static eq_simt_wave_load eq_simt_wave_loads[1024 / EQ_WAVE][256];
#define EQ_UNSEEN __attribute__((no_sanitize("thread"), noinline)) static

EQ_UNSEEN eq_simt_copies &eq_simt_my_copies() {
  eq_simt_copies &mine = eq_simt_engine[eq_simt_item->thread];
  if (mine.block != eq_simt_item->block + 1) mine.first = mine.count = mine.issued = 0, mine.block = eq_simt_item->block + 1;
  return mine;
}
EQ_UNSEEN void eq_simt_enqueue(const eq_simt_copy &copy) {
  eq_simt_copies &mine = eq_simt_my_copies();
  eq_simt_copy &last = mine.queue[(mine.first + mine.count++) % 256];
  ++mine.issued;
  last = copy;
  last.commit = mine.commits;
}
EQ_UNSEEN bool eq_simt_dequeue(eq_simt_copy &copy, int pending) {
  eq_simt_copies &mine = eq_simt_my_copies();
  if (mine.count == 0) return false;
  copy = mine.queue[mine.first];
  if (copy.commit + pending >= mine.commits) return false;
  mine.first = (mine.first + 1) % 256;
  --mine.count;
  return true;
}
EQ_UNSEEN void eq_simt_commit() { ++eq_simt_my_copies().commits; }
EQ_UNSEEN void eq_simt_forget_copies() {
  for (eq_simt_copies &copies : eq_simt_engine) copies.block = 0;
  for (auto &wave : eq_simt_wave_loads)
    for (eq_simt_wave_load &load : wave) load.block = 0;
}

template <int bytes>
EQ_DEVICE void eq_copy_async(void *to, const void *from, bool inside) {
  eq_simt_enqueue(eq_simt_copy{to, from, bytes, inside, 0});
}
// The hardware knows one address for a wave, and adds the lane's place: the first lane to arrive decides.
EQ_UNSEEN char *eq_simt_wave_base(char *own) {
  const eq_simt_copies &mine = eq_simt_my_copies();
  eq_simt_wave_load &wave = eq_simt_wave_loads[eq_simt_item->thread / EQ_WAVE][mine.issued % 256];
  if (wave.block != mine.block || wave.load != mine.issued) wave = eq_simt_wave_load{own, mine.block, mine.issued};
  return wave.base;
}
template <int bytes>
EQ_DEVICE void eq_load_direct(void *to, const void *from, bool inside) {
  char *const base = eq_simt_wave_base((char *)to - eq_simt_item->lane * bytes);
  eq_simt_enqueue(eq_simt_copy{base + eq_simt_item->lane * bytes, from, bytes, inside, 0});
}
EQ_DEVICE void eq_copy_commit() { eq_simt_commit(); }
template <int pending>
EQ_DEVICE void eq_copy_wait() {
  for (eq_simt_copy copy; eq_simt_dequeue(copy, pending);)
    copy.inside ? memcpy(copy.to, copy.from, copy.size) : memset(copy.to, 0, copy.size);
}

// The launcher of one kernel: unpacks an array of argument addresses, as cuLaunchKernel takes them.
template <class... Args>
struct eq_simt_call {
  void (*kernel)(Args...);
  void **args;
  template <unsigned long... i>
  struct indices {};
  template <unsigned long n, unsigned long... i>
  struct up_to : up_to<n - 1, n - 1, i...> {};
  template <unsigned long... i>
  struct up_to<0, i...> {
    typedef indices<i...> type;
  };
  template <unsigned long... i>
  void run(indices<i...>) const { kernel(*(Args *)args[i]...); }
  static void body(void *self) { ((const eq_simt_call *)self)->run(typename up_to<sizeof...(Args)>::type()); }
};
template <class... Args>
static int eq_simt_launch(void (*kernel)(Args...), void **args, int blocks, int threads, unsigned order) {
  eq_simt_call<Args...> call{kernel, args};
  eq_simt_forget_copies();
  return eq_simt_run(eq_simt_call<Args...>::body, &call, blocks, threads, EQ_WAVE, order);
}
#define EQ_EXPORT(name)                                                                        \
  extern "C" int name##__launch(void **args, int blocks, int threads, unsigned order) {        \
    return eq_simt_launch(name, args, blocks, threads, order);                                 \
  }
