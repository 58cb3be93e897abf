// ARM with dot products of 8-bit integers, and with matrix products (i8mm) if available.
#pragma once

#include <arm_neon.h>

#ifdef __ARM_FEATURE_MATMUL_INT8
#define SIMD_NAME "NEON i8mm"
constexpr int ROWS_AT_ONCE = 4, TILES_AT_ONCE = 1;
#else
#define SIMD_NAME "NEON dotprod"
constexpr int ROWS_AT_ONCE = 6, TILES_AT_ONCE = 1;
#endif
constexpr int QUERIES_AT_ONCE = 3, WIDTH_AT_ONCE = 2;

typedef float32x4_t Floats;
typedef int32x4_t Ints;
typedef uint32x4_t Bits;
INLINE Floats choose(Bits mask, Floats a, Floats b) { return vbslq_f32(mask, a, b); }
INLINE float sum_of(Floats s) { return vaddvq_f32(s); }
INLINE int sum_of(Ints s) { return vaddvq_s32(s); }
#include "simd_vectors.h"

INLINE F load_half(const uint16_t* p) {
  F r;
  EACH r.v[i] = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i)));
  return r;
}
INLINE void store_half(uint16_t* p, F x) {
  EACH vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(x.v[i])));
}
INLINE F fma(F a, F b, F c) { F r; EACH r.v[i] = vfmaq_f32(c.v[i], a.v[i], b.v[i]); return r; }
INLINE F larger(F a, F b) { F r; EACH r.v[i] = vmaxnmq_f32(a.v[i], b.v[i]); return r; }
INLINE F smaller(F a, F b) { F r; EACH r.v[i] = vminnmq_f32(a.v[i], b.v[i]); return r; }
INLINE I rounded(F a) { I r; EACH r.v[i] = vcvtnq_s32_f32(a.v[i]); return r; }
INLINE float largest(F a) {
  return vmaxnmvq_f32(vmaxnmq_f32(vmaxnmq_f32(a.v[0], a.v[1]), vmaxnmq_f32(a.v[2], a.v[3])));
}
INLINE void store_bytes(int8_t* p, I a) {
  int16x8_t low = vcombine_s16(vqmovn_s32(a.v[0]), vqmovn_s32(a.v[1]));
  int16x8_t high = vcombine_s16(vqmovn_s32(a.v[2]), vqmovn_s32(a.v[3]));
  vst1q_s8(p, vcombine_s8(vqmovn_s16(low), vqmovn_s16(high)));
}
INLINE I load_bytes(const int8_t* p) {
  int8x16_t bytes = vld1q_s8(p);
  int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
  return {{vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low), vmovl_s16(vget_low_s16(high)),
           vmovl_high_s16(high)}};
}

// A vector of weights contains 4 outputs x 4 inputs, multiplied with the 4 inputs in a lane of a
// row. All sums are exact, so it does not matter which of the functions below computes them.

// A group of 32 inputs for each of N rows.
template <int N>
struct Inputs {
  int8x16_t low[N], high[N];
};
template <int N>
INLINE Inputs<N> inputs(const int8_t* x, int width) {
  Inputs<N> r;
  for (int n = 0; n < N; n++, x += width) r.low[n] = vld1q_s8(x), r.high[n] = vld1q_s8(x + 16);
  return r;
}
INLINE int8x16_t low_half(uint8x16_t bytes) {
  return vreinterpretq_s8_u8(vandq_u8(bytes, vdupq_n_u8(15)));
}
INLINE int8x16_t high_half(uint8x16_t bytes) {
  return vreinterpretq_s8_u8(vshrq_n_u8(bytes, 4));
}

// Adds the products for the inputs 4 LANE to 4 LANE + 3 and for the four inputs 16 further.
template <int LANE, int N>
INLINE void plus_four(const uint8_t* p, const Inputs<N>& x, I* sum) {
  EACH {
    uint8x16_t bytes = vld1q_u8(p + 64 * LANE + 16 * i);
    int8x16_t low = low_half(bytes), high = high_half(bytes);
    for (int n = 0; n < N; n++) {
      sum[n].v[i] = vdotq_laneq_s32(sum[n].v[i], low, x.low[n], LANE);
      sum[n].v[i] = vdotq_laneq_s32(sum[n].v[i], high, x.high[n], LANE);
    }
  }
}

// Adds the products with 8-bit weights, stored plus 128, for the inputs 4 LANE to 4 LANE + 3.
template <int LANE, int N>
INLINE void plus_eight(const uint8_t* p, const int8x16_t* x, I* sum) {
  EACH {
    uint8x16_t bytes = vld1q_u8(p + 64 * LANE + 16 * i);
#ifdef __ARM_FEATURE_MATMUL_INT8
    for (int n = 0; n < N; n++) sum[n].v[i] = vusdotq_laneq_s32(sum[n].v[i], bytes, x[n], LANE);
#else
    int8x16_t weights = vreinterpretq_s8_u8(veorq_u8(bytes, vdupq_n_u8(128)));
    for (int n = 0; n < N; n++) sum[n].v[i] = vdotq_laneq_s32(sum[n].v[i], weights, x[n], LANE);
#endif
  }
}

#ifdef __ARM_FEATURE_MATMUL_INT8
// Four rows are multiplied with matrix products of 2 outputs x 8 inputs and 8 inputs x 2 rows. With
// fewer rows, rearranging the weights costs more than matrix products save.
constexpr int MATRIX_ROWS = 4;

