// Sixteen numbers as four vectors of 128 bits, in the vector types of GCC and clang. Used by
// simd_neon.h and simd_portable.h, which define Floats, Ints, Bits, choose and sum_of.
#pragma once

struct F {
  Floats v[4];
};
struct I {
  Ints v[4];
};

#define EACH for (int i = 0; i < 4; i++)

template <class To, class From>
INLINE To read(const From* p) {
  To r;
  memcpy(&r, p, sizeof r);
  return r;
}
INLINE F all(float x) { F r; EACH r.v[i] = Floats{x, x, x, x}; return r; }
INLINE F load(const float* p) { F r; EACH r.v[i] = read<Floats>(p + 4 * i); return r; }
INLINE void store(float* p, const F& x) { memcpy(p, x.v, 64); }
INLINE F add(const F& a, const F& b) { F r; EACH r.v[i] = a.v[i] + b.v[i]; return r; }
INLINE F sub(const F& a, const F& b) { F r; EACH r.v[i] = a.v[i] - b.v[i]; return r; }
INLINE F mul(const F& a, const F& b) { F r; EACH r.v[i] = a.v[i] * b.v[i]; return r; }
INLINE F div(const F& a, const F& b) { F r; EACH r.v[i] = a.v[i] / b.v[i]; return r; }
INLINE F magnitude(const F& a) { F r; EACH r.v[i] = (Floats)((Bits)a.v[i] & 0x7fffffffu); return r; }
INLINE F floats(const I& a) { F r; EACH r.v[i] = __builtin_convertvector(a.v[i], Floats); return r; }
INLINE F power_of_two(const I& n) { F r; EACH r.v[i] = (Floats)((n.v[i] + 127) << 23); return r; }
INLINE I plus(const I& a, const I& b) { I r; EACH r.v[i] = a.v[i] + b.v[i]; return r; }
// The first `count` lanes of a, the other lanes of b.
INLINE F first_lanes(int count, const F& a, const F& b) {
  F r;
  EACH r.v[i] = choose(Ints{0, 1, 2, 3} + 4 * i < count, a.v[i], b.v[i]);
  return r;
}
// A bit for each lane where a > b.
INLINE unsigned above(const F& a, const F& b) {
  Ints bits = {};
  EACH bits |= (Ints)(a.v[i] > b.v[i]) & (Ints{1, 2, 4, 8} << (4 * i));
  return sum_of(bits);
}
INLINE float total(const F& a) { return sum_of((a.v[0] + a.v[1]) + (a.v[2] + a.v[3])); }
INLINE int total(const I& a) { return sum_of((a.v[0] + a.v[1]) + (a.v[2] + a.v[3])); }
INLINE void prefetch(const void* p) { __builtin_prefetch(p); }
INLINE void prefetch_far(const void* p) { __builtin_prefetch(p, 0, 2); }
INLINE void prefetch_once(const void* p) { __builtin_prefetch(p, 0, 0); }
