// A model in memory, the inputs of a forward, and the working memory of forwards.
// library.py fills the structures above the line, field by field.
#pragma once

#include <cstdlib>
#include <mutex>

#include "attention.h"

// y += b (a x), for masks only. a.data is null if there is no update.
struct LowRank {
  Matrix a, b;
};

struct Layer {
  const float* attention_norm;
  Matrix qkv;
  const float* qkv_bias;                // or null
  const float *query_norm, *key_norm;  // of each head, [dim], or null
  Matrix output;
  const float* feed_norm;
  Matrix gate_up;  // 32 rows of gate, the 32 of up that they multiply, and so on
  Matrix down;
  LowRank qkv_low, output_low, gate_up_low, down_low;
};

// The sampler head of an adapter: precomputed products of each token's embedding with both layers,
// in 8 bits with a scale per token, and the matrix from states to the inner layer, whose data is
// null if there is no sampler.
struct Sampler {
  Matrix state;
  const int8_t *previous, *candidate;  // [vocabulary, inner]; inner: a multiple of 16
  const float *previous_scales, *candidate_scales;
};

struct Spec {
  int64_t vocab, hidden, num_layers, num_heads, num_kv, dim, feed;
  float norm_floor;
  const Layer* layers;
  const float* final_norm;
  Matrix embedding, head;
  int64_t mask_id;  // -1: none
  const float* mask_embeddings;
  int64_t num_mask_embeddings;  // 0: masks are embedded like any token
  Sampler sampler;
};

struct Feed {
  int64_t num_rows, num_tokens;  // tokens of each row
  const int64_t* ids;            // [rows, tokens]
  const int64_t* cursors;        // [rows]
  const int64_t *positions, *roots, *starts;  // [rows, tokens], or null: plain causal
  const float* turns;            // [positions, dim]: cosines, then sines
  uint16_t* cache;
  int64_t layer_stride, row_stride, block_stride;
  int64_t num_threads;
  int64_t first_layer, end_layer;  // to run; unless it is 0, `out` holds the input states
};

// ---

enum Part { PRODUCTS, ATTENTION, NORMS, HEAD, ADAPTER, NUM_PARTS };

// Time of forwards by part, measured on thread 0. Switched off, it costs a branch.
struct Clock {
  bool is_on = false;
  double seconds[NUM_PARTS] = {};
  std::chrono::steady_clock::time_point last;

  void start(int thread) {
    if (is_on && thread == 0) last = std::chrono::steady_clock::now();
  }
  void lap(int thread, Part part) {
    if (!is_on || thread != 0) return;
    auto now = std::chrono::steady_clock::now();
    seconds[part] += std::chrono::duration<double>(now - last).count();
    last = now;
  }
};

template <class Vector>
static inline void grow(Vector& v, size_t size) {
  if (v.size() < size) v.resize(size);
}

// Working memory of one thread.
struct Desk {
  Buffer<float> queries;     // of an attention task, rotated
  Buffer<float> wide;        // keys and values of some blocks, in fp32
  Buffer<float> scores;      // of the queries
  std::vector<float*> sums;  // where the weighted sums are stored
  Buffer<float> parts;       // results of attention, block by block
  Buffer<float> out;         // products of some tiles
  Rows normed;               // rows to multiply, if each thread computes them itself
  Buffer<float> middle;      // of a low-rank product, each thread for itself: the first matrix is
                             // so small that waiting for another thread would take longer
  Rows low;                  // the middle rows in 8 bits

  F* tiles(int num_tiles, int num_rows) {
    grow(out, (size_t)num_tiles * num_rows * LANES);
    return (F*)out.data();
  }
};

// A unit of attention work: some tokens of a row, one key-value head, some blocks.
struct AttentionTask {
  int row, head;
  int first, end;              // tokens, as Model::by_row counts them
  int first_block, end_block;  // the tail, from the cursor's block on, is never split
  size_t offset;               // where its parts are stored until they are merged

