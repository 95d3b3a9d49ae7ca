// Elementwise functions of the dialect, with NumPy's meaning (NaN kept by min, max, relu and sign; mod has the sign
// of the divisor). Plain clang links no device library, so what LLVM cannot expand for AMD is written out here; every
// front end then gives the same digits, and the SIMT checker tests them. Included by prelude.h.
#pragma once

#if defined(EQ_NVIDIA)
#define EQ_BUILTIN(f) f
#else
#define EQ_BUILTIN(f) __builtin_##f
#endif

#define EQ_INF __builtin_huge_valf()
#define EQ_NAN __builtin_nanf("")
#if defined(EQ_NVIDIA)
#undef EQ_INF
#undef EQ_NAN
#define EQ_INF __int_as_float(0x7f800000)
#define EQ_NAN __int_as_float(0x7fc00000)
#endif

EQ_DEVICE float eq_fma(float a, float b, float c) { return EQ_BUILTIN(fmaf)(a, b, c); }
EQ_DEVICE double eq_fma(double a, double b, double c) { return EQ_BUILTIN(fma)(a, b, c); }

// The type to do arithmetic in: integers wrap around as in NumPy, where overflow of C's signed ones is undefined, and
// compilers take it that x + 1 > x always holds.
template <class T>
struct eq_wrapping {
  typedef T type;
};
template <>
struct eq_wrapping<int> {
  typedef unsigned type;
};
template <>
struct eq_wrapping<long long> {
  typedef unsigned long long type;
};
template <class T>
EQ_DEVICE T eq_neg(T x) { return (T)(-(typename eq_wrapping<T>::type)x); }
template <class T>
EQ_DEVICE T eq_add(T a, T b) { return (T)((typename eq_wrapping<T>::type)a + (typename eq_wrapping<T>::type)b); }
template <class T>
EQ_DEVICE T eq_sub(T a, T b) { return (T)((typename eq_wrapping<T>::type)a - (typename eq_wrapping<T>::type)b); }
template <class T>
EQ_DEVICE T eq_mul(T a, T b) { return (T)((typename eq_wrapping<T>::type)a * (typename eq_wrapping<T>::type)b); }
template <class T>
EQ_DEVICE T eq_fma(T a, T b, T c) { return eq_add(eq_mul(a, b), c); }  // of integers
template <class T>
EQ_DEVICE T eq_div(T a, T b) {  // of integers: the least one has no quotient by -1, and C none by 0
  return b == 0 ? T(0) : b == -1 ? eq_neg(a) : a / b;
}

EQ_DEVICE float eq_sqrt(float x) { return EQ_BUILTIN(sqrtf)(x); }
EQ_DEVICE double eq_sqrt(double x) { return EQ_BUILTIN(sqrt)(x); }
EQ_DEVICE float eq_floor(float x) { return EQ_BUILTIN(floorf)(x); }
EQ_DEVICE double eq_floor(double x) { return EQ_BUILTIN(floor)(x); }
EQ_DEVICE float eq_ceil(float x) { return EQ_BUILTIN(ceilf)(x); }
EQ_DEVICE double eq_ceil(double x) { return EQ_BUILTIN(ceil)(x); }
EQ_DEVICE float eq_round(float x) { return EQ_BUILTIN(rintf)(x); }
EQ_DEVICE double eq_round(double x) { return EQ_BUILTIN(rint)(x); }
EQ_DEVICE float eq_trunc(float x) { return EQ_BUILTIN(truncf)(x); }
EQ_DEVICE double eq_trunc(double x) { return EQ_BUILTIN(trunc)(x); }
EQ_DEVICE float eq_abs(float x) { return EQ_BUILTIN(fabsf)(x); }
EQ_DEVICE double eq_abs(double x) { return EQ_BUILTIN(fabs)(x); }
EQ_DEVICE float eq_copysign(float size, float sign) { return EQ_BUILTIN(copysignf)(size, sign); }
EQ_DEVICE double eq_copysign(double size, double sign) { return EQ_BUILTIN(copysign)(size, sign); }
template <class T>
EQ_DEVICE T eq_abs(T x) { return x < T(0) ? eq_neg(x) : x; }

