// Quantises dense rows as `GroupedMatrix.quantize` does, to the last bit, in the layout of product.h.
// Floats are compared as integers: compilers vectorise a maximum of integers but not of floats.
#pragma once

#include <algorithm>

#include "product.h"

enum Kind { FP32 = 0, BF16 = 1, FP16 = 2 };
constexpr uint32_t NOT_FINITE = 0x7f800000;  // bit pattern of infinity; those of NaN are larger
constexpr float LEAST_SCALE = 1e-30f;
constexpr float MAGIC = 12582912.0f;  // 1.5 * 2^23; adding and subtracting it rounds to an integer

static inline void widen(const void* from, int64_t at, Kind kind, float* to) {
  if (kind == FP32) {
    memcpy(to, (const float*)from + at, GROUP * sizeof(float));
  } else if (kind == BF16) {
    const uint16_t* p = (const uint16_t*)from + at;
    uint32_t bits[GROUP];
    for (int k = 0; k < GROUP; k++) bits[k] = (uint32_t)p[k] << 16;
    memcpy(to, bits, sizeof bits);
  } else {
    const uint16_t* p = (const uint16_t*)from + at;
    store(to, load_half(p)), store(to + LANES, load_half(p + LANES));
  }
}

static inline float as_float(uint32_t bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}

// Maps the bits of a float to an integer that compares as the float does. Its own inverse.
static inline int32_t ordered(int32_t bits) { return bits ^ ((bits >> 31) & 0x7fffffff); }

// Returns the bits of the largest absolute value of a group.
static inline uint32_t most_of(const float* x) {
  uint32_t bits[GROUP], most = 0;
  memcpy(bits, x, sizeof bits);
  for (int k = 0; k < GROUP; k++) most = std::max(most, bits[k] & 0x7fffffff);
  return most;
}

// Writes a group of one output in 8 bits, plus 128. Returns the scale.
static inline float put_eight(const float* x, uint32_t most, uint8_t* to) {
  float scale = std::max(as_float(most) / 127.0f, LEAST_SCALE);
  uint8_t whole[GROUP];
  for (int k = 0; k < GROUP; k++) {
    float rounded = (x[k] / scale + MAGIC) - MAGIC;
    whole[k] = (uint8_t)((int32_t)rounded + 128);
  }
  for (int i = 0; i < GROUP / 4; i++) memcpy(to + 64 * i, whole + 4 * i, 4);
  return scale;
}

// Writes a group in 4 bits, the last 16 numbers into the high halves. Returns the scale.
static inline float put_four(const float* x, uint8_t* to, float* minimum) {
  int32_t bits[GROUP], low = INT32_MAX, high = INT32_MIN;
  memcpy(bits, x, sizeof bits);
  for (int k = 0; k < GROUP; k++) {
    int32_t place = ordered(bits[k]);
    low = std::min(low, place), high = std::max(high, place);
  }
  *minimum = as_float((uint32_t)ordered(low));
  float scale = std::max((as_float((uint32_t)ordered(high)) - *minimum) / 15.0f, LEAST_SCALE);
  uint8_t whole[GROUP], both[GROUP / 2];
  for (int k = 0; k < GROUP; k++) {
    float rounded = ((x[k] - *minimum) / scale + MAGIC) - MAGIC;
    whole[k] = (uint8_t)std::min((int32_t)rounded, 15);
  }
  for (int k = 0; k < GROUP / 2; k++) both[k] = whole[k] | (uint8_t)(whole[k + GROUP / 2] << 4);
  for (int i = 0; i < GROUP / 8; i++) memcpy(to + 64 * i, both + 4 * i, 4);
  return scale;
}

// Returns false if a number is not finite.
static bool put_tiles(const void* const* rows, Kind kind, const Matrix& shape, int first, int end,
                      uint8_t* to) {
  uint32_t worst = 0;
  float x[GROUP];
  for (int tile = first; tile < end; tile++) {
    uint8_t* p = to + shape.place(tile);
    int outs = (int)std::min<int64_t>(LANES, shape.outs - (int64_t)tile * LANES);
    for (int g = 0; g < shape.groups(); g++, p += shape.group_step()) {
      float scales[LANES] = {}, minimums[LANES] = {};
      if (outs < LANES) memset(p, shape.bits == 4 ? 0 : 128, shape.bits == 4 ? 256 : 512);
      for (int o = 0; o < outs; o++) {
        widen(rows[(int64_t)tile * LANES + o], (int64_t)g * GROUP, kind, x);
        uint32_t most = most_of(x);
        worst = std::max(worst, most);
        scales[o] = shape.bits == 4 ? put_four(x, p + 4 * o, &minimums[o])
                                    : put_eight(x, most, p + 4 * o);
      }
      store_half((uint16_t*)(p + (shape.bits == 4 ? 256 : 512)), load(scales));
      if (shape.bits == 4) store_half((uint16_t*)(p + 288), load(minimums));
    }
  }
  return worst < NOT_FINITE;
}

// rows: the address of each output's dense numbers. Returns false if a number is not finite.
static bool run_quantise(const void* const* rows, Kind kind, const Matrix& shape, int num_threads,
                         uint8_t* to) {
  std::atomic<bool> is_finite{true};
  // The last pair of tiles is written completely; outputs that the matrix does not have are zero.
  int64_t tiles = (shape.tiles() + PAIR - 1) / PAIR * PAIR;
  auto part = [&](int64_t i) {
    int first = (int)(tiles * i / num_threads), end = (int)(tiles * (i + 1) / num_threads);
    if (!put_tiles(rows, kind, shape, first, end, to)) is_finite = false;
  };
  std::vector<std::thread> others;
  for (int i = 1; i < num_threads; i++) others.emplace_back(part, i);
  part(0);
  for (std::thread& other : others) other.join();
  return is_finite;
}