  int num_tokens() const { return end - first; }
  size_t size(const Heads& h) const {
    return (size_t)num_tokens() * h.group() * Parts::size(end_block - first_block, h.dim);
  }
  // Keys and values of the task's head in a block.
  const uint16_t* block(const Cache& cache, int layer, const Heads& h, int number) const {
    return block_of(cache, h, layer, row, number, head);
  }
  // The parts of query i; queries are ordered by token.
  Parts part(float* parts, int i, int dim) const {
    int blocks = end_block - first_block;
    return Parts::at(parts + i * Parts::size(blocks, dim), blocks);
  }
};

struct Model {
  Spec spec;
  Heads heads;
  Clock clock;
  std::mutex turn;  // one forward at a time
  std::vector<Desk> desks;
  std::vector<Token> tokens;  // tokens of this forward, masks last
  std::vector<int> places;    // index of each token in the output
  std::vector<int> cursors;
  int num_real = 0;
  std::vector<AttentionTask> tasks;  // tasks of the same tokens and head are in the order of blocks
  int num_pieces = 1;                // into which the blocks are split
  std::vector<int> by_row;     // tokens by row; those of row r start at first_of[r]
  std::vector<int> first_of;   // with their number as last element
  Buffer<float> x, projected, parts, prepared;
  Rows normed, mixed, gated;

  explicit Model(const Spec& spec)
      : spec(spec), heads{(int)spec.num_heads, (int)spec.num_kv, (int)spec.dim} {}

  // Memory for a task's parts, which are merged immediately if the task has all blocks.
  float* parts_of(Desk& desk, const AttentionTask& task) {
    if (num_pieces > 1) return &parts[task.offset];
    grow(desk.parts, task.size(heads));
    return desk.parts.data();
  }
};

// Root-mean-square norm of a row, quantised. Returns false if the row is not finite.
static inline bool norm(const float* x, const float* weight, int width, float floor, float* scratch,
                        Rows& to, int row) {
  bool is_finite = norm(x, weight, width, floor, scratch);
  to.put(row, scratch);
  return is_finite;
}

// Multiplies tasks of up to `span` tiles with all rows and calls done(tile, count, out, stride) for
// each: row r of tile `tile` + s is out[s * stride + r]. Masks, the rows from model.num_real on,
// are multiplied with the low-rank matrices as well.
template <class Done>
static void product(Model& model, Team& team, int thread, const Matrix& w, const Rows& x, int span,
                    const LowRank* low, Done done) {
  int num_rows = (int)model.tokens.size(), real = model.num_real;
  bool is_lowered = low && low->a.data && real < num_rows;
  Desk& desk = model.desks[thread];
  int num_masks = num_rows - real;
  if (is_lowered) {
    int rank = (int)low->b.ins, tiles = low->a.tiles();
    grow(desk.middle, (size_t)num_masks * rank);
    float* middle = desk.middle.data();
    // A group of b's inputs may be longer than a's outputs.
    memset(middle, 0, sizeof(float) * num_masks * rank);
    F* out = desk.tiles(tiles, num_masks);
    tile_product(low->a, 0, tiles, x, real, num_rows, out, num_masks);
    for (int t = 0; t < tiles; t++)
      for (int i = 0; i < num_masks; i++)
        store(middle + i * rank + t * LANES, out[t * num_masks + i]);
    desk.low.shape(num_masks, rank);
    for (int i = 0; i < num_masks; i++) desk.low.put(i, middle + i * rank);
    model.clock.lap(thread, ADAPTER);
  }
  int tiles = w.tiles();
  team.each(thread, (tiles + span - 1) / span, [&](int task) {
    int tile = task * span, count = tiles - tile < span ? tiles - tile : span;
    F* out = desk.tiles(2 * span, num_rows);
    tile_product(w, tile, count, x, 0, num_rows, out, num_rows);
    if (is_lowered) {
      F* more = out + span * num_rows;
      tile_product(low->b, tile, count, desk.low, 0, num_masks, more, num_masks);
      for (int s = 0; s < count; s++)
        for (int i = 0; i < num_masks; i++) {
          F& sum = out[s * num_rows + real + i];
          sum = add(sum, more[s * num_masks + i]);
        }
    }
    done(tile, count, out, num_rows);
  });
  model.clock.lap(thread, PRODUCTS);
}
