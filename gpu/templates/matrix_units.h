// Matrix units: fragments of float sums, one set of functions for every unit. Include after prelude.h.
//
//   eq_matrix<T, edge>            the unit that adds products of T to fragments of edge x edge sums: 16, or 32 (MFMA)
//   ::depth                       elements of k that one product consumes
//   ::sums, ::count               a lane's sums of a fragment, and how many they are
//   ::sum_row(i), ::sum_column(i) the place in the fragment of sum i < count of this lane
//   ::read_a(tile, ld)            fragment of a[16][depth] in LDS, rows ld apart, k contiguous
//   ::read_a(tile, ld, far)       fragment of a[32][depth]: the last 16 rows lie `far` elements after the first 16
//   ::read_b(tile, ld), read_b(tile, ld, far)     the same of b as [columns][depth]
//   ::read_mixed<rows, chunks>(tile, ld, far, k)  the same of either from k on, where 16-byte chunk c of row r of `tile` lies
//                                 in place c ^ (r / rows % chunks) (MFMA)
//   ::read_a_turned(tile, ld), read_b_turned(tile, ld)    the same from [depth][16], k ld apart (mma.sync)
//   ::multiply(a, b, sums)        sums += a b; every lane of the wave must take part
//
// The fragment maps are those of AMD's matrix instruction calculator and of the PTX manual (mma.m16n8k16, ldmatrix).
// EQ_MATRIX names the unit: 90 MFMA (gfx90a, gfx942), 950 MFMA of gfx950, 11 and 12 WMMA, 80 mma.sync.
#pragma once

#if defined(EQ_AMD)
#if defined(__gfx950__)
#define EQ_MATRIX 950
#elif defined(__GFX9__)
#define EQ_MATRIX 90
#elif defined(__GFX11__)
#define EQ_MATRIX 11
#elif defined(__GFX12__)
#define EQ_MATRIX 12
#endif
#elif defined(EQ_NVIDIA)
#define EQ_MATRIX 80
#endif
#if !defined(EQ_MATRIX)
#error "this target has no matrix unit that eqsat knows"
#endif

// A lane's part of the sums of a fragment.
template <int edge>
struct eq_sums {
  static constexpr int count = edge * edge / EQ_WAVE;
  float v[count];
};

// ---- the units -----------------------------------------------------------------------------------------------------

#if defined(EQ_SIMT)
#include "emulated_units.h"
#elif defined(EQ_AMD)

template <class E, int n>
struct eq_native {
  typedef E vector __attribute__((ext_vector_type(n)));
  template <class Fragment>
  static EQ_DEVICE vector of(const Fragment &fragment) { return eq_bits<vector>(fragment); }
};
template <int edge>
using eq_native_sums = typename eq_native<float, eq_sums<edge>::count>::vector;
#define EQ_UNIT(name, edge, T, E, n, builtin, ...)                                                                     \
  EQ_DEVICE void name(const eq_vec<T, n> &a, const eq_vec<T, n> &b, eq_sums<edge> &c) {                                \
    typedef eq_native<E, n> native;                                                                                    \
    c = eq_bits<eq_sums<edge>>(builtin(native::of(a), native::of(b), eq_bits<eq_native_sums<edge>>(c) __VA_ARGS__));   \
  }
