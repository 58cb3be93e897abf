// The vector types of GCC and clang, for x86 without AVX2, ARM without dot products, and others.
#pragma once

#ifdef __SSSE3__
#include <tmmintrin.h>
#endif

#define SIMD_NAME "portable"
constexpr int ROWS_AT_ONCE = 4, TILES_AT_ONCE = 1;
constexpr int QUERIES_AT_ONCE = 1, WIDTH_AT_ONCE = 2;

typedef float Floats __attribute__((vector_size(16)));
typedef int32_t Ints __attribute__((vector_size(16)));
typedef uint32_t Bits __attribute__((vector_size(16)));
typedef int16_t Shorts __attribute__((vector_size(16)));
typedef uint16_t Words __attribute__((vector_size(16)));

INLINE Floats choose(Ints mask, Floats a, Floats b) {
  return (Floats)(((Ints)a & mask) | ((Ints)b & ~mask));
}
INLINE float sum_of(Floats s) { return (s[0] + s[1]) + (s[2] + s[3]); }
INLINE int sum_of(Ints s) { return (s[0] + s[1]) + (s[2] + s[3]); }
#include "simd_vectors.h"

INLINE F fma(const F& a, const F& b, const F& c) {
  F r;
  EACH r.v[i] = a.v[i] * b.v[i] + c.v[i];
  return r;
}
INLINE F larger(const F& a, const F& b) {
  F r;
  EACH r.v[i] = choose(a.v[i] > b.v[i], a.v[i], b.v[i]);
  return r;
}
INLINE F smaller(const F& a, const F& b) {
  F r;
  EACH r.v[i] = choose(a.v[i] < b.v[i], a.v[i], b.v[i]);
  return r;
}
// Adding 1.5 * 2^23 to a float of at most 2^22 rounds it to the nearest integer, ties to even; the
// last bits of the sum are then this integer.
INLINE I rounded(const F& a) {
  I r;
  EACH r.v[i] = (Ints)(a.v[i] + 12582912.0f) - 0x4b400000;
  return r;
}
INLINE float largest(const F& a) {
  Floats low = choose(a.v[0] > a.v[1], a.v[0], a.v[1]), high = choose(a.v[2] > a.v[3], a.v[2], a.v[3]);
  Floats most = choose(low > high, low, high);
  float first = most[0] > most[1] ? most[0] : most[1], last = most[2] > most[3] ? most[2] : most[3];
  return first > last ? first : last;
}
INLINE void store_bytes(int8_t* p, const I& a) {
  for (int k = 0; k < 16; k++) p[k] = (int8_t)a.v[k / 4][k % 4];
}
INLINE I load_bytes(const int8_t* p) {
  I r;
  EACH r.v[i] = Ints{p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3]};
  return r;
}
INLINE Bits choose(Ints mask, Bits a, Bits b) { return (a & (Bits)mask) | (b & ~(Bits)mask); }
// Converts half-precision numbers, in the low 16 bits of each lane, to floats.
INLINE Floats from_half(Bits h) {
  Bits absolute = h & 0x7fffu, sign = (h & 0x8000u) << 16;
  Bits bits = (Bits)((Floats)(absolute << 13) * 5.192296858534828e33f);  // 2^112
  return (Floats)(bits | sign | ((Bits)((Ints)absolute > 0x7bff) & 0x7f800000u));
}
// Rounds floats to half precision, ties to even.
INLINE Bits to_half(Floats x) {
  Bits bits = (Bits)x, sign = (bits >> 16) & 0x8000u;
  bits &= 0x7fffffffu;
  Bits normal = (bits + ((bits >> 13) & 1u) + 0xc8000fffu) >> 13;
  Bits small = (Bits)((Floats)choose(bits < 0x38800000u, bits, bits & 0u) * 16777216.0f + 8388608.0f);
  Bits half = choose(bits < 0x38800000u, small & 0x7fffu, normal);
  half = choose(bits >= 0x477ff000u, half * 0u + 0x7c00u, half);
  return sign | choose(bits > 0x7f800000u, half * 0u + 0x7e00u, half);
}
#ifdef __clang__
#define INTERLEAVED(x, y, ...) __builtin_shufflevector(x, y, __VA_ARGS__)
#else
#define INTERLEAVED(x, y, ...) __builtin_shuffle(x, y, Shorts{__VA_ARGS__})
#endif
INLINE F load_half(const uint16_t* p) {
  F r;
  const Words zero = {};
  for (int k = 0; k < 2; k++) {
    Words h = read<Words>(p + 8 * k);
    r.v[2 * k] = from_half((Bits)INTERLEAVED(h, zero, 0, 8, 1, 9, 2, 10, 3, 11));
    r.v[2 * k + 1] = from_half((Bits)INTERLEAVED(h, zero, 4, 12, 5, 13, 6, 14, 7, 15));
  }
  return r;
}
INLINE void store_half(uint16_t* p, const F& x) {
  EACH {
    Bits h = to_half(x.v[i]);
    for (int k = 0; k < 4; k++) p[4 * i + k] = (uint16_t)h[k];
  }
}

