// A forward pass: computes hidden states of tokens and writes their keys and values into the cache.
#pragma once

#include "model.h"

// Maximum number of tokens in an attention task. More parts would not fit a processor cache.
constexpr int MOST_TOKENS = 16;
// Minimum number of blocks in a task if the blocks of a head are split between tasks. With fewer,
// merging costs more than it saves.
constexpr int LEAST_BLOCKS = 8;

// Splits attention into tasks by rows, heads and tokens. If that gives too few tasks for the
// threads, blocks are split as well.
static void plan_attention(Model& m, int num_threads) {
  int rows = (int)m.cursors.size(), kv = m.heads.num_kv, longest = 0, count = m.first_of[1];
  for (int cursor : m.cursors) longest = cursor > longest ? cursor : longest;
  int wanted = num_threads > 1 ? (2 * num_threads + rows * kv - 1) / (rows * kv) : 1;
  int least = (count + MOST_TOKENS - 1) / MOST_TOKENS;
  int chunks = wanted < least ? least : (wanted < count ? wanted : count);
  int most = longest / BLOCK / LEAST_BLOCKS;
  int pieces = (wanted + chunks - 1) / chunks;
  m.num_pieces = pieces = pieces < most ? pieces : (most > 1 ? most : 1);
  m.tasks.clear();
  size_t size = 0;
  for (int i = 0; i < rows * kv * chunks * pieces; i++) {
    int piece = i % pieces, chunk = i / pieces % chunks;
    AttentionTask task{i / pieces / chunks / kv, i / pieces / chunks % kv};
    int begin = m.first_of[task.row], whole = m.cursors[task.row] / BLOCK;
    task.first = begin + count * chunk / chunks, task.end = begin + count * (chunk + 1) / chunks;
    task.first_block = whole * piece / pieces, task.end_block = whole * (piece + 1) / pieces;
    if (piece == pieces - 1) {
      for (int t = task.first; t < task.end; t++) {
        int blocks = m.tokens[m.by_row[t]].num_blocks();
        task.end_block = blocks > task.end_block ? blocks : task.end_block;
      }
    }
    task.offset = size, size += task.size(m.heads);
    m.tasks.push_back(task);
  }
  if (pieces > 1) grow(m.parts, size);
}

// Prepares a pass over the tokens `first` to `end` of each row: the list of tokens, with masks
// last, and the attention tasks.
static void plan(Model& m, const Feed& feed, int first, int end) {
  int rows = (int)feed.num_rows, width = (int)feed.num_tokens;
  std::vector<Token> unsorted;
  for (int r = 0; r < rows; r++) {
    int cursor = (int)feed.cursors[r];
    std::vector<int> masks(width, -1);
    for (int q = 0; q < end; q++) {
      int64_t at = (int64_t)r * width + q;
      int position = feed.positions ? (int)feed.positions[at] : q;
      int root = feed.roots ? (int)feed.roots[at] : q;
      int start = feed.starts ? (int)feed.starts[at] : q;
      if (feed.ids[at] == m.spec.mask_id) {
        int before = q > start ? q - 1 : root - 1;
        masks[q] = before < 0 ? 0 : masks[before] + 1;
      }
      if (q >= first)
        unsorted.push_back({feed.ids[at], r, cursor + q, cursor + position, cursor + root,
                         cursor + start, masks[q]});
    }
  }
  m.tokens.clear(), m.places.clear();
  for (int is_mask = 0; is_mask < 2; is_mask++) {
    for (size_t i = 0; i < unsorted.size(); i++) {
      const Token& token = unsorted[i];
      if ((token.mask >= 0) != (is_mask == 1)) continue;
      int q = token.slot - (int)feed.cursors[token.row];
      m.places.push_back(token.row * width + q);
      m.tokens.push_back(token);
    }
    if (!is_mask) m.num_real = (int)m.tokens.size();
  }
  m.by_row.clear(), m.first_of.assign(1, 0), m.cursors.clear();
  for (int r = 0; r < rows; r++) {
    for (size_t i = 0; i < m.tokens.size(); i++)
      if (m.tokens[i].row == r) m.by_row.push_back((int)i);
    m.first_of.push_back((int)m.by_row.size());
    m.cursors.push_back((int)feed.cursors[r] + (feed.starts ? 0 : first));
  }
  plan_attention(m, (int)feed.num_threads);
}

// Writes the keys and values of a row's tokens into the cache, for one key-value head.
static void keep_tokens(Model& m, ThreadScratch& scratch, const Feed& feed, const Cache& cache,
                        int layer, int row, int head) {
  grow(scratch.wide, m.heads.dim);
  HeadNorm by_norm{m.spec.layers[layer].key_norm, m.spec.norm_floor};
  for (int i = m.first_of[row]; i < m.first_of[row + 1]; i++) {
    const Token& token = m.tokens[m.by_row[i]];
    keep(m.heads, token, head, &m.projected[(size_t)m.by_row[i] * m.heads.all()], by_norm,
         feed.rotations + (int64_t)token.position * m.heads.dim, scratch.wide.data(), cache, layer);
  }
}

