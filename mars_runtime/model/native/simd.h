// Vectors of sixteen numbers, with the same functions on every processor.
//
// F holds 16 floats, I holds 16 integers. The files below implement the same functions with
// AVX-512, AVX2, NEON and without any of them; the compiler's target selects one. A product of a row is the
// same sequence of these functions whatever other rows there are, and the compiler must not fuse a
// multiplication and an addition (-ffp-contract=off) that is not written as `fma` here. That makes
// results bitwise independent of the other rows.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

constexpr int LANES = 16;
constexpr int GROUP = 32;  // weights that share a scale, along the inputs
constexpr int BYTES_4 = 256 + 64, BYTES_8 = 512 + 32;  // of a group of 16 outputs; see product.h

// Without always_inline GCC stops inlining some of them and passes vectors through memory.
#define INLINE static inline __attribute__((always_inline))

#if defined(__AVX512VNNI__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#include "simd_avx512.h"
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "simd_avx2.h"
#elif defined(__ARM_FEATURE_DOTPROD)
#include "simd_neon.h"
#else
#include "simd_portable.h"
#endif

// e^x to 2 units in the last place; 0 below -87, and at most e^88.
INLINE F exponential(F x) {
  F bounded = smaller(larger(x, all(-87.0f)), all(88.0f));
  I whole = rounded(mul(bounded, all(1.44269504088896341f)));
  F n = floats(whole);
  F r = fma(n, all(-0.693359375f), bounded);  // ln 2 in two parts
  r = fma(n, all(2.12194440e-4f), r);
  F p = fma(r, all(1.9875691500e-4f), all(1.3981999507e-3f));
  p = fma(p, r, all(8.3334519073e-3f));
  p = fma(p, r, all(4.1665795894e-2f));
  p = fma(p, r, all(1.6666665459e-1f));
  p = fma(p, r, all(5.0000001201e-1f));
  p = add(fma(p, mul(r, r), r), all(1.0f));
  return mul(p, power_of_two(whole));
}

// x / (1 + e^-x)
INLINE F silu(F x) { return div(x, add(all(1.0f), exponential(sub(all(0.0f), x)))); }