// A vector of weights contains 4 outputs x 4 inputs as bytes. Weights of 4 bits let a lane of 16
// bits contain the sum of 16 products, each at most 15 x 127.

#ifdef __SSSE3__
struct Inputs {
  __m128i four;
};
INLINE Inputs inputs(const int8_t* x) { return {_mm_set1_epi32(read<int32_t>(x))}; }
INLINE Words products(Words weights, const Inputs& x) {
  return (Words)_mm_maddubs_epi16((__m128i)weights, x.four);
}
#else
// 4 inputs, repeated for each output: the first and third, and the second and fourth.
struct Inputs {
  Words even, odd;
};
INLINE Inputs inputs(const int8_t* x) {
  int32_t four = read<int32_t>(x);
  Shorts pairs = (Shorts)Ints{four, four, four, four};
  return {(Words)(pairs << 8 >> 8), (Words)(pairs >> 8)};
}
INLINE Words products(Words weights, const Inputs& x) {
  return (weights & 255) * x.even + (weights >> 8) * x.odd;
}
#endif
INLINE Words low_halves(Words bytes) { return bytes & 0x0f0f; }
INLINE Words high_halves(Words bytes) { return (bytes >> 4) & 0x0f0f; }
// Adds the two 16-bit lanes of each output.
INLINE Ints whole(Words sum) { return ((Ints)sum << 16 >> 16) + ((Ints)sum >> 16); }

// Writes to out[n] the sum of unsigned 4-bit weights times row n of x. Rows are `width` apart.
template <int T, int N>
INLINE void products4(const uint8_t* p, const int8_t* x, int width, F* out) {
  Words sum[N][4] = {};
  for (int k = 0; k < 4; k++, p += 64, x += 4) {
    Inputs in[N], later[N];
    for (int n = 0; n < N; n++)
      in[n] = inputs(x + n * width), later[n] = inputs(x + n * width + 16);
    EACH {
      Words w = read<Words>(p + 16 * i), half = low_halves(w), other = high_halves(w);
      for (int n = 0; n < N; n++) sum[n][i] += products(half, in[n]) + products(other, later[n]);
    }
  }
  for (int n = 0; n < N; n++) EACH out[n].v[i] = __builtin_convertvector(whole(sum[n][i]), Floats);
}

// Like products4, for 8-bit weights, which are stored plus 128 and split into two halves of 4 bits.
template <int T, int N>
INLINE void products8(const uint8_t* p, const int8_t* x, int width, const int32_t* counts,
                      int groups, F* out) {
  Words low[N][4] = {}, high[N][4] = {};
  for (int k = 0; k < 8; k++, p += 64, x += 4) {
    Inputs in[N];
    for (int n = 0; n < N; n++) in[n] = inputs(x + n * width);
    EACH {
      Words w = read<Words>(p + 16 * i), half = low_halves(w), other = high_halves(w);
      for (int n = 0; n < N; n++)
        low[n][i] += products(half, in[n]), high[n][i] += products(other, in[n]);
    }
  }
  for (int n = 0; n < N; n++)
    EACH {
      Ints sum = whole(low[n][i]) + whole(high[n][i]) * 16 - 128 * counts[n * groups];
      out[n].v[i] = __builtin_convertvector(sum, Floats);
    }
}
#undef EACH