// Norms and rotates the queries of a task and stores them ordered by token.
static void rotate_queries(const Model& m, ThreadScratch& scratch, const Feed& feed, int layer,
                           const AttentionTask& task) {
  const Heads& h = m.heads;
  HeadNorm by_norm{m.spec.layers[layer].query_norm, m.spec.norm_floor};
  grow(scratch.queries, (size_t)task.num_tokens() * h.group() * h.dim);
  float scale = 1.0f / std::sqrt((float)h.dim), *to = scratch.queries.data();
  for (int i = task.first; i < task.end; i++) {
    int token = m.by_row[i];
    const float* rotations = feed.rotations + (int64_t)m.tokens[token].position * h.dim;
    const float* x = &m.projected[(size_t)token * h.all() + task.head * h.group() * h.dim];
    for (int q = 0; q < h.group(); q++, to += h.dim)
      rotate(x + q * h.dim, by_norm, rotations, h.dim, scale, to);
  }
}

// Computes the attention parts of a task for a block that all its tokens attend to completely.
static void attend_block(const Model& m, ThreadScratch& scratch, const Cache& cache, int layer,
                         const AttentionTask& task, int block, float* parts) {
  const Heads& h = m.heads;
  int count = task.num_tokens() * h.group();
  grow(scratch.wide, h.block()), grow(scratch.scores, count * BLOCK), grow(scratch.sums, count);
  float *keys = scratch.wide.data(), *values = keys + BLOCK * h.dim;
  float* scores = scratch.scores.data();
  widen(task.block(cache, layer, h, block), cache.block_stride, h.dim, keys);
  score(count, scratch.queries.data(), keys, h.dim, scores, BLOCK);
  for (int i = 0; i < count; i++) {
    Parts part = task.part(parts, i, h.dim);
    int at = block - task.first_block;
    soften(scores + i * BLOCK, BLOCK, part.most + at, part.sum + at);
    scratch.sums[i] = part.values + (size_t)at * h.dim;
  }
  weigh(count, scores, BLOCK, BLOCK, [&](int i) { return values + i * h.dim; }, h.dim,
        scratch.sums.data());
}

// Computes the attention parts of a task for the block of the cursor and all later blocks. In these
// blocks, the tokens of a task attend to different slots.
static void attend_tail(const Model& m, ThreadScratch& scratch, const Cache& cache, int layer,
                        const AttentionTask& task, float* parts) {
  const Heads& h = m.heads;
  int first = m.cursors[task.row] / BLOCK, last = first, origin = first * BLOCK;
  for (int i = task.first; i < task.end; i++) {
    int block = m.tokens[m.by_row[i]].slot / BLOCK;
    last = block > last ? block : last;
  }
  int width = (last - first + 1) * BLOCK, group = h.group(), queries = task.num_tokens() * group;
  grow(scratch.wide, (size_t)(last - first + 1) * h.block());
  grow(scratch.scores, (size_t)width * (queries + group)), grow(scratch.sums, group);
  float* ordered = scratch.scores.data() + (size_t)width * queries;
  for (int b = first; b <= last; b++) {
    float* keys = &scratch.wide[(size_t)(b - first) * h.block()];
    widen(task.block(cache, layer, h, b), cache.block_stride, h.dim, keys);
    score(queries, scratch.queries.data(), keys, h.dim, scratch.scores.data() + (b - first) * BLOCK,
          width);
  }
  for (int t = 0; t < task.num_tokens(); t++) {
    const Token& token = m.tokens[m.by_row[task.first + t]];
    float* scores = scratch.scores.data() + (size_t)t * group * width;
    int places = token.num_places();
    auto slot = [&](int place) {  // the slot of a place, relative to the origin
      return (place < token.root ? place : token.start + place - token.root) - origin;
    };
    float* by_place = scores;
    if (!token.is_plain()) {
      by_place = ordered;
      for (int i = 0; i < group; i++)
        for (int place = origin; place < places; place++)
          ordered[i * width + place - origin] = scores[i * width + slot(place)];
    }
    for (int from = origin; from < places; from += BLOCK) {
      int number = places - from < BLOCK ? places - from : BLOCK;
      int at = from / BLOCK - task.first_block;
      for (int i = 0; i < group; i++) {
        Parts part = task.part(parts, t * group + i, h.dim);
        soften(by_place + i * width + from - origin, number, part.most + at, part.sum + at);
        scratch.sums[i] = part.values + (size_t)at * h.dim;
      }
      auto values = [&](int i) {
        int at = slot(from + i);
        return &scratch.wide[(size_t)(at / BLOCK) * h.block() + (BLOCK + at % BLOCK) * h.dim];
      };
      weigh(group, by_place + from - origin, width, number, values, h.dim, scratch.sums.data());
    }
  }
}

