// The kernel dialect: one C++17 text for hiprtc, nvrtc, plain clang (-x hip) and the SIMT checker.
//
//   EQ_KERNEL(threads) name(...)    entry point of `threads` work-items in one dimension; EQ_EXPORT(name) must follow its body
//   EQ_KERNEL_OF_MANY_REGISTERS(threads)    the same of a text that needs more registers than occupancy would leave it
//   EQ_SHARED(type, name, dims)     block-local memory (LDS)
//   EQ_SHARED_AT_LAUNCH(type, name, dims)   NVIDIA: the same, of a size that the launch gives, at a multiple of 1024 bytes
//   EQ_DEVICE                       helper function, always inlined
//   EQ_INLINE                       after the parameters of a lambda: always inlined, so that what it captures stays in registers
//   EQ_UNROLL, EQ_UNROLL_BY(n)      unroll the loop that follows, wholly or n times
//   eq_thread() eq_block()          index within the block, index of the block (grids are one-dimensional)
//   eq_lane()                       index within the wave; EQ_WAVE lanes make a wave (a macro: sizes derive from it)
//   eq_barrier()                    block barrier, orders LDS and global memory
//   eq_shuffle(v, lane), eq_shuffle_xor(v, mask), eq_rotate16<n>(v)   wave operations; every lane of the wave must take part
//   eq_atomic_sum, eq_atomic_max, eq_atomic_min                       relaxed, device scope, one hardware instruction
//   eq_publish(), eq_observe()      before and after a counter of eq_arrive: what threads wrote is seen by other blocks
//   eq_arrive(counter)              one more block has arrived; how many had before
//   eq_copy_async<bytes>(lds, global, inside), eq_copy_commit(), eq_copy_wait<n>()    NVIDIA: copies into LDS that run on while
//                                   the block computes; zeros where not `inside`. All but the last n commits are waited for
//   eq_load_direct<bytes>(lds, global, inside)    gfx942, gfx950: the same, where lanes of a wave fill LDS side by side: `lds` of
//                                   lane l lies l * bytes after that of lane 0. All lanes take part, and all commits are waited for
//   eq_half eq_bfloat               16-bit storage types; arithmetic is done in float: eq_load<float>(x), eq_store<eq_half>(v)
//   eq_vec<T, n>                    n values moved as one access; n * sizeof(T) <= 16
//
// Nothing is included from a ROCm or CUDA installation, so that one file and one compiler suffice.
#pragma once

#if defined(EQ_SIMT)
#include "simt.h"
#elif defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define EQ_NVIDIA 1
#define EQ_WAVE 32
#elif defined(__HIP__)
#define EQ_AMD 1
// Not warpSize: it is no constant expression from ROCm 7 on.
#if defined(__GFX9__)
#define EQ_WAVE 64
#else
#define EQ_WAVE 32
#endif
#else
#error "the eqsat prelude knows hiprtc, nvrtc, clang -x hip and -DEQ_SIMT"
#endif

// ---- entry points, memory spaces ----------------------------------------------------------------------------------

#if defined(EQ_AMD)
#ifndef __global__  // plain clang: what hiprtc predefines
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#endif
#define EQ_KERNEL(threads) extern "C" __global__ void __attribute__((amdgpu_flat_work_group_size(threads, threads)))
#define EQ_KERNEL_OF_MANY_REGISTERS(threads) EQ_KERNEL(threads)
#define EQ_DEVICE __device__ inline __attribute__((always_inline))
#elif defined(EQ_NVIDIA)
// Left to itself ptxas spills a few registers of small blocks for the sake of occupancy; one block is always asked for
// there. Of large blocks it keeps two on a multiprocessor where that is free; 0 leaves that to it.
#define EQ_KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads, (threads) < 256 ? 1 : 0)
#define EQ_KERNEL_OF_MANY_REGISTERS(threads) extern "C" __global__ void __launch_bounds__(threads, 1)
#define EQ_DEVICE __device__ __forceinline__
#endif

