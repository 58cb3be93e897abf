// Matrices of integers with scales for groups of 32, rows in 8 bits, and the products of both.
//
// A matrix is stored in tiles of 16 outputs. Two tiles form a pair and are interleaved: each group
// of 32 inputs is stored for the first tile, then for the second. A group of a tile consists of the
// integers of its 16 outputs, then their 16 scales (and 16 minimums) in fp16. A product therefore
// reads the memory once, sequentially. The integers are stored as follows:
//   4 bits: 256 bytes. Byte 64 i + 4 o + j contains, for output o, input 4 i + j in its low 4 bits
//           and input 16 + 4 i + j in its high 4 bits. weight = scale * integer + minimum
//   8 bits: 512 bytes. Byte 64 i + 4 o + j contains input 4 i + j of output o, plus 128.
//           weight = scale * (byte - 128)
// All arithmetic within a group uses integers and is exact. The groups are added in fp32, in the
// same order and by the same operations for every row, so a row's result does not depend on others.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>
#include <utility>
#include <vector>

#include "pool.h"
#include "simd.h"

// Allocator of memory that is aligned to cache lines. The sixteen numbers of a tile then fill one
// line, and threads that write neighbouring tiles do not contend for a line.
template <class T>
struct Aligned {
  using value_type = T;
  static constexpr std::align_val_t LINE{64};

  Aligned() = default;
  template <class U>
  Aligned(const Aligned<U>&) {}
  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), LINE)); }
  void deallocate(T* p, size_t) { ::operator delete(p, LINE); }
  template <class U>
  bool operator==(const Aligned<U>&) const { return true; }
  template <class U>
  bool operator!=(const Aligned<U>&) const { return false; }
};
template <class T>
using Buffer = std::vector<T, Aligned<T>>;

constexpr int PAIR = 2;  // number of tiles that are interleaved

struct Matrix {
  const uint8_t* data;
  int64_t bits, outs, ins;  // ins is a multiple of 32

  int groups() const { return (int)(ins / GROUP); }
  int tiles() const { return (int)((outs + LANES - 1) / LANES); }
  int group_bytes() const { return bits == 4 ? BYTES_4 : BYTES_8; }
  int group_step() const { return PAIR * group_bytes(); }
  // Offset of a tile's first group. The other groups follow at distances of group_step().
  int64_t place(int tile) const {
    return (int64_t)(tile / PAIR) * groups() * group_step() + tile % PAIR * group_bytes();
  }
  const uint8_t* tile(int i) const { return data + place(i); }

  // Writes the weights of one output in fp32. Used for embeddings.
  void row(int64_t out, float* to) const {
    const uint8_t* p = tile((int)(out / LANES));
    int lane = (int)(out % LANES);
    for (int g = 0; g < groups(); g++, p += group_step(), to += GROUP) {
      float scale[LANES], minimum[LANES] = {};
      store(scale, load_half((const uint16_t*)(p + (bits == 4 ? 256 : 512))));
      if (bits == 4) store(minimum, load_half((const uint16_t*)(p + 288)));
      for (int k = 0; k < GROUP; k++) {
        int at = 64 * (k / 4) + 4 * lane + k % 4, number;
        if (bits == 8) {
          number = p[at] - 128;
        } else {
          number = k < 16 ? p[at] & 15 : p[at - 256] >> 4;
        }
        to[k] = scale[lane] * (float)number + minimum[lane];
      }
    }
  }
};

// A view of `Rows` that begins at one of the rows.
struct RowsFrom {
  const int8_t* values;
  const float *scales, *sums;
  const int32_t* counts;
  int width, groups;
};

// Rows in 8 bits, with one scale per group of 32 numbers.
struct Rows {
  Buffer<int8_t> values;
  Buffer<float> scales, sums;  // sums: for each group, the sum of its dequantised numbers
  Buffer<int32_t> counts;      // for each group, the sum of its integers
  int width = 0, groups = 0;

  void shape(int rows, int width) {
    this->width = width, groups = width / GROUP;
    size_t all = (size_t)rows * groups;
    if (scales.size() < all) {
      values.resize(all * GROUP), scales.resize(all), sums.resize(all), counts.resize(all);
    }
  }

  RowsFrom from(int row) const {
    size_t at = (size_t)row * groups;
    return {&values[(size_t)row * width], &scales[at], &sums[at], &counts[at], width, groups};
  }

  // Quantises 32 numbers and stores them as group g of a row.
  void put(int row, int g, F low, F high) {
    float most = largest(larger(magnitude(low), magnitude(high)));
    F factor = all(most > 0 ? 127.0f / most : 0.0f);
    I a = rounded(mul(low, factor)), b = rounded(mul(high, factor));
    int8_t* to = &values[(size_t)row * width + g * GROUP];
    store_bytes(to, a), store_bytes(to + LANES, b);
    size_t at = (size_t)row * groups + g;
    float scale = most / 127.0f;
    counts[at] = total(plus(a, b));
    scales[at] = scale;
    sums[at] = scale * (float)counts[at];
  }
  void put(int row, const float* from) {
    for (int g = 0; g < groups; g++) put(row, g, load(from + g * GROUP), load(from + g * GROUP + 16));
  }
};

// Prefetch distances in bytes, large enough to hide memory latency. Weights that are used for
// several groups of rows are prefetched into the second-level cache, then into the first. Weights
// that are used once bypass the second level, which leaves it to other data, unless such a prefetch
// is slow on this processor (`choose_prefetch`).
constexpr int FAR = 8192, NEAR = 1024;
constexpr double MAX_BYPASS_SLOWDOWN = 1.1;  // time with bypass / time without
static std::atomic<bool> bypasses_l2{true};

