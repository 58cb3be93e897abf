// Implementation for AVX-512 with VNNI. See simd.h.
#pragma once

#include <immintrin.h>

#define SIMD_NAME "AVX-512 VNNI"
constexpr int ROWS_AT_ONCE = 8, TILES_AT_ONCE = 2;  // the sums use 16 of the 32 registers
constexpr int QUERIES_AT_ONCE = 4, WIDTH_AT_ONCE = 4;

typedef __m512 F;
typedef __m512i I;

INLINE F all(float x) { return _mm512_set1_ps(x); }
INLINE F load(const float* p) { return _mm512_loadu_ps(p); }
INLINE void store(float* p, F x) { _mm512_storeu_ps(p, x); }
INLINE F load_half(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p));
}
INLINE void store_half(uint16_t* p, F x) {
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
INLINE F add(F a, F b) { return _mm512_add_ps(a, b); }
INLINE F sub(F a, F b) { return _mm512_sub_ps(a, b); }
INLINE F mul(F a, F b) { return _mm512_mul_ps(a, b); }
INLINE F div(F a, F b) { return _mm512_div_ps(a, b); }
INLINE F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
INLINE F larger(F a, F b) { return _mm512_max_ps(a, b); }
INLINE F smaller(F a, F b) { return _mm512_min_ps(a, b); }
INLINE F magnitude(F a) { return _mm512_abs_ps(a); }
INLINE I rounded(F a) { return _mm512_cvtps_epi32(a); }
INLINE F floats(I a) { return _mm512_cvtepi32_ps(a); }
INLINE F power_of_two(I n) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23));
}
// The first `count` lanes of a, the other lanes of b.
INLINE F first_lanes(int count, F a, F b) {
  __mmask16 mask = count >= 16 ? 0xffff : (__mmask16)((1u << (count < 0 ? 0 : count)) - 1);
  return _mm512_mask_blend_ps(mask, b, a);
}
// A bit for each lane where a > b.
INLINE unsigned above(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
INLINE float total(F a) { return _mm512_reduce_add_ps(a); }
INLINE float largest(F a) { return _mm512_reduce_max_ps(a); }
INLINE int total(I a) { return _mm512_reduce_add_epi32(a); }
INLINE I plus(I a, I b) { return _mm512_add_epi32(a, b); }
INLINE void store_bytes(int8_t* p, I a) {
  _mm_storeu_si128((__m128i*)p, _mm512_cvtsepi32_epi8(a));
}
INLINE I load_bytes(const int8_t* p) {
  return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p));
}
INLINE void prefetch(const void* p) { _mm_prefetch((const char*)p, _MM_HINT_T0); }
INLINE void prefetch_far(const void* p) { _mm_prefetch((const char*)p, _MM_HINT_T1); }
INLINE void prefetch_once(const void* p) { _mm_prefetch((const char*)p, _MM_HINT_NTA); }

// Weights of 16 outputs, for 4 inputs and for 4 others.
struct Halves {
  __m512i low, high;
};
INLINE Halves halves(const uint8_t* p) {
  const __m512i mask = _mm512_set1_epi8(15);
  __m512i both = _mm512_loadu_si512(p);
  return {_mm512_and_si512(both, mask), _mm512_and_si512(_mm512_srli_epi16(both, 4), mask)};
}
INLINE __m512i four_of(const int8_t* x) {
  int four;
  memcpy(&four, x, 4);
  return _mm512_set1_epi32(four);
}

// out[t * N + n] is the sum of unsigned 4-bit weights of tile t times row n of x. Rows are `width`
// apart.
template <int T, int N>
INLINE void products4(const uint8_t* p, const int8_t* x, int width, F* out) {
  __m512i sum[T][N];
  for (int t = 0; t < T; t++)
    for (int n = 0; n < N; n++) sum[t][n] = _mm512_setzero_si512();
  for (int i = 0; i < 4; i++, p += 64, x += 4) {
    Halves w[T];
    for (int t = 0; t < T; t++) w[t] = halves(p + t * BYTES_4);
    for (int n = 0; n < N; n++) {
      __m512i four = four_of(x + n * width), later = four_of(x + n * width + 16);
      for (int t = 0; t < T; t++) sum[t][n] = _mm512_dpbusd_epi32(sum[t][n], w[t].low, four);
      for (int t = 0; t < T; t++) sum[t][n] = _mm512_dpbusd_epi32(sum[t][n], w[t].high, later);
    }
  }
  for (int t = 0; t < T; t++)
    for (int n = 0; n < N; n++) out[t * N + n] = floats(sum[t][n]);
}

// Like products4, for 8-bit weights, which are stored plus 128. counts: the sum of each row of x,
// by which the 128 is subtracted again.
template <int T, int N>
INLINE void products8(const uint8_t* p, const int8_t* x, int width, const int32_t* counts,
                      int groups, F* out) {
  __m512i sum[T][N];
  for (int t = 0; t < T; t++)
    for (int n = 0; n < N; n++) sum[t][n] = _mm512_set1_epi32(-128 * counts[n * groups]);
  for (int i = 0; i < 8; i++, p += 64, x += 4) {
    __m512i w[T];
    for (int t = 0; t < T; t++) w[t] = _mm512_loadu_si512(p + t * BYTES_8);
    for (int n = 0; n < N; n++) {
      __m512i four = four_of(x + n * width);
      for (int t = 0; t < T; t++) sum[t][n] = _mm512_dpbusd_epi32(sum[t][n], w[t], four);
    }
  }
  for (int t = 0; t < T; t++)
    for (int n = 0; n < N; n++) out[t * N + n] = floats(sum[t][n]);
}