#if defined(EQ_AMD) || defined(EQ_NVIDIA)
#define EQ_EXPORT(name)
#define EQ_SHARED(type, name, dims) __shared__ type name dims
#define EQ_SHARED_AT_LAUNCH(type, name, dims) extern __shared__ __align__(1024) type name[]
#define EQ_RESTRICT __restrict__
#define EQ_INLINE __attribute__((always_inline))
#define EQ_UNROLL _Pragma("unroll")
#define EQ_PRAGMA(text) _Pragma(#text)
#define EQ_UNROLL_BY(n) EQ_PRAGMA(unroll n)
#define EQ_SITE_PARAMETER  // the checker passes the calling line through wave operations and barriers
#define EQ_SITE
#define EQ_SITE_ONLY
#endif

// ---- work-items and barriers --------------------------------------------------------------------------------------

#if defined(EQ_AMD)
EQ_DEVICE int eq_thread() { return (int)__builtin_amdgcn_workitem_id_x(); }
EQ_DEVICE int eq_block() { return (int)__builtin_amdgcn_workgroup_id_x(); }
EQ_DEVICE void eq_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
#elif defined(EQ_NVIDIA)
EQ_DEVICE int eq_thread() { return (int)threadIdx.x; }
EQ_DEVICE int eq_block() { return (int)blockIdx.x; }
EQ_DEVICE void eq_barrier() { __syncthreads(); }
#endif
EQ_DEVICE int eq_lane() { return eq_thread() & (EQ_WAVE - 1); }

// ---- bits and storage types ---------------------------------------------------------------------------------------

template <class To, class From>
EQ_DEVICE To eq_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "eq_bits keeps the size");
#if defined(EQ_NVIDIA)
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
#else
  return __builtin_bit_cast(To, from);
#endif
}

struct eq_half {
  unsigned short bits;
};
struct eq_bfloat {
  unsigned short bits;
};

template <class T, int n>
struct alignas(sizeof(T) * n) eq_vec {
  T v[n];
  EQ_DEVICE T &operator[](int i) { return v[i]; }
  EQ_DEVICE const T &operator[](int i) const { return v[i]; }
};

// Reads n consecutive values as one access; `p` must be aligned to all of them.
template <int n, class T>
EQ_DEVICE eq_vec<T, n> eq_read(const T *p) {
  return *(const eq_vec<T, n> *)p;
}
template <int n, class T>
EQ_DEVICE void eq_write(T *p, const eq_vec<T, n> &v) {
  *(eq_vec<T, n> *)p = v;
}

// What LDS is declared as where it holds different things in turn: 16 bytes, aligned to 16.
typedef eq_vec<float, 4> eq_chunk;

// n consecutive values in a thread's registers; eq_read_run and eq_write_run move them 16 bytes at a time.
template <class T, int n>
struct eq_run {
  T v[n];
};
template <int n, class T>
EQ_DEVICE eq_run<T, n> eq_read_run(const T *p) {
  constexpr int step = n * (int)sizeof(T) <= 16 ? n : 16 / (int)sizeof(T);
  eq_run<T, n> run;
  EQ_UNROLL
  for (int i = 0; i < n; i += step) {
    const eq_vec<T, step> part = eq_read<step>(p + i);
    EQ_UNROLL
    for (int j = 0; j < step; ++j) run.v[i + j] = part.v[j];
  }
  return run;
}
template <int n, class T>
EQ_DEVICE void eq_write_run(T *p, const eq_run<T, n> &run) {
  constexpr int step = n * (int)sizeof(T) <= 16 ? n : 16 / (int)sizeof(T);
  EQ_UNROLL
  for (int i = 0; i < n; i += step) {
    eq_vec<T, step> part;
    EQ_UNROLL
    for (int j = 0; j < step; ++j) part.v[j] = run.v[i + j];
    eq_write<step>(p + i, part);
  }
}

