// Reductions over lanes, waves and blocks. An operator is a struct with identity() and apply(a, b) over its value type.
// Included by prelude.h.
#pragma once

template <class T>
struct eq_sum_of {
  typedef T value;
  static EQ_DEVICE T identity() { return T(0); }
  static EQ_DEVICE T apply(T a, T b) { return eq_add(a, b); }
};
template <class T>
struct eq_prod_of {
  typedef T value;
  static EQ_DEVICE T identity() { return T(1); }
  static EQ_DEVICE T apply(T a, T b) { return eq_mul(a, b); }
};

template <class T>
struct eq_limits;
template <>
struct eq_limits<float> {
  static EQ_DEVICE float lowest() { return -EQ_INF; }
  static EQ_DEVICE float highest() { return EQ_INF; }
};
template <>
struct eq_limits<double> {
  static EQ_DEVICE double lowest() { return -(double)EQ_INF; }
  static EQ_DEVICE double highest() { return (double)EQ_INF; }
};
template <>
struct eq_limits<int> {
  static EQ_DEVICE int lowest() { return -2147483647 - 1; }
  static EQ_DEVICE int highest() { return 2147483647; }
};
template <>
struct eq_limits<long long> {
  static EQ_DEVICE long long lowest() { return -9223372036854775807LL - 1; }
  static EQ_DEVICE long long highest() { return 9223372036854775807LL; }
};

template <class T>
struct eq_max_of {
  typedef T value;
  static EQ_DEVICE T identity() { return eq_limits<T>::lowest(); }
  static EQ_DEVICE T apply(T a, T b) { return eq_max(a, b); }
};
template <class T>
struct eq_min_of {
  typedef T value;
  static EQ_DEVICE T identity() { return eq_limits<T>::highest(); }
  static EQ_DEVICE T apply(T a, T b) { return eq_min(a, b); }
};

// A value and where it stood: argmax and argmin take the first place of the best value, NaN being best of all.
template <class T>
struct eq_placed {
  T x;
  int at;
};
template <class T, bool greatest>
struct eq_place_of {
  typedef eq_placed<T> value;
  static EQ_DEVICE value identity() {
    return value{greatest ? eq_limits<T>::lowest() : eq_limits<T>::highest(), 2147483647};
  }
  static EQ_DEVICE value apply(value a, value b) {
    const bool better = greatest ? b.x > a.x : b.x < a.x;
    const bool same = a.x == b.x || (a.x != a.x && b.x != b.x);
    const bool takes_b = same ? b.at < a.at : a.x == a.x && (better || b.x != b.x);
    return takes_b ? b : a;
  }
};
template <class T>
struct eq_argmax_of : eq_place_of<T, true> {};
template <class T>
struct eq_argmin_of : eq_place_of<T, false> {};

// Every lane of each aligned group of `width` lanes gets the group's total. Four DPP rotations cover 16 lanes.
template <class Op, int width>
EQ_DEVICE typename Op::value eq_lanes_reduce(typename Op::value v EQ_SITE_PARAMETER) {
  static_assert(width >= 1 && width <= EQ_WAVE && (width & (width - 1)) == 0, "a power of two within the wave");
  if constexpr (width >= 16) {
    v = Op::apply(v, eq_rotate16<8>(v EQ_SITE));
    v = Op::apply(v, eq_rotate16<4>(v EQ_SITE));
    v = Op::apply(v, eq_rotate16<2>(v EQ_SITE));
    v = Op::apply(v, eq_rotate16<1>(v EQ_SITE));
    EQ_UNROLL
    for (int mask = 16; mask < width; mask *= 2) v = Op::apply(v, eq_shuffle_xor(v, mask EQ_SITE));
  } else {
    EQ_UNROLL
    for (int mask = 1; mask < width; mask *= 2) v = Op::apply(v, eq_shuffle_xor(v, mask EQ_SITE));
  }
  return v;
}

// Every thread of each aligned group of `width` threads gets the group's total; a block has `threads` threads, all of
// which must call. `scratch` holds threads / EQ_WAVE values; it may be reused after the next barrier.
template <class Op, int width, int threads>
EQ_DEVICE typename Op::value eq_threads_reduce(typename Op::value v, typename Op::value *scratch EQ_SITE_PARAMETER) {
  if constexpr (width <= EQ_WAVE) {
    return eq_lanes_reduce<Op, width>(v EQ_SITE);
  } else {
    constexpr int waves = width / EQ_WAVE;
    v = eq_lanes_reduce<Op, EQ_WAVE>(v EQ_SITE);
    const int wave = eq_thread() / EQ_WAVE;
    eq_barrier(EQ_SITE_ONLY);
    if (eq_lane() == 0) scratch[wave] = v;
    eq_barrier(EQ_SITE_ONLY);
    const int first = wave / waves * waves;
    v = scratch[first];
    EQ_UNROLL
    for (int i = 1; i < waves; ++i) v = Op::apply(v, scratch[first + i]);
    return v;
  }
}

// What sums of exp(alpha (x - m)) are multiplied by when the maximum m (minimum, for alpha < 0) of all x so far goes from
// `old` to `now`; 0 where there was no x yet.
EQ_DEVICE float eq_correction(float alpha, float old, float now) {
  return old == (alpha > 0 ? -EQ_INF : EQ_INF) ? 0.0f : eq_exp(alpha * (old - now));
}

// Narrows the tiles [from, to) of `by` elements to those with some element from `low` to `high`.
EQ_DEVICE void eq_reach(int low, int high, int by, int &from, int &to) {
  const int first = low > 0 ? low / by : 0, past = high < 0 ? 0 : high / by + 1;
  from = first > from ? first : from;
  to = past < to ? past : to;
}
