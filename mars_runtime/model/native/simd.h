// Vectors of sixteen numbers, with the same functions on every processor.
//
// F contains 16 floats, I contains 16 integers. The compiler's target selects an implementation. The
// product of a row is always the same sequence of functions, and only `fma` fuses operations
// (-ffp-contract=off), so its result does not depend, to the last bit, on the other rows.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

constexpr int LANES = 16;
constexpr int GROUP = 32;  // number of consecutive weights of an output that share a scale
// Sizes of a group of a tile with weights of 4 and of 8 bits; see product.h.
constexpr int BYTES_4 = 256 + 64, BYTES_8 = 512 + 32;

// Without always_inline GCC does not inline some functions and passes vectors through memory.
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

// e^x, exact to 2 units in the last place. x is limited to the range from -87 to 88.
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
