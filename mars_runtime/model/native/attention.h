// Rotation, keys and values in blocks, and attention over what each token sees.
//
// The cache of a row is a chain of blocks of 32 slots, in fp16. For each key-value head a block
// holds the keys turned, [dim][32], then the values, [32][dim], so that 16 slots are scored at
// once. A token sees slots [0, root) and [start, own]: told one after another, these are its
// places 0, 1, 2 ... Places are weighed in blocks of 32 in their own order, and blocks are merged
// in their order. What a token gets depends on the keys and values at its places alone: not on the
// slots they are kept in, nor on what is fed beside it.
#pragma once

#include "product.h"

constexpr int BLOCK = 32;

struct Cache {
  uint16_t* data;
  int64_t layer_stride, row_stride, block_stride;  // in halves
};

// One token of a forward, in its own row's slots.
struct Token {
  int64_t id;
  int row;       // of the cache
  int slot;      // where its keys and values go
  int position;  // how far it is turned
  int root, start;
  int mask;  // its place among the masks of its group; -1: not a mask

  int num_places() const { return root + slot - start + 1; }
  bool is_plain() const { return root == start; }
};

struct Heads {
  int num_heads, num_kv, dim;

  int group() const { return num_heads / num_kv; }
  int all() const { return (num_heads + 2 * num_kv) * dim; }
};

static inline uint16_t* block_of(const Cache& cache, int layer, int row, int block) {
  return cache.data + layer * cache.layer_stride + row * cache.row_stride +
         block * cache.block_stride;
}

// Turns one head: dimension i with dimension i + dim / 2. turns: cosines, then sines.
static inline void rotate(float* x, const float* turns, int dim, float scale) {
  int half = dim / 2;
  F by = all(scale);
  for (int i = 0; i < half; i += LANES) {
    F a = mul(load(x + i), by), b = mul(load(x + half + i), by);
    F cosine = load(turns + i), sine = load(turns + half + i);
    store(x + i, sub(mul(a, cosine), mul(b, sine)));
    store(x + half + i, add(mul(b, cosine), mul(a, sine)));
  }
}

// Turns the queries and keys of a token (queries by 1 / sqrt(dim) too) and keeps keys and values.
static inline void place_token(const Heads& h, const Token& token, float* projected,
                               const float* turns, const Cache& cache, int layer) {
  for (int i = 0; i < h.num_heads; i++)
    rotate(projected + i * h.dim, turns, h.dim, 1.0f / std::sqrt((float)h.dim));
  float* keys = projected + h.num_heads * h.dim;
  const float* values = keys + h.num_kv * h.dim;
  uint16_t* block = block_of(cache, layer, token.row, token.slot / BLOCK);
  int slot = token.slot % BLOCK;
  for (int head = 0; head < h.num_kv; head++, block += 2 * BLOCK * h.dim) {
    rotate(keys + head * h.dim, turns, h.dim, 1.0f);
    uint16_t sixteen[LANES];
    for (int d = 0; d < h.dim; d += LANES) {
      store_half(sixteen, load(keys + head * h.dim + d));
      for (int i = 0; i < LANES; i++) block[(d + i) * BLOCK + slot] = sixteen[i];
      store_half(block + (BLOCK + slot) * h.dim + d, load(values + head * h.dim + d));
    }
  }
}

// A part of a weighted mean: the largest score, the sum of e^(score - largest), and the values
// weighted so. Kept as floats: largest, sum, dim values.
static inline int part_size(int dim) { return dim + LANES; }

static inline void merge(float* into, const float* part, int dim) {
  float most = into[0] > part[0] ? into[0] : part[0];
  float before[LANES], factors[LANES] = {into[0] - most, part[0] - most};
  store(before, exponential(load(factors)));
  into[1] = into[1] * before[0] + part[1] * before[1];
  into[0] = most;
  F a = all(before[0]), b = all(before[1]);
  for (int d = 0; d < dim; d += LANES)
    store(into + LANES + d, add(mul(load(into + LANES + d), a), mul(load(part + LANES + d), b)));
}

// Scores of 32 slots: keys [dim][32].
static inline void score(const float* query, const float* keys, int dim, float* scores) {
  F low = all(0.0f), high = low;
  for (int d = 0; d < dim; d++) {
    F q = all(query[d]);
    low = fma(q, load(keys + d * BLOCK), low);
    high = fma(q, load(keys + d * BLOCK + LANES), high);
  }
  store(scores, low), store(scores + LANES, high);
}

// Weighs `count` <= 32 places; row(i) tells where the values of place i are. DIM: 0 for any.
template <int DIM, class RowOf>
static inline void weigh_places(int any, const float* scores, int count, RowOf row, float* part) {
  const int dim = DIM ? DIM : any;
  F none = all(-INFINITY);
  F low = first_lanes(count, load(scores), none);
  F high = first_lanes(count - LANES, load(scores + LANES), none);
  float most = largest(larger(low, high));
  low = first_lanes(count, exponential(sub(low, all(most))), all(0.0f));
  high = first_lanes(count - LANES, exponential(sub(high, all(most))), all(0.0f));
  part[0] = most, part[1] = total(add(low, high));
  float weights[BLOCK];
  store(weights, low), store(weights + LANES, high);
  constexpr int WIDE = DIM ? DIM / LANES : 1;
  for (int from = 0; from < dim; from += WIDE * LANES) {
    F sum[WIDE];
    for (int j = 0; j < WIDE; j++) sum[j] = all(0.0f);
    for (int i = 0; i < count; i++) {
      const float* values = row(i) + from;
      F weight = all(weights[i]);
      for (int j = 0; j < WIDE; j++) sum[j] = fma(weight, load(values + j * LANES), sum[j]);
    }
    for (int j = 0; j < WIDE; j++) store(part + LANES + from + j * LANES, sum[j]);
  }
}

template <class RowOf>
static inline void weigh(int dim, const float* scores, int count, RowOf row, float* part) {
  if (dim == 64) return weigh_places<64>(dim, scores, count, row, part);
  weigh_places<0>(dim, scores, count, row, part);
}

// Keys and values of one head and block, in fp32.
static inline void widen(const uint16_t* block, int dim, float* to) {
  for (int i = 0; i < 2 * BLOCK * dim; i += LANES) store(to + i, load_half(block + i));
}
