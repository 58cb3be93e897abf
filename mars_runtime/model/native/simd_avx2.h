// AVX2, each sixteen in two halves; with AVX-VNNI where there is one. See simd.h.
#pragma once

#include <immintrin.h>

#ifdef __AVXVNNI__
#define SIMD_NAME "AVX2 and VNNI"
#else
#define SIMD_NAME "AVX2"
#endif
constexpr int ROWS_AT_ONCE = 4;

struct F {
  __m256 a, b;
};
struct I {
  __m256i a, b;
};

static inline F all(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
static inline F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
static inline void store(float* p, F x) {
  _mm256_storeu_ps(p, x.a), _mm256_storeu_ps(p + 8, x.b);
}
static inline F load_half(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)),
          _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(p + 8)))};
}
static inline void store_half(uint16_t* p, F x) {
  _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128((__m128i*)(p + 8), _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
}
static inline F add(F x, F y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
static inline F sub(F x, F y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
static inline F mul(F x, F y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
static inline F div(F x, F y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
static inline F fma(F x, F y, F z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
static inline F larger(F x, F y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
static inline F smaller(F x, F y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
static inline F magnitude(F x) {
  __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
static inline I rounded(F x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
static inline F floats(I x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
static inline __m256 power_of_two(__m256i n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
static inline F power_of_two(I n) { return {power_of_two(n.a), power_of_two(n.b)}; }
// The first `count` lanes of x, the others of y.
static inline F first_lanes(int count, F x, F y) {
  __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), number = _mm256_set1_epi32(count);
  __m256i low = _mm256_cmpgt_epi32(number, lanes);
  __m256i high = _mm256_cmpgt_epi32(_mm256_sub_epi32(number, _mm256_set1_epi32(8)), lanes);
  return {_mm256_blendv_ps(y.a, x.a, _mm256_castsi256_ps(low)),
          _mm256_blendv_ps(y.b, x.b, _mm256_castsi256_ps(high))};
}
static inline float total(F x) {
  __m256 eight = _mm256_add_ps(x.a, x.b);
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}
static inline float largest(F x) {
  __m256 eight = _mm256_max_ps(x.a, x.b);
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}
static inline I plus(I x, I y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
static inline int total(I x) {
  __m256i eight = _mm256_add_epi32(x.a, x.b);
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
  return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 1)));
}
static inline void store_bytes(int8_t* p, I x) {
  __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xd8);
  __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128((__m128i*)p, bytes);
}
// 16 whole numbers of 8 bits.
static inline I load_bytes(const int8_t* p) {
  return {_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)p)),
          _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)(p + 8)))};
}
static inline void prefetch(const void* p) { _mm_prefetch((const char*)p, _MM_HINT_T0); }

// The weights of 16 outputs and one group of 32 inputs: unsigned bytes, eight times 16 outputs x 4
// inputs, the first 8 outputs of each in the even places.
struct Weights {
  __m256i w[16];
};
static inline Weights weights4(const uint8_t* p) {
  Weights r;
  const __m256i low = _mm256_set1_epi8(15);
  for (int i = 0; i < 8; i++) {
    __m256i both = _mm256_loadu_si256((const __m256i*)(p + 32 * i));
    r.w[i] = _mm256_and_si256(both, low);
    r.w[i + 8] = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
  }
  return r;
}
static inline Weights weights8(const uint8_t* p) {
  Weights r;
  for (int i = 0; i < 16; i++) r.w[i] = _mm256_loadu_si256((const __m256i*)(p + 32 * i));
  return r;
}
static inline __m256i four_of(const int8_t* x) {
  int four;
  memcpy(&four, x, 4);
  return _mm256_set1_epi32(four);
}

#ifdef __AVXVNNI__
static inline I times(const Weights& w, const int8_t* x, int start) {
  I sum{_mm256_set1_epi32(start), _mm256_set1_epi32(start)};
  for (int i = 0; i < 8; i++) {
    __m256i four = four_of(x + 4 * i);
    sum.a = _mm256_dpbusd_avx_epi32(sum.a, w.w[2 * i], four);
    sum.b = _mm256_dpbusd_avx_epi32(sum.b, w.w[2 * i + 1], four);
  }
  return sum;
}
static inline F dot4(const Weights& w, const int8_t* x) { return floats(times(w, x, 0)); }
static inline F dot8(const Weights& w, const int8_t* x, int count) {
  return floats(times(w, x, -128 * count));
}
#else
// Pairs are added in 16 bits: eight times 2 x 15 x 127 is 30,480, which still fits.
static inline F dot4(const Weights& w, const int8_t* x) {
  __m256i a = _mm256_setzero_si256(), b = a, ones = _mm256_set1_epi16(1);
  for (int i = 0; i < 8; i++) {
    __m256i four = four_of(x + 4 * i);
    a = _mm256_add_epi16(a, _mm256_maddubs_epi16(w.w[2 * i], four));
    b = _mm256_add_epi16(b, _mm256_maddubs_epi16(w.w[2 * i + 1], four));
  }
  return floats(I{_mm256_madd_epi16(a, ones), _mm256_madd_epi16(b, ones)});
}
// Weights as they are, their signs given to x: 2 x 128 x 127 is 32,512, which still fits.
static inline __m256i pairs8(__m256i shifted, __m256i four) {
  __m256i weight = _mm256_xor_si256(shifted, _mm256_set1_epi8(-128));
  return _mm256_madd_epi16(
      _mm256_maddubs_epi16(_mm256_abs_epi8(weight), _mm256_sign_epi8(four, weight)),
      _mm256_set1_epi16(1));
}
static inline F dot8(const Weights& w, const int8_t* x, int) {
  I sum{_mm256_setzero_si256(), _mm256_setzero_si256()};
  for (int i = 0; i < 8; i++) {
    __m256i four = four_of(x + 4 * i);
    sum.a = _mm256_add_epi32(sum.a, pairs8(w.w[2 * i], four));
    sum.b = _mm256_add_epi32(sum.b, pairs8(w.w[2 * i + 1], four));
  }
  return floats(sum);
}
#endif