EQ_DEVICE float eq_exp(float x) { return EQ_BUILTIN(expf)(x); }
EQ_DEVICE float eq_log(float x) { return EQ_BUILTIN(logf)(x); }

// exp(x) = 2^k exp(r) with |r| <= ln(2)/2 and the Taylor polynomial of degree 13 (remainder below 5e-18).
EQ_DEVICE double eq_exp(double x) {
  if (x > 709.8) return (double)EQ_INF;
  if (x < -746.0) return 0.0;
  if (x != x) return x;
  const double k = eq_round(x * 1.4426950408889634);
  const double r = eq_fma(-k, 1.9082149292705877e-10, eq_fma(-k, 6.93147180369123816490e-01, x));
  double p = 1.6059043836821613e-10;
  p = eq_fma(p, r, 2.08767569878681e-09);
  p = eq_fma(p, r, 2.505210838544172e-08);
  p = eq_fma(p, r, 2.755731922398589e-07);
  p = eq_fma(p, r, 2.7557319223985893e-06);
  p = eq_fma(p, r, 2.48015873015873e-05);
  p = eq_fma(p, r, 1.984126984126984e-04);
  p = eq_fma(p, r, 1.3888888888888889e-03);
  p = eq_fma(p, r, 8.333333333333333e-03);
  p = eq_fma(p, r, 4.1666666666666664e-02);
  p = eq_fma(p, r, 1.6666666666666666e-01);
  p = eq_fma(p, r, 0.5);
  p = eq_fma(p, r, 1.0);
  p = eq_fma(p, r, 1.0);
  const int half = (int)k / 2, rest = (int)k - half;  // two steps: 2^k alone may be subnormal
  const double a = eq_bits<double>((long long)(1023 + half) << 52);
  const double b = eq_bits<double>((long long)(1023 + rest) << 52);
  return p * a * b;
}

// log(2^k m) = k ln 2 + 2 atanh(s), s = (m - 1)/(m + 1), sqrt(1/2) <= m < sqrt(2): s^2 <= 0.0295, eleven terms.
EQ_DEVICE double eq_log(double x) {
  if (x == 0.0) return -(double)EQ_INF;
  if (x < 0.0) return (double)EQ_NAN;
  if (x != x || x > 1.7976931348623157e308) return x;
  const bool tiny = x < 2.2250738585072014e-308;
  long long u = eq_bits<long long>(tiny ? x * 18014398509481984.0 : x);
  int k = (int)(u >> 52) - 1023 - (tiny ? 54 : 0);
  double m = eq_bits<double>((u & 0xfffffffffffffLL) | 0x3ff0000000000000LL);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    k += 1;
  }
  const double s = (m - 1.0) / (m + 1.0), z = s * s;
  double p = 1.0 / 23.0;
  EQ_UNROLL
  for (int n = 21; n >= 3; n -= 2) p = eq_fma(p, z, 1.0 / n);
  return eq_fma((double)k, 6.93147180369123816490e-01, 2.0 * s + (2.0 * s * z * p + k * 1.9082149292705877e-10));
}

EQ_DEVICE float eq_pow(float x, float y);
EQ_DEVICE double eq_pow(double x, double y) {
  const double size = eq_abs(x);
  if (y == 0.0 || x == 1.0) return 1.0;
  const bool whole = eq_floor(y) == y, odd = whole && eq_floor(y * 0.5) * 2.0 != y;
  if (x < 0.0 && size != (double)EQ_INF && !whole) return (double)EQ_NAN;
  const double r = size == 1.0 ? 1.0 : eq_exp(y * eq_log(size));
  return eq_bits<long long>(x) < 0 && odd ? -r : r;
}
// In double: y log(x) would lose up to seven bits in float.
EQ_DEVICE float eq_pow(float x, float y) { return (float)eq_pow((double)x, (double)y); }
template <class T>
EQ_DEVICE T eq_pow(T x, T y) {  // integers; a negative exponent gives the truncated reciprocal
  if (y < 0) return x == 1 ? T(1) : x == -1 ? (y % 2 ? T(-1) : T(1)) : T(0);
  T r = 1;
  for (; y; y >>= 1) {
    if (y & 1) r = eq_mul(r, x);
    x = eq_mul(x, x);
  }
  return r;
}

