// AVX2, with AVX-VNNI if available.
#pragma once

#include <immintrin.h>

#ifdef __AVXVNNI__
#define SIMD_NAME "AVX2 and VNNI"
#else
#define SIMD_NAME "AVX2"
#endif
constexpr int ROWS_AT_ONCE = 6, TILES_AT_ONCE = 1;
constexpr int QUERIES_AT_ONCE = 3, WIDTH_AT_ONCE = 2;

struct F {
  __m256 a, b;
};
struct I {
  __m256i a, b;
};

INLINE F all(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
INLINE F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
INLINE void store(float* p, F x) {
  _mm256_storeu_ps(p, x.a), _mm256_storeu_ps(p + 8, x.b);
}
INLINE F load_half(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)),
          _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(p + 8)))};
}
INLINE void store_half(uint16_t* p, F x) {
  _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128((__m128i*)(p + 8), _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
}
INLINE F add(F x, F y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
INLINE F sub(F x, F y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
INLINE F mul(F x, F y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
INLINE F div(F x, F y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
INLINE F fma(F x, F y, F z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
INLINE F larger(F x, F y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
INLINE F smaller(F x, F y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
INLINE F magnitude(F x) {
  __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
INLINE I rounded(F x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
INLINE F floats(I x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
INLINE __m256 power_of_two(__m256i n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
INLINE F power_of_two(I n) { return {power_of_two(n.a), power_of_two(n.b)}; }
// The first `count` lanes of x, the other lanes of y.
INLINE F first_lanes(int count, F x, F y) {
  __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), number = _mm256_set1_epi32(count);
  __m256i low = _mm256_cmpgt_epi32(number, lanes);
  __m256i high = _mm256_cmpgt_epi32(_mm256_sub_epi32(number, _mm256_set1_epi32(8)), lanes);
  return {_mm256_blendv_ps(y.a, x.a, _mm256_castsi256_ps(low)),
          _mm256_blendv_ps(y.b, x.b, _mm256_castsi256_ps(high))};
}
// A bit for each lane where x > y.
INLINE unsigned above(F x, F y) {
  unsigned low = _mm256_movemask_ps(_mm256_cmp_ps(x.a, y.a, _CMP_GT_OQ));
  unsigned high = _mm256_movemask_ps(_mm256_cmp_ps(x.b, y.b, _CMP_GT_OQ));
  return low | high << 8;
}
INLINE float total(F x) {
  __m256 eight = _mm256_add_ps(x.a, x.b);
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}
INLINE float largest(F x) {
  __m256 eight = _mm256_max_ps(x.a, x.b);
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}
INLINE I plus(I x, I y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
INLINE int total(I x) {
  __m256i eight = _mm256_add_epi32(x.a, x.b);
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
  return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 1)));
}
INLINE void store_bytes(int8_t* p, I x) {
  __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xd8);
  __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128((__m128i*)p, bytes);
}
INLINE I load_bytes(const int8_t* p) {
  return {_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)p)),
          _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)(p + 8)))};
}
INLINE void prefetch(const void* p) { _mm_prefetch((const char*)p, _MM_HINT_T0); }
INLINE void prefetch_far(const void* p) { _mm_prefetch((const char*)p, _MM_HINT_T1); }
INLINE void prefetch_once(const void* p) { _mm_prefetch((const char*)p, _MM_HINT_NTA); }

INLINE __m256i four_of(const int8_t* x) {
  int four;
  memcpy(&four, x, 4);
  return _mm256_set1_epi32(four);
}

// weights: unsigned, 8 outputs x 4 inputs. four: the 4 inputs of a row, repeated.
#ifdef __AVXVNNI__
INLINE __m256i plus_products(__m256i sum, __m256i weights, __m256i four) {
  return _mm256_dpbusd_avx_epi32(sum, weights, four);
}
INLINE __m256i whole(__m256i sum) { return sum; }
#else
// Products are added in pairs, in 16 bits. The largest sum is eight times 2 x 15 x 127 = 30,480,
// which fits.
INLINE __m256i plus_products(__m256i sum, __m256i weights, __m256i four) {
  sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(weights, four));
  asm("" : "+x"(sum));  // keeps GCC from reordering the sums, which would need more registers
  return sum;
}
INLINE __m256i whole(__m256i sum) { return _mm256_madd_epi16(sum, _mm256_set1_epi16(1)); }
#endif

// Weights of 16 outputs, for 4 inputs and for 4 others.
struct Halves {
  __m256i a, b, high_a, high_b;
};
INLINE Halves halves(const uint8_t* p) {
  const __m256i low = _mm256_set1_epi8(15);
  __m256i a = _mm256_loadu_si256((const __m256i*)p);
  __m256i b = _mm256_loadu_si256((const __m256i*)(p + 32));
  return {_mm256_and_si256(a, low), _mm256_and_si256(b, low),
          _mm256_and_si256(_mm256_srli_epi16(a, 4), low),
          _mm256_and_si256(_mm256_srli_epi16(b, 4), low)};
}

// Writes to out[n] the sum of unsigned 4-bit weights times row n of x. Rows are `width` apart.
template <int T, int N>
INLINE void products4(const uint8_t* p, const int8_t* x, int width, F* out) {
  I sum[N];
  for (int n = 0; n < N; n++) sum[n] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
  for (int i = 0; i < 4; i++, p += 64, x += 4) {
    Halves w = halves(p);
    for (int n = 0; n < N; n++) {
      __m256i four = four_of(x + n * width), later = four_of(x + n * width + 16);
      sum[n].a = plus_products(plus_products(sum[n].a, w.a, four), w.high_a, later);
      sum[n].b = plus_products(plus_products(sum[n].b, w.b, four), w.high_b, later);
    }
  }
  for (int n = 0; n < N; n++) out[n] = floats(I{whole(sum[n].a), whole(sum[n].b)});
}

// Like products4, for 8-bit weights, which are stored plus 128. counts: the sum of each row of x,
// by which the 128 is subtracted again.
#ifdef __AVXVNNI__
template <int T, int N>
INLINE void products8(const uint8_t* p, const int8_t* x, int width, const int32_t* counts,
                      int groups, F* out) {
  I sum[N];
  for (int n = 0; n < N; n++)
    sum[n].a = sum[n].b = _mm256_set1_epi32(-128 * counts[n * groups]);
  for (int i = 0; i < 8; i++, p += 64, x += 4) {
    __m256i a = _mm256_loadu_si256((const __m256i*)p);
    __m256i b = _mm256_loadu_si256((const __m256i*)(p + 32));
    for (int n = 0; n < N; n++) {
      __m256i four = four_of(x + n * width);
      sum[n].a = plus_products(sum[n].a, a, four), sum[n].b = plus_products(sum[n].b, b, four);
    }
  }
  for (int n = 0; n < N; n++) out[n] = floats(sum[n]);
}
#else
// Weights are split into two halves of 4 bits, so that pairs of products can be added in 16 bits.
// The sums of two rows fill the registers.
template <int T, int N>
INLINE void products8(const uint8_t* p, const int8_t* x, int width, const int32_t* counts,
                      int groups, F* out) {
  if constexpr (N > 2) {
    products8<T, 2>(p, x, width, counts, groups, out);
    products8<T, N - 2>(p, x + 2 * width, width, counts + 2 * groups, groups, out + 2);
    return;
  }
  const __m256i sixteen = _mm256_set1_epi16(16);
  I low[N], high[N];
  for (int n = 0; n < N; n++) low[n] = high[n] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
  for (int i = 0; i < 8; i++, p += 64, x += 4) {
    Halves w = halves(p);
    for (int n = 0; n < N; n++) {
      __m256i four = four_of(x + n * width);
      low[n].a = plus_products(low[n].a, w.a, four);
      low[n].b = plus_products(low[n].b, w.b, four);
      high[n].a = plus_products(high[n].a, w.high_a, four);
      high[n].b = plus_products(high[n].b, w.high_b, four);
    }
  }
  for (int n = 0; n < N; n++) {
    __m256i start = _mm256_set1_epi32(-128 * counts[n * groups]);
    I more{_mm256_madd_epi16(high[n].a, sixteen), _mm256_madd_epi16(high[n].b, sixteen)};
    out[n] = floats(plus(plus(I{whole(low[n].a), whole(low[n].b)}, more), I{start, start}));
  }
}
#endif
