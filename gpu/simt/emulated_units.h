// Matrix units as the manuals document them, for the SIMT checker. Written from the published fragment maps, on purpose
// not from those of matrix_units.h: the two check each other. A lane passes its fragments to its wave; the first lane
// that goes on lays out the operands, each then computes its own sums. (AMD: matrix instruction calculator; NVIDIA:
// PTX ISA, mma.m16n8k16 and ldmatrix.)
#pragma once

// What lanes share here stands for wires of the unit: ThreadSanitizer must not take it for the kernel's memory, so that
// it is EQ_UNSEEN.

// Whether the operands of this wave operation are still to be laid out. Work-items are fibers of one thread.
EQ_UNSEEN bool eq_first_of_operation() {
  static unsigned long long last;
  const unsigned long long now = eq_simt_operation();
  const bool first = now != last;
  last = now;
  return first;
}

template <class A>
struct eq_operands {
  A a, b;
};

// Sums += A B for one fragment map: Map::row(l, i), Map::k(l, i) place element i of lane l of A (B alike, with the
// column for the row), Map::sum(l, i) gives edge * row + column of sum i.
template <class Map, class T, int n, int edge>
EQ_UNSEEN void eq_emulated_product(const eq_vec<T, n> &a, const eq_vec<T, n> &b, eq_sums<edge> &c, int site) {
  const auto lanes = eq_simt_gather(eq_operands<eq_vec<T, n>>{a, b}, site);
  const bool first = eq_first_of_operation();
  static float left[edge][Map::depth], right[edge][Map::depth];
  for (int l = 0; l < EQ_WAVE && first; ++l) {
    const eq_operands<eq_vec<T, n>> theirs = lanes[l];
    for (int i = 0; i < n; ++i) {
      left[Map::row(l)][Map::k(l, i)] = eq_load(theirs.a[i]);
      right[Map::row(l)][Map::k(l, i)] = eq_load(theirs.b[i]);
    }
  }
  for (int i = 0; i < eq_sums<edge>::count; ++i) {
    const int place = Map::sum(eq_lane(), i);
    for (int k = 0; k < Map::depth; ++k) c.v[i] += left[place / edge][k] * right[place % edge][k];
  }
}

#if EQ_MATRIX == 90 || EQ_MATRIX == 950
template <int edge, int run>
struct eq_mfma_map;
template <int run>
struct eq_mfma_map<16, run> {
  static constexpr int depth = 4 * run;
  static int row(int l) { return l & 15; }
  static int k(int l, int i) { return (l >> 4) * run + i; }
  static int sum(int l, int i) { return ((l >> 4) * 4 + i) * 16 + (l & 15); }
};
template <int run>
struct eq_mfma_map<32, run> {
  static constexpr int depth = 2 * run;
  static int row(int l) { return l & 31; }
  static int k(int l, int i) { return (l >> 5) * run + i; }
  static int sum(int l, int i) { return (8 * (i >> 2) + 4 * (l >> 5) + (i & 3)) * 32 + (l & 31); }
};
template <class T, int n, int edge>
static void eq_mfma(const eq_vec<T, n> &a, const eq_vec<T, n> &b, eq_sums<edge> &c, int site) {
  static_assert(n == (EQ_MATRIX == 90 ? 4 : 8), "16x16x16 and 32x32x8 before gfx950, 16x16x32 and 32x32x16 there");
  eq_emulated_product<eq_mfma_map<edge, n>>(a, b, c, site);
}
template <int edge>
static void eq_mfma(float a, float b, eq_sums<edge> &c, int site) {
  eq_emulated_product<eq_mfma_map<edge, 1>>(eq_vec<float, 1>{{a}}, eq_vec<float, 1>{{b}}, c, site);
}
#elif EQ_MATRIX == 11
struct eq_wmma_map {
  static constexpr int depth = 16;
  static int row(int l) { return l & 15; }
  static int k(int, int i) { return i; }
  static int sum(int l, int i) { return (2 * i + (l >> 4)) * 16 + (l & 15); }
};
#elif EQ_MATRIX == 12
struct eq_wmma_map {
  static constexpr int depth = 16;
  static int row(int l) { return l & 15; }
  static int k(int l, int i) { return (l >> 4) * 8 + i; }
  static int sum(int l, int i) { return ((l >> 4) * 8 + i) * 16 + (l & 15); }
};
#elif EQ_MATRIX == 80
struct eq_mma_fragments {
  unsigned a[4], b[2];
};
template <class T>
EQ_UNSEEN void eq_mma(T, const unsigned *a, const unsigned *b, float *c, int site) {
  const auto lanes = eq_simt_gather(eq_mma_fragments{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}}, site);
  const bool first = eq_first_of_operation();
  static float left[16][16], right[16][8];
  for (int l = 0; l < 32 && first; ++l) {
    const eq_mma_fragments theirs = lanes[l];
    const int group = l >> 2, in_group = l & 3;
    for (int i = 0; i < 8; ++i) {
      const T element{(unsigned short)(theirs.a[i / 2] >> (i % 2 * 16))};
      left[(i / 2) % 2 == 0 ? group : group + 8][in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0)] = eq_load(element);
    }
    for (int i = 0; i < 4; ++i) {
      const T element{(unsigned short)(theirs.b[i / 2] >> (i % 2 * 16))};
      right[in_group * 2 + (i & 1) + (i >= 2 ? 8 : 0)][group] = eq_load(element);
    }
  }
  const int group = eq_lane() >> 2, in_group = eq_lane() & 3;
  for (int i = 0; i < 4; ++i)
    for (int k = 0; k < 16; ++k)
      c[i] += left[i < 2 ? group : group + 8][k] * right[k][in_group * 2 + (i & 1)];
}
// Lane l names row l % 8 of 8x8 matrix l / 8; it receives two neighbours of row l / 4 of each matrix.
static void eq_ldmatrix(unsigned *r, const void *row, int site) {
  const auto rows = eq_simt_gather(row, site);
  for (int matrix = 0; matrix < 4; ++matrix)
    memcpy(&r[matrix], (const char *)rows[matrix * 8 + eq_lane() / 4] + eq_lane() % 4 * 4, 4);
}
// With .trans lane l receives two neighbours of column l / 4: rows 2 * (l % 4) and the next.
static void eq_ldmatrix_turned(unsigned *r, const void *row, int site) {
  const auto rows = eq_simt_gather(row, site);
  for (int matrix = 0; matrix < 4; ++matrix)
    for (int i = 0; i < 2; ++i)
      memcpy((char *)&r[matrix] + 2 * i, (const char *)rows[matrix * 8 + eq_lane() % 4 * 2 + i] + eq_lane() / 4 * 2, 2);
}
#endif
#if EQ_MATRIX == 11 || EQ_MATRIX == 12
template <class T, int n>
static void eq_wmma(const eq_vec<T, n> &a, const eq_vec<T, n> &b, eq_sums<16> &c, int site) {
  static_assert(n == (EQ_MATRIX == 11 ? 16 : 8), "gfx11 replicates, gfx12 splits");
  eq_emulated_product<eq_wmma_map>(a, b, c, site);
}
#endif