template <class T>
EQ_DEVICE T eq_log1p(T x) {  // Kahan: exact cancellation of the rounding of 1 + x
  const T u = T(1) + x, d = u - T(1);
  return d == T(0) ? x : d == x ? eq_log(u) : eq_log(u) * (x / d);
}

// x^(1/2), which the root is not of -inf, nor of -0.
template <class T>
EQ_DEVICE T eq_half_power(T x) { return x == -(T)EQ_INF ? (T)EQ_INF : eq_sqrt(x + T(0)); }

EQ_DEVICE float eq_tanh(float x) {  // Cephes tanhf
  const float size = eq_abs(x), z = x * x;
  float p = -5.70498872745e-3f;
  p = eq_fma(p, z, 2.06390887954e-2f);
  p = eq_fma(p, z, -5.37397155531e-2f);
  p = eq_fma(p, z, 1.33314422036e-1f);
  p = eq_fma(p, z, -3.33332819422e-1f);
  const float far = 1.0f - 2.0f / (eq_exp(2.0f * size) + 1.0f);
  return eq_copysign(size < 0.625f ? eq_fma(p * z, size, size) : far, x);
}
EQ_DEVICE double eq_tanh(double x) {
  const double size = eq_abs(x), z = x * x;
  const double near = size * (1.0 + z * (-1.0 / 3.0 + z * (2.0 / 15.0 - z * (17.0 / 315.0))));
  const double far = 1.0 - 2.0 / (eq_exp(2.0 * size) + 1.0);
  return eq_copysign(size < 0.01 ? near : far, x);
}

// Rational minimax approximation on [-4, 4] (as in Eigen), where erf(4) = 1 - 1.5e-8.
EQ_DEVICE float eq_erf(float x) {
  const float c = x < -4.0f ? -4.0f : x > 4.0f ? 4.0f : x, z = c * c;
  float p = -2.72614225801306e-10f;
  p = eq_fma(p, z, 2.77068142495902e-08f);
  p = eq_fma(p, z, -2.10102402082508e-06f);
  p = eq_fma(p, z, -5.69250639462346e-05f);
  p = eq_fma(p, z, -7.34990630326855e-04f);
  p = eq_fma(p, z, -2.95459980854025e-03f);
  p = eq_fma(p, z, -1.60960333262415e-02f);
  float q = -1.45660718464996e-05f;
  q = eq_fma(q, z, -2.13374055278905e-04f);
  q = eq_fma(q, z, -1.68282697438203e-03f);
  q = eq_fma(q, z, -7.37332916720468e-03f);
  q = eq_fma(q, z, -1.42647390514189e-02f);
  return c * p / q;
}
// erf(x) = 2/sqrt(pi) exp(-x^2) x sum_n (2 x^2)^n / (2n + 1)!! below 2.5, all terms positive; above, the continued
// fraction of erfc (Abramowitz and Stegun 7.1.14).
EQ_DEVICE double eq_erf(double x) {
  const double size = eq_abs(x), z = x * x, e = eq_exp(-z);
  double r;
  if (size < 2.5) {
    double sum = 1.0;
    for (int n = 44; n >= 1; --n) sum = 1.0 + sum * 2.0 * z / (2 * n + 1);
    r = 1.1283791670955126 * size * e * sum;
  } else {
    double f = size;
    for (int n = 60; n >= 1; --n) f = size + 0.5 * n / f;
    r = 1.0 - 0.5641895835477563 * e / f;
  }
  return x != x ? x : eq_copysign(r, x);
}