static void attend(Model& m, ThreadScratch& scratch, const Feed& feed, const Cache& cache,
                   int layer, const AttentionTask& task) {
  float* parts = m.parts_of(scratch, task);
  int cursor = m.cursors[task.row] / BLOCK;
  const uint16_t* first = task.block(cache, layer, m.heads, task.first_block);
  for (int i = 0; i < m.heads.block(); i += 2 * LANES) prefetch(first + i);
  rotate_queries(m, scratch, feed, layer, task);
  for (int block = task.first_block; block < task.end_block && block < cursor; block++)
    attend_block(m, scratch, cache, layer, task, block, parts);
  if (task.end_block > cursor) attend_tail(m, scratch, cache, layer, task, parts);
}

// Merges the attention parts of query i and writes the result to m.mixed, the input of the output
// product. The tasks must cover all blocks of the query, in order.
static void merge(Model& m, ThreadScratch& scratch, const AttentionTask* tasks, int count, int i) {
  const Heads& h = m.heads;
  int token = m.by_row[tasks->first + i / h.group()];
  int head = tasks->head * h.group() + i % h.group();
  int blocks = m.tokens[token].num_blocks(), wide = Parts::width(blocks);
  grow(scratch.wide, 2 * wide), grow(scratch.sums, blocks);
  float most = -INFINITY, *weights = scratch.wide.data(), *sums = weights + wide;
  for (const AttentionTask* task = tasks; task < tasks + count; task++) {
    Parts part = task->part(m.parts_of(scratch, *task), i, h.dim);
    int end = task->end_block < blocks ? task->end_block : blocks;
    for (int block = task->first_block; block < end; block++) {
      int at = block - task->first_block;
      weights[block] = part.most[at], sums[block] = part.sum[at];
      scratch.sums[block] = part.values + (size_t)at * h.dim;
      most = part.most[at] > most ? part.most[at] : most;
    }
  }
  F sum = all(0.0f);
  for (int b = 0; b < blocks; b += LANES) {
    F weight = exponential(sub(load(weights + b), all(most)));
    weight = first_lanes(blocks - b, weight, all(0.0f));
    sum = add(sum, first_lanes(blocks - b, mul(weight, load(sums + b)), all(0.0f)));
    store(weights + b, weight);
  }
  F by = all(1.0f / total(sum));
  for (int d = 0; d < h.dim; d += GROUP) {
    F low = all(0.0f), high = low;
    for (int b = 0; b < blocks; b++) {
      F weight = all(weights[b]);
      low = fma(weight, load(scratch.sums[b] + d), low);
      high = fma(weight, load(scratch.sums[b] + d + LANES), high);
    }
    m.mixed.put(token, (head * h.dim + d) / GROUP, mul(low, by), mul(high, by));
  }
}

// Runs the attention of one layer. If several tasks share a head, all keys and values are stored
// before attention starts. If the blocks of a head are split, all parts are computed before they
// are merged.
static void run_attention(Model& m, Team& team, int thread, const Feed& feed, int layer) {
  const Heads& h = m.heads;
  ThreadScratch& scratch = m.scratches[thread];
  Cache cache{feed.cache, feed.layer_stride, feed.row_stride, feed.block_stride};
  int heads = (int)feed.num_rows * h.num_kv, count = (int)m.tasks.size(), pieces = m.num_pieces;
  bool is_shared = count > heads;
  auto keep_head = [&](int i) {
    keep_tokens(m, scratch, feed, cache, layer, i / h.num_kv, i % h.num_kv);
  };
  if (is_shared) team.each(thread, heads, keep_head);
  team.each(thread, count, [&](int i) {
    const AttentionTask& task = m.tasks[i];
    if (!is_shared) keep_head(i);
    attend(m, scratch, feed, cache, layer, task);
    for (int q = 0; pieces == 1 && q < task.num_tokens() * h.group(); q++)
      merge(m, scratch, &task, 1, q);
  });
  if (pieces == 1) return;
  team.each(thread, count / pieces, [&](int i) {
    const AttentionTask* tasks = &m.tasks[i * pieces];
    for (int q = 0; q < tasks->num_tokens() * h.group(); q++) merge(m, scratch, tasks, pieces, q);
  });
}