#define EQ_COMMA ,
#if EQ_MATRIX == 90
EQ_UNIT(eq_mfma, 16, eq_half, _Float16, 4, __builtin_amdgcn_mfma_f32_16x16x16f16, EQ_COMMA 0, 0, 0)
EQ_UNIT(eq_mfma, 16, eq_bfloat, short, 4, __builtin_amdgcn_mfma_f32_16x16x16bf16_1k, EQ_COMMA 0, 0, 0)
EQ_UNIT(eq_mfma, 32, eq_half, _Float16, 4, __builtin_amdgcn_mfma_f32_32x32x8f16, EQ_COMMA 0, 0, 0)
EQ_UNIT(eq_mfma, 32, eq_bfloat, short, 4, __builtin_amdgcn_mfma_f32_32x32x8bf16_1k, EQ_COMMA 0, 0, 0)
#elif EQ_MATRIX == 950
EQ_UNIT(eq_mfma, 16, eq_half, _Float16, 8, __builtin_amdgcn_mfma_f32_16x16x32_f16, EQ_COMMA 0, 0, 0)
EQ_UNIT(eq_mfma, 16, eq_bfloat, __bf16, 8, __builtin_amdgcn_mfma_f32_16x16x32_bf16, EQ_COMMA 0, 0, 0)
EQ_UNIT(eq_mfma, 32, eq_half, _Float16, 8, __builtin_amdgcn_mfma_f32_32x32x16_f16, EQ_COMMA 0, 0, 0)
EQ_UNIT(eq_mfma, 32, eq_bfloat, __bf16, 8, __builtin_amdgcn_mfma_f32_32x32x16_bf16, EQ_COMMA 0, 0, 0)
#elif EQ_MATRIX == 11
EQ_UNIT(eq_wmma, 16, eq_half, _Float16, 16, __builtin_amdgcn_wmma_f32_16x16x16_f16_w32, )
EQ_UNIT(eq_wmma, 16, eq_bfloat, short, 16, __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32, )
#elif EQ_MATRIX == 12
EQ_UNIT(eq_wmma, 16, eq_half, _Float16, 8, __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12, )
EQ_UNIT(eq_wmma, 16, eq_bfloat, short, 8, __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12, )
#endif
#if EQ_MATRIX == 90 || EQ_MATRIX == 950
EQ_DEVICE void eq_mfma(float a, float b, eq_sums<16> &c) {
  c = eq_bits<eq_sums<16>>(__builtin_amdgcn_mfma_f32_16x16x4f32(a, b, eq_bits<eq_native_sums<16>>(c), 0, 0, 0));
}
EQ_DEVICE void eq_mfma(float a, float b, eq_sums<32> &c) {
  c = eq_bits<eq_sums<32>>(__builtin_amdgcn_mfma_f32_32x32x2f32(a, b, eq_bits<eq_native_sums<32>>(c), 0, 0, 0));
}
#endif

#elif defined(EQ_NVIDIA)