// x = quadrant pi/2 + rest, with |rest| up to pi/4; of the quadrant only the last two bits count.
struct eq_angle {
  double rest;
  int quadrant;
};

// Payne and Hanek, from 2^30 on: x = m 2^e times those bits of 2/pi that are not multiples of 4 there, to 190 places.
EQ_DEVICE eq_angle eq_far_angle(double x) {
  static const unsigned two_over_pi[38] = {
      0x00000000, 0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab,
      0xdebbc561, 0xb7246e3a, 0x424dd2e0, 0x06492eea, 0x09d1921c, 0xfe1deb1c, 0xb129a73e, 0xe88235f5,
      0x2ebb4484, 0xe99c7026, 0xb45f7e41, 0x3991d639, 0x835339f4, 0x9c845f8b, 0xbdf9283b, 0x1ff897ff,
      0xde05980f, 0xef2f118b, 0x5a0a6d1f, 0x6d367ecf, 0x27cb09b7, 0x4f463f66, 0x9e5fea2d, 0x7527bac7,
      0xebe5f17b, 0x3d0739f7, 0x8a5292ea, 0x6bfb5fb1, 0x1f8d5d08, 0x56033046};
  typedef unsigned long long wide;
  const wide bits = eq_bits<wide>(x), m = (bits & 0xfffffffffffffULL) | 0x10000000000000ULL;
  const int first = (int)(bits >> 52 & 2047) - 1075 + 30;  // the bit of two_over_pi that is 2 at m's last place
  wide carried = 0;
  unsigned product[6];  // modulo 4, the last word first
  EQ_UNROLL
  for (int i = 0; i < 6; ++i) {
    const unsigned *const from = two_over_pi + first / 32 + (5 - i);
    const wide word = (unsigned)(((wide)from[0] << 32 | from[1]) >> (32 - first % 32));
    const wide sum = word * (unsigned)m + (unsigned)carried;
    product[i] = (unsigned)sum;
    carried = (carried >> 32) + (sum >> 32) + word * (m >> 32);
  }
  const wide high = (wide)product[5] << 32 | product[4], low = (wide)product[3] << 32 | product[2];
  const wide places = high << 2 | low >> 62;  // of the fraction; from a half on it counts from the next quadrant down
  const double fraction = ((double)(long long)places + (double)(low << 2) * 0x1p-64) * 0x1p-64;
  const double rest = eq_fma(fraction, 1.5707963267948966, fraction * 6.123233995736766e-17);
  const int quadrant = (int)(high >> 62) + (int)(places >> 63);
  return x < 0.0 ? eq_angle{-rest, -quadrant} : eq_angle{rest, quadrant};
}

// With pi/2 in two parts the rest keeps its digits below 2^30.
EQ_DEVICE eq_angle eq_angle_of(double x) {
  if (eq_abs(x) >= 1073741824.0) return eq_far_angle(x);
  const double k = eq_round(x * 0.6366197723675814);
  return eq_angle{eq_fma(-k, 6.123233995736766e-17, eq_fma(-k, 1.5707963267948966, x)), (int)k};
}