// Prefetches `bytes` bytes at the prefetch distances behind p. bypass_l2: bypass the second level.
INLINE void fetch_ahead(const uint8_t* p, int bytes, bool bypass_l2) {
  if (bypass_l2) {
    for (int line = 0; line < bytes; line += 64) prefetch_once(p + FAR + line);
  } else {
    for (int line = 0; line < bytes; line += 64)
      prefetch_far(p + FAR + line), prefetch(p + NEAR + line);
  }
}

// Multiplies T tiles of a pair with N rows: out[t * stride + i] is the result for tile t and row
// first + i. The loaded rows are used for all T tiles. bypass_l2: whether prefetches bypass the
// second-level cache.
template <int BITS, int T, int N>
static void tile_rows(const uint8_t* p, const Rows& x, int first, F* out, int stride,
                      bool bypass_l2) {
  constexpr int NUMBERS = BITS == 4 ? 256 : 512, BYTES = BITS == 4 ? BYTES_4 : BYTES_8;
  const auto [values, scales, sums, counts, width, groups] = x.from(first);
  F acc[T][N];
  for (int t = 0; t < T; t++)
    for (int i = 0; i < N; i++) acc[t][i] = all(0.0f);
  for (int g = 0; g < groups; g++, p += PAIR * BYTES) {
    fetch_ahead(p, T * BYTES, bypass_l2);
    F whole[T * N];
    if (BITS == 4) {
      products4<T, N>(p, values + g * GROUP, width, whole);
    } else {
      products8<T, N>(p, values + g * GROUP, width, counts + g, groups, whole);
    }
    F scale[T], minimum[T];
    for (int t = 0; t < T; t++) {
      const uint16_t* halves = (const uint16_t*)(p + t * BYTES + NUMBERS);
      scale[t] = load_half(halves), minimum[t] = BITS == 4 ? load_half(halves + LANES) : scale[t];
    }
    for (int i = 0; i < N; i++) {
      F of_row = all(scales[i * groups + g]), sum = all(BITS == 4 ? sums[i * groups + g] : 0.0f);
      for (int t = 0; t < T; t++) {
        acc[t][i] = fma(mul(whole[t * N + i], of_row), scale[t], acc[t][i]);
        if (BITS == 4) acc[t][i] = fma(minimum[t], sum, acc[t][i]);
      }
    }
  }
  for (int t = 0; t < T; t++)
    for (int i = 0; i < N; i++) out[t * stride + i] = acc[t][i];
}

using TileRows = void (*)(const uint8_t*, const Rows&, int, F*, int, bool);

// Returns the instance of tile_rows for `count` rows and for one tile or TILES_AT_ONCE.
template <int BITS, int... N>
static inline TileRows rows_function(int tiles, int count, std::integer_sequence<int, N...>) {
  static const TileRows one[] = {tile_rows<BITS, 1, N + 1>...};
  static const TileRows more[] = {tile_rows<BITS, TILES_AT_ONCE, N + 1>...};
  return (tiles == 1 ? one : more)[count - 1];
}

// Returns how many of `left` rows to process next, so that all pieces have similar sizes, at most
// `most`.
static inline int share(int left, int most) {
  int pieces = (left + most - 1) / most;
  return (left + pieces - 1) / pieces;
}

// Multiplies `num_tiles` tiles with the rows `first` to `end`: out[s * stride + i] is the result
// for tile t + s and row first + i. If there are several tiles, t must be the first of a pair.
static inline void tile_product(const Matrix& w, int t, int num_tiles, const Rows& x, int first,
                                int end, F* out, int stride) {
  constexpr std::make_integer_sequence<int, ROWS_AT_ONCE> sizes;
  const bool bypass_l2 = end - first <= ROWS_AT_ONCE && bypasses_l2.load(std::memory_order_relaxed);
  for (int count; first < end; first += count, out += count) {
    count = share(end - first, ROWS_AT_ONCE);
    for (int s = 0, some; s < num_tiles; s += some) {
      const uint8_t* p = w.tile(t + s);
      F* to = out + s * stride;
      some = s + TILES_AT_ONCE <= num_tiles ? TILES_AT_ONCE : 1;
      auto function = w.bits == 4 ? rows_function<4>(some, count, sizes)
                                  : rows_function<8>(some, count, sizes);
      function(p, x, first, to, stride, bypass_l2);
    }
  }
}

// Measures which prefetch is faster on this processor, and sets bypasses_l2. The measurement
// multiplies slices of a matrix with one row; each slice is read once. The choice does not change
// results.
static void choose_prefetch(const Matrix& w) {
  using Time = std::chrono::steady_clock;
  constexpr int SLICES = 10;
  const int tiles = w.tiles() / SLICES / PAIR * PAIR;
  Rows row;
  row.shape(1, (int)w.ins);
  F out[PAIR];
  std::vector<double> seconds[2];
  for (int slice = 0; slice < SLICES; slice++) {
    bool bypass_l2 = slice % 2;
    bypasses_l2 = bypass_l2;
    auto start = Time::now();
    for (int t = slice * tiles; t < (slice + 1) * tiles; t += PAIR) {
      tile_product(w, t, PAIR, row, 0, 1, out, 1);
      asm volatile("" ::"r"(out) : "memory");
    }
    seconds[bypass_l2].push_back(std::chrono::duration<double>(Time::now() - start).count());
  }
  for (auto& times : seconds) std::sort(times.begin(), times.end());
  bypasses_l2 = seconds[true][SLICES / 4] <= MAX_BYPASS_SLOWDOWN * seconds[false][SLICES / 4];
}
