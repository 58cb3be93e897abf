// Rotation, the layout of the KV cache, and attention.
//
// A block of the cache has 32 slots, in fp16: for each key-value head the rotated keys, [dim][32],
// then the values, [32][dim]. The slots that a token attends to, [0, root) and from start to its
// own, are numbered 0, 1, 2 ...: its places. Attention is computed for 32 places at a time and
// merged in order, so it depends only on the keys and values at a token's places.
#pragma once

#include "product.h"

constexpr int BLOCK = 32;

struct Cache {
  uint16_t* data;
  int64_t layer_stride, row_stride, block_stride;  // counted in fp16 numbers, not bytes
};

// One token of a forward pass.
struct Token {
  int64_t id;
  int row;          // its row of the cache
  int slot;         // slot of its row for its keys and values
  int position;     // for rotation
  int root, start;  // it attends to the slots [0, root) and [start, slot]
  int mask;         // index among the masks of its group, or -1 if it is not a mask

  int num_places() const { return root + slot - start + 1; }
  int num_blocks() const { return (num_places() + BLOCK - 1) / BLOCK; }
  bool is_plain() const { return root == start; }
};

struct Heads {
  int num_heads, num_kv, dim;

  int group() const { return num_heads / num_kv; }
  int all() const { return (num_heads + 2 * num_kv) * dim; }
  // Numbers of one head in a block of the cache.
  int block() const { return 2 * BLOCK * dim; }
};

static inline uint16_t* block_of(const Cache& cache, const Heads& h, int layer, int row, int block,
                                 int head) {
  return cache.data + layer * cache.layer_stride + row * cache.row_stride +
         block * cache.block_stride + head * h.block();
}

// Applies the root-mean-square norm to x. Returns false if x is not finite.
static inline bool norm(const float* x, const float* weight, int width, float floor, float* to) {
  F squares = all(0.0f);
  for (int i = 0; i < width; i += LANES) squares = fma(load(x + i), load(x + i), squares);
  float sum = total(squares);
  F by = all(1.0f / std::sqrt(sum / (float)width + floor));
  for (int i = 0; i < width; i += LANES) store(to + i, mul(mul(load(x + i), by), load(weight + i)));
  return std::isfinite(sum);
}

// The norm of each query head or key head. weight: [dim]; null if there is none.
struct HeadNorm {
  const float* weight;
  float floor;
};

// Norms a head, then rotates dimension i together with i + dim / 2. to: may be equal to x.
static inline void rotate(const float* x, const HeadNorm& by_norm, const float* rotations, int dim,
                          float scale, float* to) {
  if (by_norm.weight) {
    norm(x, by_norm.weight, dim, by_norm.floor, to);
    x = to;
  }
  int half = dim / 2;
  F by = all(scale);
  for (int i = 0; i < half; i += LANES) {
    F a = mul(load(x + i), by), b = mul(load(x + half + i), by);
    F cosine = load(rotations + i), sine = load(rotations + half + i);
    store(to + i, sub(mul(a, cosine), mul(b, sine)));
    store(to + half + i, add(mul(b, cosine), mul(a, sine)));
  }
}

// Writes the rotated keys and the values of one token and key-value head into the cache.
static inline void keep(const Heads& h, const Token& token, int head, const float* projected,
                        const HeadNorm& by_norm, const float* rotations, float* scratch,
                        const Cache& cache, int layer) {
  const float* keys = projected + (h.num_heads + head) * h.dim;
  const float* values = keys + h.num_kv * h.dim;
  uint16_t* block = block_of(cache, h, layer, token.row, token.slot / BLOCK, head);
  int slot = token.slot % BLOCK;
  rotate(keys, by_norm, rotations, h.dim, 1.0f, scratch);
  for (int d = 0; d < h.dim; d += LANES) {
    uint16_t sixteen[LANES];
    store_half(sixteen, load(scratch + d));
    for (int i = 0; i < LANES; i++) block[(d + i) * BLOCK + slot] = sixteen[i];
    store_half(block + (BLOCK + slot) * h.dim + d, load(values + d));
  }
}

// For each block: the maximum score, the sum of e^(score - maximum), and the weighted values.
struct Parts {
  float *most, *sum, *values;  // [blocks], [blocks], [blocks, dim]