EQ_DEVICE double eq_sine_of_quadrant(double x, int shift) {
  if (!(eq_abs(x) < (double)EQ_INF)) return (double)EQ_NAN;
  const eq_angle angle = eq_angle_of(x);
  const double r = angle.rest, z = r * r;
  double s = -7.647163731819816e-13, c = -1.1470745597729725e-11;
  s = eq_fma(s, z, 1.6059043836821613e-10);
  s = eq_fma(s, z, -2.505210838544172e-08);
  s = eq_fma(s, z, 2.7557319223985893e-06);
  s = eq_fma(s, z, -1.984126984126984e-04);
  s = eq_fma(s, z, 8.333333333333333e-03);
  s = eq_fma(s, z, -1.6666666666666666e-01);
  c = eq_fma(c, z, 2.08767569878681e-09);
  c = eq_fma(c, z, -2.755731922398589e-07);
  c = eq_fma(c, z, 2.48015873015873e-05);
  c = eq_fma(c, z, -1.3888888888888889e-03);
  c = eq_fma(c, z, 4.1666666666666664e-02);
  c = eq_fma(c, z, -0.5);
  const int quadrant = angle.quadrant + shift;
  const double y = quadrant & 1 ? eq_fma(c, z, 1.0) : eq_fma(s * z, r, r);
  return quadrant & 2 ? -y : y;
}
EQ_DEVICE double eq_sin(double x) { return x == 0.0 ? x : eq_sine_of_quadrant(x, 0); }  // of -0 it is -0
EQ_DEVICE double eq_cos(double x) { return eq_sine_of_quadrant(x, 1); }
EQ_DEVICE float eq_sin(float x) { return (float)eq_sin((double)x); }
EQ_DEVICE float eq_cos(float x) { return (float)eq_cos((double)x); }

template <class T>
EQ_DEVICE T eq_reciprocal(T x) { return T(1) / x; }
template <class T>
EQ_DEVICE T eq_rsqrt(T x) { return T(1) / eq_sqrt(x); }
template <class T>
EQ_DEVICE T eq_sigmoid(T x) { return T(1) / (T(1) + eq_exp(-x)); }
template <class T>
EQ_DEVICE T eq_relu(T x) { return x < T(0) ? T(0) : x; }
template <class T>
EQ_DEVICE T eq_sign(T x) { return x > T(0) ? T(1) : x < T(0) ? T(-1) : x == T(0) ? T(0) : x; }
EQ_DEVICE bool eq_not(bool x) { return !x; }

template <class T>
EQ_DEVICE T eq_max(T a, T b) { return a > b || a != a ? a : b; }
template <class T>
EQ_DEVICE T eq_min(T a, T b) { return a < b || a != a ? a : b; }
template <class T>
EQ_DEVICE T eq_mod(T a, T b) {
  if (b == 0 || b == -1) return T(0);  // C has none by 0, nor of the least integer by -1
  const T r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
// C's remainder, exact: of multiples of b by powers of 2^52 first, each of which leaves a quotient of up to 52 bits. That
// quotient may be rounded up to the next whole number; then the rest is negative.
EQ_DEVICE double eq_fmod(double a, double b) {
  const double divisor = eq_abs(b);
  double rest = eq_abs(a), multiple = divisor;
  if (!(rest < (double)EQ_INF) || !(divisor > 0.0)) return (double)EQ_NAN;
  if (rest < divisor) return a;
  while (multiple * 0x1p52 < rest) multiple *= 0x1p52;
  for (; multiple >= divisor; multiple *= 0x1p-52) {
    rest = eq_fma(-eq_trunc(rest / multiple), multiple, rest);
    if (rest < 0.0) rest += multiple;
  }
  return eq_copysign(rest, a);
}
template <class T>
EQ_DEVICE T eq_float_mod(T a, T b) {
  const T r = (T)eq_fmod(a, b);  // the remainder of floats is a float
  return r == T(0) ? eq_copysign(r, b) : (r < T(0)) != (b < T(0)) ? r + b : r;
}
EQ_DEVICE double eq_mod(double a, double b) { return eq_float_mod(a, b); }
EQ_DEVICE float eq_mod(float a, float b) { return eq_float_mod(a, b); }
EQ_DEVICE bool eq_and(bool a, bool b) { return a && b; }
EQ_DEVICE bool eq_or(bool a, bool b) { return a || b; }

template <class T>
EQ_DEVICE bool eq_equal(T a, T b) { return a == b; }
template <class T>
EQ_DEVICE bool eq_less(T a, T b) { return a < b; }
template <class T>
EQ_DEVICE bool eq_less_equal(T a, T b) { return a <= b; }
template <class T>
EQ_DEVICE bool eq_greater(T a, T b) { return a > b; }
template <class T>
EQ_DEVICE bool eq_greater_equal(T a, T b) { return a >= b; }
