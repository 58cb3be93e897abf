// A model in memory, the inputs of a forward pass, and its working memory.
// library.py fills the structures above the line of dashes, field by field.
#pragma once

#include <cstdlib>
#include <mutex>

#include "attention.h"

// y += b (a x), applied to masks only. a.data is null if there is no update.
struct LowRank {
  Matrix a, b;
};

struct Layer {
  const float* attention_norm;
  Matrix qkv;
  const float* qkv_bias;                // null if there is no bias
  const float *query_norm, *key_norm;  // [dim], applied to each head; null if there is no norm
  Matrix output;
  const float* feed_norm;
  Matrix gate_up;  // alternates 32 rows of gate and the 32 rows of up that they are multiplied with
  Matrix down;
  LowRank qkv_low, output_low, gate_up_low, down_low;
};

// A sampler head, with precomputed products of each token's embedding with its two layers.
struct Sampler {
  Matrix state;  // from states to the inner layer; its data is null if there is no sampler head
  const int8_t *previous, *candidate;  // [vocabulary, inner], where inner is a multiple of 16
  const float *previous_scales, *candidate_scales;
};

struct Spec {
  int64_t vocab, hidden, num_layers, num_heads, num_kv, dim, feed;
  float norm_floor;
  const Layer* layers;
  const float* final_norm;
  Matrix embedding, head;
  int64_t mask_id;  // -1 if there is no mask token
  const float* mask_embeddings;
  int64_t num_mask_embeddings;  // if 0, masks are embedded like other tokens
  Sampler sampler;
};

struct Feed {
  int64_t num_rows, num_tokens;  // num_tokens: per row
  const int64_t* ids;            // [rows, tokens]
  const int64_t* cursors;        // [rows]
  const int64_t *positions, *roots, *starts;  // [rows, tokens]; null if all rows are causal
  const float* rotations;        // [positions, dim]: cosines, then sines
  uint16_t* cache;
  int64_t layer_stride, row_stride, block_stride;
  int64_t num_threads;
};

// ---

template <class Vector>
static inline void grow(Vector& v, size_t size) {
  if (v.size() < size) v.resize(size);
}

// Working memory of one thread.
struct ThreadScratch {
  Buffer<float> queries;     // rotated queries of an attention task
  Buffer<float> wide;        // values in fp32: keys and values of some blocks, a normed row, ...
  Buffer<float> scores;      // attention scores of the queries
  std::vector<float*> sums;  // addresses to which weighted sums are written
  Buffer<float> parts;       // results of attention, block by block
  Buffer<float> out;         // products of some tiles
  Rows normed;               // normed rows, if each thread computes them itself
  Buffer<float> middle;      // of a low-rank product; computing it in each thread beats waiting
  Rows low;                  // the rows of `middle` in 8 bits

  F* tiles(int num_tiles, int num_rows) {
    grow(out, (size_t)num_tiles * num_rows * LANES);
    return (F*)out.data();
  }
};

// A unit of attention work: some tokens of one row, one key-value head, some blocks.
struct AttentionTask {
  int row, head;
  int first, end;              // the tokens, as indices into Model::by_row
  int first_block, end_block;  // one task gets the cursor's block and all later ones
  size_t offset;               // where its parts are stored in Model::parts until they are merged

  int num_tokens() const { return end - first; }
  size_t size(const Heads& h) const {
    return (size_t)num_tokens() * h.group() * Parts::size(end_block - first_block, h.dim);
  }
  const uint16_t* block(const Cache& cache, int layer, const Heads& h, int number) const {
    return block_of(cache, h, layer, row, number, head);
  }
  // The parts of query i. Queries are ordered by token, then by head.
  Parts part(float* parts, int i, int dim) const {
    int blocks = end_block - first_block;
    return Parts::at(parts + i * Parts::size(blocks, dim), blocks);
  }
};

struct Model {
  Spec spec;
  Heads heads;
  std::mutex in_use;  // held during a forward pass: the model runs one at a time
  std::vector<ThreadScratch> scratches;    // one per thread
  std::vector<Token> tokens;  // the tokens of this forward pass, masks last
  std::vector<int> places;    // index of each token in the output
  std::vector<int> cursors;
  int num_real = 0;           // number of tokens that are not masks
  std::vector<AttentionTask> tasks;  // tasks of the same tokens and head are in the order of blocks
  int num_pieces = 1;                // number of tasks that the blocks of a head are split into
  std::vector<int> by_row;    // indices of tokens, sorted by row; row r starts at first_of[r]
  std::vector<int> first_of;  // one element per row, then the number of all tokens
  Buffer<float> x, projected, parts, prepared;
  Rows normed, mixed, gated;

  explicit Model(const Spec& spec)
      : spec(spec), heads{(int)spec.num_heads, (int)spec.num_kv, (int)spec.dim} {}

  // The parts of a task with all blocks are merged immediately, so the thread's memory is enough.
  float* parts_of(ThreadScratch& scratch, const AttentionTask& task) {
    if (num_pieces > 1) return &parts[task.offset];
    grow(scratch.parts, task.size(heads));
    return scratch.parts.data();
  }
};

// Stores the norm of x in 8 bits as a row of `to`. Returns false if x is not finite.
static inline bool norm(const float* x, const float* weight, int width, float floor, float* scratch,
                        Rows& to, int row) {
  bool is_finite = norm(x, weight, width, floor, scratch);
  to.put(row, scratch);
  return is_finite;
}

// Multiplies the matrix w with all rows of x, in tasks of up to `span` tiles. After each task,
// done(tile, count, out, stride) is called: the result for row r and tile `tile` + s is
// out[s * stride + r]. For masks, the rows from model.num_real on, the low-rank update is added.
template <class Done>
static void product(Model& model, Team& team, int thread, const Matrix& w, const Rows& x, int span,
                    const LowRank* low, Done done) {
  int num_rows = (int)model.tokens.size(), real = model.num_real;
  bool is_lowered = low && low->a.data && real < num_rows;
  ThreadScratch& scratch = model.scratches[thread];
  int num_masks = num_rows - real;
  if (is_lowered) {
    int rank = (int)low->b.ins, tiles = low->a.tiles();
    grow(scratch.middle, (size_t)num_masks * rank);
    float* middle = scratch.middle.data();
    // b's inputs are padded to a multiple of 32, so a may have fewer outputs than b has inputs.
    memset(middle, 0, sizeof(float) * num_masks * rank);
    F* out = scratch.tiles(tiles, num_masks);
    tile_product(low->a, 0, tiles, x, real, num_rows, out, num_masks);
    for (int t = 0; t < tiles; t++)
      for (int i = 0; i < num_masks; i++)
        store(middle + i * rank + t * LANES, out[t * num_masks + i]);
    scratch.low.shape(num_masks, rank);
    for (int i = 0; i < num_masks; i++) scratch.low.put(i, middle + i * rank);
  }
  int tiles = w.tiles();
  team.each(thread, (tiles + span - 1) / span, [&](int task) {
    int tile = task * span, count = tiles - tile < span ? tiles - tile : span;
    F* out = scratch.tiles(2 * span, num_rows);
    tile_product(w, tile, count, x, 0, num_rows, out, num_rows);
    if (is_lowered) {
      F* more = out + span * num_rows;
      tile_product(low->b, tile, count, scratch.low, 0, num_masks, more, num_masks);
      for (int s = 0; s < count; s++)
        for (int i = 0; i < num_masks; i++) {
          F& sum = out[s * num_rows + real + i];
          sum = add(sum, more[s * num_masks + i]);
        }
    }
    done(tile, count, out, num_rows);
  });
}