// eq_load: the value that a stored one means. eq_store: the nearest stored value (ties to even).
template <class T>
EQ_DEVICE T eq_load(T x) { return x; }
EQ_DEVICE float eq_load(eq_bfloat x) { return eq_bits<float>((unsigned)x.bits << 16); }
#if defined(EQ_NVIDIA)
EQ_DEVICE float eq_load(eq_half x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
#else
EQ_DEVICE float eq_load(eq_half x) { return (float)eq_bits<_Float16>(x.bits); }
#endif

template <class T>
struct eq_storage {
  template <class V>
  static EQ_DEVICE T from(V x) { return (T)x; }
};
// The float that is rounded to a half as x is: cut off and with its last bit set, unless it is x.
EQ_DEVICE float eq_rounded_to_odd(double x) {
  const float near = (float)x;
  if ((double)near == x) return near;
  const bool beyond = x < 0.0 ? (double)near < x : (double)near > x;
  return eq_bits<float>((eq_bits<unsigned>(near) - beyond) | 1u);
}
template <>
struct eq_storage<eq_half> {
  template <class V>
  static EQ_DEVICE eq_half from(V x) { return from((float)x); }
  static EQ_DEVICE eq_half from(double x) { return from(eq_rounded_to_odd(x)); }
  static EQ_DEVICE eq_half from(float x) {
#if defined(EQ_NVIDIA)
    eq_half y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
#else
    return eq_half{eq_bits<unsigned short>((_Float16)x)};
#endif
  }
};
template <>
struct eq_storage<eq_bfloat> {
  static EQ_DEVICE eq_bfloat from(float x) {
    const unsigned u = eq_bits<unsigned>(x);
    const unsigned rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    return eq_bfloat{(unsigned short)(x != x ? 0x7fc0u : rounded)};
  }
};
template <class T, class V>
EQ_DEVICE T eq_store(V x) { return eq_storage<T>::from(x); }

// ---- wave operations ----------------------------------------------------------------------------------------------

// A 4-byte word from another lane. SIMT: simt.h.
#if defined(EQ_AMD)
EQ_DEVICE int eq_word_shuffle(int word, int lane) { return __builtin_amdgcn_ds_bpermute(lane << 2, word); }
template <int n>
EQ_DEVICE int eq_word_rotate16(int word) {  // DPP row_ror:n
  return __builtin_amdgcn_update_dpp(0, word, 0x120 + n, 0xf, 0xf, false);
}
#elif defined(EQ_NVIDIA)
EQ_DEVICE int eq_word_shuffle(int word, int lane) { return __shfl_sync(0xffffffffu, word, lane); }
template <int n>
EQ_DEVICE int eq_word_rotate16(int word) {
  return eq_word_shuffle(word, (eq_lane() & ~15) | ((eq_lane() - n) & 15));
}
#endif

// The same for values of 4, 8, 12 or 16 bytes.
template <class T>
struct eq_words {
  static_assert(sizeof(T) % 4 == 0, "wave operations move 4-byte words");
  int w[sizeof(T) / 4];
};
template <class T>
EQ_DEVICE T eq_shuffle(T v, int lane EQ_SITE_PARAMETER) {
  eq_words<T> words = eq_bits<eq_words<T>>(v);
  EQ_UNROLL
  for (int i = 0; i < (int)(sizeof(T) / 4); ++i) words.w[i] = eq_word_shuffle(words.w[i], lane EQ_SITE);
  return eq_bits<T>(words);
}
template <class T>
EQ_DEVICE T eq_shuffle_xor(T v, int mask EQ_SITE_PARAMETER) {
  return eq_shuffle(v, eq_lane() ^ mask EQ_SITE);
}
// The value of the lane n places before, cyclically within each aligned group of 16 lanes.
template <int n, class T>
EQ_DEVICE T eq_rotate16(T v EQ_SITE_PARAMETER) {
  eq_words<T> words = eq_bits<eq_words<T>>(v);
  EQ_UNROLL
  for (int i = 0; i < (int)(sizeof(T) / 4); ++i) words.w[i] = eq_word_rotate16<n>(words.w[i] EQ_SITE);
  return eq_bits<T>(words);
}

// ---- copies that run ahead ----------------------------------------------------------------------------------------

#if defined(EQ_NVIDIA)
template <int bytes>
EQ_DEVICE void eq_copy_async(void *to, const void *from, bool inside) {
  const unsigned at = (unsigned)__cvta_generic_to_shared(to);
  const int size = inside ? bytes : 0;  // the rest is filled with zeros
  if constexpr (bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(at), "l"(from), "r"(size) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 : : "r"(at), "l"(from), "n"(bytes), "r"(size) : "memory");
}
EQ_DEVICE void eq_copy_commit() { asm volatile("cp.async.commit_group;" : : : "memory"); }
template <int n>
EQ_DEVICE void eq_copy_wait() { asm volatile("cp.async.wait_group %0;" : : "n"(n) : "memory"); }
#endif

#if defined(__gfx942__) || defined(__gfx950__)
static __device__ const eq_chunk eq_zeros = {};
template <int bytes>
EQ_DEVICE void eq_load_direct(void *to, const void *from, bool inside) {
  typedef __attribute__((address_space(1))) void *global;
  typedef __attribute__((address_space(3))) void *local;
  const global source = (global)(inside ? from : &eq_zeros);
  // The address is the wave's (M0): the hardware adds the lane's place.
  const int own = (int)(unsigned long long)(local)to - eq_lane() * bytes;
  const local wave = (local)(unsigned long long)(unsigned)__builtin_amdgcn_readfirstlane(own);
  if constexpr (bytes == 4) __builtin_amdgcn_global_load_lds(source, wave, 4, 0, 0);
#if defined(__gfx950__)
  if constexpr (bytes == 16) __builtin_amdgcn_global_load_lds(source, wave, 16, 0, 0);
#endif
}
EQ_DEVICE void eq_copy_commit() {}
template <int n>
EQ_DEVICE void eq_copy_wait() {
  static_assert(n == 0, "other loads are counted with these");
  __builtin_amdgcn_s_waitcnt(0x0f70);  // vmcnt(0)
}
#endif

// ---- atomics ------------------------------------------------------------------------------------------------------

#if defined(EQ_AMD)
#define EQ_ATOMIC(name, builtin)                                                   \
  template <class T>                                                               \
  EQ_DEVICE void name(T *p, T v) {                                                 \
    (void)builtin(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);               \
  }
EQ_ATOMIC(eq_word_atomic_add, __hip_atomic_fetch_add)
EQ_ATOMIC(eq_word_atomic_max, __hip_atomic_fetch_max)
EQ_ATOMIC(eq_word_atomic_min, __hip_atomic_fetch_min)
EQ_DEVICE void eq_publish() { __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent"); }
EQ_DEVICE void eq_observe() { __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent"); }
EQ_DEVICE int eq_arrive(int *counter) {
  return __hip_atomic_fetch_add(counter, 1, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
}
#elif defined(EQ_NVIDIA)
#define EQ_ATOMIC(name, builtin) \
  template <class T>             \
  EQ_DEVICE void name(T *p, T v) { builtin(p, v); }
EQ_ATOMIC(eq_word_atomic_add, atomicAdd)
EQ_ATOMIC(eq_word_atomic_max, atomicMax)
EQ_ATOMIC(eq_word_atomic_min, atomicMin)
EQ_DEVICE void eq_publish() { __threadfence(); }
EQ_DEVICE void eq_observe() { __threadfence(); }
EQ_DEVICE int eq_arrive(int *counter) { return atomicAdd(counter, 1); }
#endif

template <class T>
EQ_DEVICE void eq_atomic_sum(T *p, T v) { eq_word_atomic_add(p, v); }
// Floats of one sign order like integers, so the maximum is one integer atomic; a NaN becomes the largest positive
// pattern for max and the largest negative one for min, and so wins as it does in NumPy.
EQ_DEVICE void eq_atomic_max(float *p, float v) {
  const unsigned u = v != v ? 0x7fffffffu : eq_bits<unsigned>(v);
  if (u >> 31)
    eq_word_atomic_min((unsigned *)p, u);
  else
    eq_word_atomic_max((int *)p, (int)u);
}
EQ_DEVICE void eq_atomic_min(float *p, float v) {
  const unsigned u = v != v ? 0xffffffffu : eq_bits<unsigned>(v);
  if (u >> 31)
    eq_word_atomic_max((unsigned *)p, u);
  else
    eq_word_atomic_min((int *)p, (int)u);
}
EQ_DEVICE void eq_atomic_max(int *p, int v) { eq_word_atomic_max(p, v); }
EQ_DEVICE void eq_atomic_min(int *p, int v) { eq_word_atomic_min(p, v); }

#include "scalar_math.h"
#include "reductions.h"