INLINE int8x16_t zipped_low(int8x16_t a, int8x16_t b) {
  return vreinterpretq_s8_s64(vzip1q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
}
INLINE int8x16_t zipped_high(int8x16_t a, int8x16_t b) {
  return vreinterpretq_s8_s64(vzip2q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
}
// The 32 inputs of four rows: v[p][s] has 8 inputs of each row of pair p.
struct Pairs {
  int8x16_t v[2][4];
};
INLINE Pairs pairs(const int8_t* x, int width) {
  const Inputs<MATRIX_ROWS> in = inputs<MATRIX_ROWS>(x, width);
  Pairs r;
  for (int n = 0; n < 2; n++) {
    r.v[n][0] = zipped_low(in.low[2 * n], in.low[2 * n + 1]);
    r.v[n][1] = zipped_high(in.low[2 * n], in.low[2 * n + 1]);
    r.v[n][2] = zipped_low(in.high[2 * n], in.high[2 * n + 1]);
    r.v[n][3] = zipped_high(in.high[2 * n], in.high[2 * n + 1]);
  }
  return r;
}
// Weights of 4 outputs x 8 inputs: v[0] has the first two outputs, v[1] the other two.
struct Zipped {
  uint8x16_t v[2];
};
INLINE Zipped zipped(const uint8_t* p) {
  uint32x4_t a = vreinterpretq_u32_u8(vld1q_u8(p)), b = vreinterpretq_u32_u8(vld1q_u8(p + 64));
  return {{vreinterpretq_u8_u32(vzip1q_u32(a, b)), vreinterpretq_u8_u32(vzip2q_u32(a, b))}};
}
// For each pair of rows and of outputs: two sums for the first output, then two for the second.
struct PairSums {
  int32x4_t v[2][4][2];
};
INLINE void write(const PairSums& sum, F* out) {
  for (int n = 0; n < MATRIX_ROWS; n++)
    EACH {
      int32x4_t a = sum.v[n / 2][i][0], b = sum.v[n / 2][i][1];
      out[n].v[i] = vcvtq_f32_s32(n % 2 ? vuzp2q_s32(a, b) : vuzp1q_s32(a, b));
    }
}

INLINE void matrix_products4(const uint8_t* p, const Pairs& x, F* out) {
  PairSums sum = {};
  for (int step = 0; step < 2; step++, p += 128)
    EACH {
      Zipped w = zipped(p + 16 * i);
      for (int k = 0; k < 2; k++) {
        int8x16_t low = low_half(w.v[k]), high = high_half(w.v[k]);
        for (int n = 0; n < 2; n++) {
          sum.v[n][i][k] = vmmlaq_s32(sum.v[n][i][k], low, x.v[n][step]);
          sum.v[n][i][k] = vmmlaq_s32(sum.v[n][i][k], high, x.v[n][step + 2]);
        }
      }
    }
  write(sum, out);
}
INLINE void matrix_products8(const uint8_t* p, const Pairs& x, const int32_t* counts, int groups,
                             F* out) {
  PairSums sum;
  for (int n = 0; n < 2; n++) {
    int32_t a = -128 * counts[2 * n * groups], b = -128 * counts[(2 * n + 1) * groups];
    EACH sum.v[n][i][0] = sum.v[n][i][1] = int32x4_t{a, b, a, b};
  }
  for (int step = 0; step < 4; step++, p += 128)
    EACH {
      Zipped w = zipped(p + 16 * i);
      for (int n = 0; n < 2; n++)
        for (int k = 0; k < 2; k++)
          sum.v[n][i][k] = vusmmlaq_s32(sum.v[n][i][k], w.v[k], x.v[n][step]);
    }
  write(sum, out);
}
#endif

// Writes to out[n] the sum of unsigned 4-bit weights times row n of x. Rows are `width` apart.
template <int T, int N>
INLINE void products4(const uint8_t* p, const int8_t* x, int width, F* out) {
#ifdef __ARM_FEATURE_MATMUL_INT8
  if constexpr (N == MATRIX_ROWS) return matrix_products4(p, pairs(x, width), out);
#endif
  const Inputs<N> in = inputs<N>(x, width);
  I sum[N] = {};
  plus_four<0, N>(p, in, sum), plus_four<1, N>(p, in, sum);
  plus_four<2, N>(p, in, sum), plus_four<3, N>(p, in, sum);
  for (int n = 0; n < N; n++) out[n] = floats(sum[n]);
}

// Like products4, for 8-bit weights, which are stored plus 128. counts: the sum of each row of x,
// by which the 128 is subtracted again.
template <int T, int N>
INLINE void products8(const uint8_t* p, const int8_t* x, int width, const int32_t* counts,
                      int groups, F* out) {
  I sum[N] = {};
#ifdef __ARM_FEATURE_MATMUL_INT8
  if constexpr (N == MATRIX_ROWS) return matrix_products8(p, pairs(x, width), counts, groups, out);
  for (int n = 0; n < N; n++) EACH sum[n].v[i] = vdupq_n_s32(-128 * counts[n * groups]);
#endif
  const Inputs<N> in = inputs<N>(x, width);
  plus_eight<0, N>(p, in.low, sum), plus_eight<1, N>(p, in.low, sum);
  plus_eight<2, N>(p, in.low, sum), plus_eight<3, N>(p, in.low, sum);
  p += 256;
  plus_eight<0, N>(p, in.high, sum), plus_eight<1, N>(p, in.high, sum);
  plus_eight<2, N>(p, in.high, sum), plus_eight<3, N>(p, in.high, sum);
  for (int n = 0; n < N; n++) out[n] = floats(sum[n]);
}
#undef EACH
