// Plain C++ that compilers vectorise for the target. See simd.h.
#pragma once

#define SIMD_NAME "portable"
constexpr int ROWS_AT_ONCE = 4, TILES_AT_ONCE = 1;
constexpr int QUERIES_AT_ONCE = 4, WIDTH_AT_ONCE = 4;

struct F {
  float v[16];
};
struct I {
  int32_t v[16];
};

#define EACH for (int i = 0; i < 16; i++)

INLINE float from_half(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, rest = h & 1023, bits;
  if (exponent == 0) {
    float small = (float)rest * 5.9604644775390625e-8f;  // 2^-24
    memcpy(&bits, &small, 4);
  } else {
    bits = (exponent == 31 ? 255u << 23 : (exponent + 112) << 23) | rest << 13;
  }
  bits |= sign;
  float x;
  memcpy(&x, &bits, 4);
  return x;
}
// To the nearest half, ties to even.
INLINE uint16_t to_half(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  uint16_t sign = (bits >> 16) & 0x8000;
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) return sign | 0x7e00;
  if (bits >= 0x477ff000) return sign | 0x7c00;
  if (bits < 0x38800000) {
    float magnitude;
    memcpy(&magnitude, &bits, 4);
    return sign | (uint16_t)std::nearbyintf(magnitude * 16777216.0f);
  }
  bits += 0xc8000fff + ((bits >> 13) & 1);
  return sign | (uint16_t)(bits >> 13);
}

INLINE F all(float x) { F r; EACH r.v[i] = x; return r; }
INLINE F load(const float* p) { F r; memcpy(r.v, p, 64); return r; }
INLINE void store(float* p, const F& x) { memcpy(p, x.v, 64); }
INLINE F load_half(const uint16_t* p) { F r; EACH r.v[i] = from_half(p[i]); return r; }
INLINE void store_half(uint16_t* p, const F& x) { EACH p[i] = to_half(x.v[i]); }
INLINE F add(const F& a, const F& b) { F r; EACH r.v[i] = a.v[i] + b.v[i]; return r; }
INLINE F sub(const F& a, const F& b) { F r; EACH r.v[i] = a.v[i] - b.v[i]; return r; }
INLINE F mul(const F& a, const F& b) { F r; EACH r.v[i] = a.v[i] * b.v[i]; return r; }
INLINE F div(const F& a, const F& b) { F r; EACH r.v[i] = a.v[i] / b.v[i]; return r; }
INLINE F fma(const F& a, const F& b, const F& c) {
  F r;
  EACH r.v[i] = a.v[i] * b.v[i] + c.v[i];
  return r;
}
INLINE F larger(const F& a, const F& b) {
  F r;
  EACH r.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
  return r;
}
INLINE F smaller(const F& a, const F& b) {
  F r;
  EACH r.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i];
  return r;
}
INLINE F magnitude(const F& a) { F r; EACH r.v[i] = std::fabs(a.v[i]); return r; }
INLINE I rounded(const F& a) {
  I r;
  EACH r.v[i] = (int32_t)std::nearbyintf(a.v[i]);
  return r;
}
INLINE F floats(const I& a) { F r; EACH r.v[i] = (float)a.v[i]; return r; }
INLINE F power_of_two(const I& n) {
  F r;
  EACH {
    uint32_t bits = (uint32_t)(n.v[i] + 127) << 23;
    memcpy(&r.v[i], &bits, 4);
  }
  return r;
}
INLINE F first_lanes(int count, const F& a, const F& b) {
  F r;
  EACH r.v[i] = i < count ? a.v[i] : b.v[i];
  return r;
}
// A bit for each lane where a > b.
INLINE unsigned above(const F& a, const F& b) {
  unsigned bits = 0;
  EACH bits |= (unsigned)(a.v[i] > b.v[i]) << i;
  return bits;
}
INLINE float total(const F& a) {
  float s[16];
  memcpy(s, a.v, 64);
  for (int width = 8; width; width /= 2)
    for (int i = 0; i < width; i++) s[i] += s[i + width];
  return s[0];
}
INLINE float largest(const F& a) {
  float most = a.v[0];
  EACH most = a.v[i] > most ? a.v[i] : most;
  return most;
}
INLINE int total(const I& a) { int sum = 0; EACH sum += a.v[i]; return sum; }
INLINE I plus(const I& a, const I& b) { I r; EACH r.v[i] = a.v[i] + b.v[i]; return r; }
INLINE void store_bytes(int8_t* p, const I& a) { EACH p[i] = (int8_t)a.v[i]; }
// Loads 16 integers of 8 bits.
INLINE I load_bytes(const int8_t* p) { I r; EACH r.v[i] = p[i]; return r; }
INLINE void prefetch(const void* p) { __builtin_prefetch(p); }
INLINE void prefetch_far(const void* p) { __builtin_prefetch(p, 0, 2); }
INLINE void prefetch_once(const void* p) { __builtin_prefetch(p, 0, 0); }

// Returns `start` plus the products of unsigned 8-bit weights, 16 outputs x 32 inputs, with x.
INLINE I times(const uint8_t (*weights)[64], const int8_t* x, int start) {
  I sum;
  EACH sum.v[i] = start;
  for (int k = 0; k < 8; k++)
    for (int i = 0; i < 16; i++)
      for (int j = 0; j < 4; j++) sum.v[i] += (int)weights[k][4 * i + j] * (int)x[4 * k + j];
  return sum;
}

// Products of one group: out[n] is the sum of unsigned 4-bit weights times row n of x; rows are
// `width` apart.
template <int T, int N>
INLINE void products4(const uint8_t* p, const int8_t* x, int width, F* out) {
  uint8_t weights[8][64];
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 64; j++)
      weights[i][j] = p[64 * i + j] & 15, weights[i + 4][j] = p[64 * i + j] >> 4;
  for (int n = 0; n < N; n++) out[n] = floats(times(weights, x + n * width, 0));
}

// The same for 8-bit weights, stored plus 128; counts: the sum of each row of x.
template <int T, int N>
INLINE void products8(const uint8_t* p, const int8_t* x, int width, const int32_t* counts,
                      int groups, F* out) {
  for (int n = 0; n < N; n++)
    out[n] = floats(times((const uint8_t(*)[64])p, x + n * width, -128 * counts[n * groups]));
}
#undef EACH