  static int width(int num_blocks) { return (num_blocks + LANES - 1) / LANES * LANES; }
  static size_t size(int num_blocks, int dim) {
    return 2 * width(num_blocks) + (size_t)num_blocks * dim;
  }
  static Parts at(float* p, int num_blocks) {
    return {p, p + width(num_blocks), p + 2 * width(num_blocks)};
  }
};

// Computes the scores of 32 slots for N queries. keys: [dim][32]. scores: [N][stride].
template <int N>
static void score_some(const float* queries, const float* keys, int dim, float* scores,
                       int stride) {
  F low[N], high[N];
  for (int n = 0; n < N; n++) low[n] = high[n] = all(0.0f);
  for (int d = 0; d < dim; d++) {
    F first = load(keys + d * BLOCK), second = load(keys + d * BLOCK + LANES);
    for (int n = 0; n < N; n++) {
      F q = all(queries[n * dim + d]);
      low[n] = fma(q, first, low[n]), high[n] = fma(q, second, high[n]);
    }
  }
  for (int n = 0; n < N; n++)
    store(scores + n * stride, low[n]), store(scores + n * stride + LANES, high[n]);
}

template <int N = QUERIES_AT_ONCE>
static inline void score(int count, const float* queries, const float* keys, int dim,
                         float* scores, int stride) {
  for (; count >= N; count -= N, queries += N * dim, scores += N * stride)
    score_some<N>(queries, keys, dim, scores, stride);
  if constexpr (N > 1)
    if (count) score<N - 1>(count, queries, keys, dim, scores, stride);
}

// Converts 32 scores, of which `count` are valid, to weights e^(score - maximum).
static inline void soften(float* scores, int count, float* most, float* sum) {
  F none = all(-INFINITY), low = load(scores), high = load(scores + LANES);
  low = first_lanes(count, low, none), high = first_lanes(count - LANES, high, none);
  *most = largest(larger(low, high));
  F base = all(*most);
  low = first_lanes(count, exponential(sub(low, base)), all(0.0f));
  high = first_lanes(count - LANES, exponential(sub(high, base)), all(0.0f));
  *sum = total(add(low, high));
  store(scores, low), store(scores + LANES, high);
}

// Computes the weighted sums of the values at up to 32 places for N queries, WIDE vectors at a time.
template <int N, int WIDE, class RowOf>
static void weigh_some(const float* weights, int stride, int count, RowOf row, int dim,
                       float* const* to) {
  for (int from = 0; from < dim; from += WIDE * LANES) {
    F sum[N][WIDE];
    for (int n = 0; n < N; n++)
      for (int j = 0; j < WIDE; j++) sum[n][j] = all(0.0f);
    for (int i = 0; i < count; i++) {
      const float* values = row(i) + from;
      F value[WIDE];
      for (int j = 0; j < WIDE; j++) value[j] = load(values + j * LANES);
      for (int n = 0; n < N; n++) {
        F weight = all(weights[n * stride + i]);
        for (int j = 0; j < WIDE; j++) sum[n][j] = fma(weight, value[j], sum[n][j]);
      }
    }
    for (int n = 0; n < N; n++)
      for (int j = 0; j < WIDE; j++) store(to[n] + from + j * LANES, sum[n][j]);
  }
}

template <int N = QUERIES_AT_ONCE, class RowOf>
static void weigh(int queries, const float* weights, int stride, int count, RowOf row, int dim,
                  float* const* to) {
  for (; queries >= N; queries -= N, weights += N * stride, to += N) {
    if (dim % (WIDTH_AT_ONCE * LANES)) {
      weigh_some<N, 2>(weights, stride, count, row, dim, to);
    } else {
      weigh_some<N, WIDTH_AT_ONCE>(weights, stride, count, row, dim, to);
    }
  }
  if constexpr (N > 1)
    if (queries) weigh<N - 1>(queries, weights, stride, count, row, dim, to);
}

// Converts the keys and values of one head and block to fp32, and prefetches the next block.
static inline void widen(const uint16_t* block, int64_t stride, int dim, float* to) {
  for (int i = 0; i < 2 * BLOCK * dim; i += 2 * LANES) {
    prefetch(block + stride + i);
    store(to + i, load_half(block + i)), store(to + i + LANES, load_half(block + i + LANES));
  }
}