#define EQ_MMA(T, name)                                                                                              \
  EQ_DEVICE void eq_mma(T, const unsigned *a, const unsigned *b, float *c) {                                         \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." name "." name                                              \
                 ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                                        \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                    \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                                \
  }
EQ_MMA(eq_half, "f16")
EQ_MMA(eq_bfloat, "bf16")
EQ_DEVICE void eq_ldmatrix(unsigned *r, const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");
}
EQ_DEVICE void eq_ldmatrix_turned(unsigned *r, const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");
}

#endif

// ---- fragments -----------------------------------------------------------------------------------------------------

#if EQ_MATRIX == 80

template <class T, int edge>
struct eq_matrix {
  static_assert(edge == 16, "two m16n8k16 make one fragment");
  static constexpr int depth = 16;
  typedef eq_sums<edge> sums;
  static constexpr int count = sums::count;
  static EQ_DEVICE int sum_row(int i) { return eq_lane() / 4 + 8 * (i / 2 % 2); }
  static EQ_DEVICE int sum_column(int i) { return eq_lane() % 4 * 2 + i % 2 + 8 * (i / 4); }
  struct operand {
    unsigned r[4];
  };
  static EQ_DEVICE operand read_a(const T *tile, int ld EQ_SITE_PARAMETER) {
    operand a;
    eq_ldmatrix(a.r, tile + eq_lane() % 16 * ld + eq_lane() / 16 * 8 EQ_SITE);
    return a;
  }
  static EQ_DEVICE operand read_b(const T *tile, int ld EQ_SITE_PARAMETER) {
    operand b;
    eq_ldmatrix(b.r, tile + (eq_lane() % 8 + eq_lane() / 16 * 8) * ld + eq_lane() / 8 % 2 * 8 EQ_SITE);
    return b;
  }
  static EQ_DEVICE operand read_a_turned(const T *tile, int ld EQ_SITE_PARAMETER) {
    operand a;
    eq_ldmatrix_turned(a.r, tile + (eq_lane() % 8 + eq_lane() / 16 * 8) * ld + eq_lane() / 8 % 2 * 8 EQ_SITE);
    return a;
  }
  static EQ_DEVICE operand read_b_turned(const T *tile, int ld EQ_SITE_PARAMETER) {
    operand b;
    eq_ldmatrix_turned(b.r, tile + eq_lane() % 16 * ld + eq_lane() / 16 * 8 EQ_SITE);
    return b;
  }
  static EQ_DEVICE void multiply(const operand &a, const operand &b, sums &c EQ_SITE_PARAMETER) {
    eq_mma(T{}, a.r, b.r, c.v EQ_SITE);
    eq_mma(T{}, a.r, b.r + 2, c.v + 4 EQ_SITE);
  }
};

#elif EQ_MATRIX == 11 || EQ_MATRIX == 12

template <class T, int edge>
struct eq_matrix {
  static_assert(edge == 16, "WMMA knows no other");
  static constexpr int depth = 16;
  typedef eq_sums<edge> sums;
  static constexpr int count = sums::count;
  static EQ_DEVICE int sum_column(int) { return eq_lane() % 16; }
#if EQ_MATRIX == 11
  static EQ_DEVICE int sum_row(int i) { return 2 * i + eq_lane() / 16; }
  typedef eq_vec<T, 16> operand;
  static EQ_DEVICE operand read_a(const T *tile, int ld EQ_SITE_PARAMETER) {
    struct halves {
      eq_vec<T, 8> lo, hi;
    };
    const T *row = tile + eq_lane() % 16 * ld;
    return eq_bits<operand>(halves{eq_read<8>(row), eq_read<8>(row + 8)});
  }
#else
  static EQ_DEVICE int sum_row(int i) { return eq_lane() / 16 * 8 + i; }
  typedef eq_vec<T, 8> operand;
  static EQ_DEVICE operand read_a(const T *tile, int ld EQ_SITE_PARAMETER) {
    return eq_read<8>(tile + eq_lane() % 16 * ld + eq_lane() / 16 * 8);
  }
#endif
  static EQ_DEVICE operand read_b(const T *tile, int ld EQ_SITE_PARAMETER) { return read_a(tile, ld EQ_SITE); }
  static EQ_DEVICE void multiply(const operand &a, const operand &b, sums &c EQ_SITE_PARAMETER) {
    eq_wmma(a, b, c EQ_SITE);
  }
};

#else

// Lanes with the same remainder by the edge share a row; each of their groups takes `run` neighbours of k.
template <class T, int edge>
struct eq_matrix {
  static constexpr int run = sizeof(T) == 4 || EQ_MATRIX == 90 ? 4 : 8;
  static constexpr int depth = run * EQ_WAVE / edge;
  typedef eq_sums<edge> sums;
  static constexpr int count = sums::count;
  static EQ_DEVICE int sum_row(int i) { return i / 4 * 8 + eq_lane() / edge * 4 + i % 4; }
  static EQ_DEVICE int sum_column(int) { return eq_lane() % edge; }
  typedef eq_vec<T, run> operand;
  static EQ_DEVICE operand read_a(const T *tile, int ld, int far = 0) {
    return eq_read<run>(tile + eq_lane() % 16 * ld + eq_lane() % edge / 16 * far + eq_lane() / edge * run);
  }
  static EQ_DEVICE operand read_b(const T *tile, int ld, int far = 0) { return read_a(tile, ld, far); }
  template <int rows, int chunks>
  static EQ_DEVICE operand read_mixed(const T *tile, int ld, int far, int k) {
    static_assert(16 % (rows * chunks) == 0, "rows 16 apart are mixed alike");
    const int row = eq_lane() % 16, mix = row / rows % chunks * (16 / (int)sizeof(T));
    return eq_read<run>(tile + row * ld + eq_lane() % edge / 16 * far + ((k + eq_lane() / edge * run) ^ mix));
  }
  static EQ_DEVICE void multiply(const operand &a, const operand &b, sums &c EQ_SITE_PARAMETER) {
    if constexpr (sizeof(T) == 4) {
      // One k of each group of lanes at a time, so that a lane reads four neighbours at once.
      EQ_UNROLL
      for (int step = 0; step < run; ++step) eq_mfma(a[step], b[step], c EQ_SITE);
    } else {
      eq_mfma(a, b, c EQ_SITE);
    }
  }
};

#endif