static void embed(Model& m, int token) {
  const Spec& s = m.spec;
  int mask = m.tokens[token].mask;
  float* x = &m.x[token * s.hidden];
  if (mask < 0 || s.num_mask_embeddings == 0) return s.embedding.row(m.tokens[token].id, x);
  int64_t row = mask < s.num_mask_embeddings ? mask : s.num_mask_embeddings - 1;
  memcpy(x, s.mask_embeddings + row * s.hidden, sizeof(float) * s.hidden);
}

// Up to this number of rows, each thread computes the norm of all rows itself, because that is
// faster than a barrier.
constexpr int FEW = 4;

static void run_layer(Model& m, Team& team, int thread, const Feed& feed, int index) {
  const Spec& s = m.spec;
  const Layer& layer = s.layers[index];
  const Heads& h = m.heads;
  ThreadScratch& scratch = m.scratches[thread];
  Cache cache{feed.cache, feed.layer_stride, feed.row_stride, feed.block_stride};
  int count = (int)m.tokens.size(), hidden = (int)s.hidden;
  Rows& normed = count <= FEW ? scratch.normed : m.normed;
  auto normalise = [&](const float* weight) {
    grow(scratch.wide, hidden);
    auto norm_row = [&](int i) {
      norm(&m.x[(size_t)i * hidden], weight, hidden, s.norm_floor, scratch.wide.data(), normed, i);
    };
    if (count <= FEW) {
      for (int i = 0; i < count; i++) norm_row(i);
    } else {
      team.each(thread, count, norm_row);
    }
  };
  auto add_to_x = [&](int tile, int num_tiles, const F* out, int stride) {
    for (int i = 0; i < count; i++) {
      float* x = &m.x[(size_t)i * hidden + tile * LANES];
      for (int s = 0; s < num_tiles; s++, x += LANES) store(x, add(load(x), out[s * stride + i]));
    }
  };
  normalise(layer.attention_norm);
  product(m, team, thread, layer.qkv, normed, TILES_AT_ONCE, &layer.qkv_low,
          [&](int tile, int num_tiles, const F* out, int stride) {
            for (int s = 0; s < num_tiles; s++, tile++, out += stride) {
              F bias = layer.qkv_bias ? load(layer.qkv_bias + tile * LANES) : all(0.0f);
              for (int i = 0; i < count; i++)
                store(&m.projected[(size_t)i * h.all() + tile * LANES], add(out[i], bias));
            }
          });
  run_attention(m, team, thread, feed, index);
  product(m, team, thread, layer.output, m.mixed, TILES_AT_ONCE, &layer.output_low, add_to_x);
  normalise(layer.feed_norm);
  product(m, team, thread, layer.gate_up, normed, 4, &layer.gate_up_low,
          [&](int tile, int, const F* out, int stride) {
            for (int i = 0; i < count; i++)
              m.gated.put(i, tile / 4, mul(silu(out[i]), out[2 * stride + i]),
                          mul(silu(out[stride + i]), out[3 * stride + i]));
          });
  product(m, team, thread, layer.down, m.gated, TILES_AT_ONCE, &layer.down_low, add_to_x);
}

// Runs the layers on the tokens `first` to `end` of each row. out: [rows, tokens, hidden].
static void run_pass(Model& m, const Feed& feed, int first, int end, float* out) {
  const Spec& s = m.spec;
  plan(m, feed, first, end);
  size_t count = m.tokens.size();
  grow(m.x, count * s.hidden), grow(m.projected, count * m.heads.all());
  grow(m.scratches, (size_t)feed.num_threads);
  m.normed.shape((int)count, (int)s.hidden);
  for (ThreadScratch& scratch : m.scratches) scratch.normed.shape(FEW, (int)s.hidden);
  m.mixed.shape((int)count, m.heads.num_heads * m.heads.dim);
  m.gated.shape((int)count, (int)s.feed);
  Pool::shared().run((int)feed.num_threads, [&](Team& team, int thread) {
    team.each(thread, (int)count, [&](int i) { embed(m, i); });
    for (int layer = 0; layer < (int)s.num_layers; layer++)
      run_layer(m, team, thread, feed, layer);
    team.each(thread, (int)count, [&](int i) {
      memcpy(out + (int64_t)m.places[i] * s.hidden, &m.x[i * s.hidden], sizeof(float) * s.hidden);
    });
  });
}

constexpr int PASS = 64;  // maximum number of tokens per row in one pass over the layers

// Runs a forward pass. A long prompt is processed in several passes over the layers, a tree of
// tokens always in one.
static void run_forward(Model& m, const Feed& feed, float* out) {
  std::lock_guard<std::mutex> lock(m.in_use);
  int width = (int)feed.num_tokens;
  for (int first = 0; first < width;) {
    int end = feed.starts || first + PASS > width ? width : first + PASS;
    run_pass(m, feed, first, end, out);
    first = end;
  }
}
