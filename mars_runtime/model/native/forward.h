// One forward: tokens in, hidden states out, keys and values into the cache.
#pragma once

#include "model.h"

// Tokens `first` to `end` of each row, masks last; which see what; and how attention is shared out.
static void plan(Model& m, const Feed& feed, int first, int end) {
  int rows = (int)feed.num_rows, width = (int)feed.num_tokens;
  std::vector<Token> found;
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
        found.push_back({feed.ids[at], r, cursor + q, cursor + position, cursor + root,
                         cursor + start, masks[q]});
    }
  }
  m.tokens.clear(), m.places.clear(), m.tasks.clear(), m.cursors.clear();
  m.of_row.assign(rows, {});
  m.num_blocks = 0;
  for (int is_mask = 0; is_mask < 2; is_mask++) {
    for (size_t i = 0; i < found.size(); i++) {
      const Token& token = found[i];
      if ((token.mask >= 0) != (is_mask == 1)) continue;
      m.of_row[token.row].push_back((int)m.tokens.size());
      int q = token.slot - (int)feed.cursors[token.row];
      m.places.push_back(token.row * width + q);
      m.tokens.push_back(token);
      int blocks = (token.num_places() + BLOCK - 1) / BLOCK;
      if (blocks > m.num_blocks) m.num_blocks = blocks;
    }
    if (!is_mask) m.num_real = (int)m.tokens.size();
  }
  for (int r = 0; r < rows; r++) {
    m.cursors.push_back((int)feed.cursors[r] + (feed.starts ? 0 : first));
    for (int head = 0; head < m.heads.num_kv; head++) m.tasks.push_back({r, -1, head});
    for (int block = 0; block < m.cursors[r] / BLOCK; block++) m.tasks.push_back({r, block, 0});
  }
}

// Parts of all tokens of a row for one block that every one of them sees whole.
static void attend_block(Model& m, Desk& desk, const Cache& cache, int layer, AttentionTask task) {
  const Heads& h = m.heads;
  int size = 2 * BLOCK * h.dim;
  grow(desk.wide, size), grow(desk.scores, BLOCK);
  const uint16_t* block = block_of(cache, layer, task.row, task.block);
  float *keys = desk.wide.data(), *values = keys + BLOCK * h.dim, *scores = desk.scores.data();
  for (int kv = 0; kv < h.num_kv; kv++, block += size) {
    widen(block, h.dim, keys);
    for (int token : m.of_row[task.row]) {
      const float* query = &m.projected[(size_t)token * h.all() + kv * h.group() * h.dim];
      for (int i = 0; i < h.group(); i++, query += h.dim) {
        score(query, keys, h.dim, scores);
        weigh(h.dim, scores, BLOCK, [&](int i) { return values + i * h.dim; },
              m.part(token, kv * h.group() + i, task.block));
      }
    }
  }
}

// Parts of all tokens of a row for the blocks from that of its cursor on, of one head.
static void attend_tail(Model& m, Desk& desk, const Cache& cache, int layer, AttentionTask task) {
  const Heads& h = m.heads;
  int first = m.cursors[task.row] / BLOCK, last = first, size = 2 * BLOCK * h.dim;
  for (int token : m.of_row[task.row])
    last = m.tokens[token].slot / BLOCK > last ? m.tokens[token].slot / BLOCK : last;
  int count = last - first + 1, origin = first * BLOCK;
  grow(desk.wide, (size_t)count * size), grow(desk.scores, 2 * (size_t)count * BLOCK);
  for (int b = 0; b < count; b++)
    widen(block_of(cache, layer, task.row, first + b) + task.head * size, h.dim,
          &desk.wide[(size_t)b * size]);
  float *scores = desk.scores.data(), *ordered = scores + count * BLOCK;
  auto values = [&](int slot) {
    int at = slot - origin;
    return &desk.wide[(size_t)(at / BLOCK) * size + (BLOCK + at % BLOCK) * h.dim];
  };
  for (int index : m.of_row[task.row]) {
    const Token& token = m.tokens[index];
    int places = token.num_places(), blocks = token.slot / BLOCK - first + 1;
    auto slot = [&](int place) {
      return place < token.root ? place : token.start + place - token.root;
    };
    for (int i = 0; i < h.group(); i++) {
      int head = task.head * h.group() + i;
      const float* query = &m.projected[(size_t)index * h.all() + head * h.dim];
      for (int b = 0; b < blocks; b++)
        score(query, &desk.wide[(size_t)b * size], h.dim, scores + b * BLOCK);
      float* told = scores;
      if (!token.is_plain()) {
        told = ordered;
        for (int place = origin; place < places; place++)
          ordered[place - origin] = scores[slot(place) - origin];
      }
      for (int from = origin; from < places; from += BLOCK) {
        int number = places - from < BLOCK ? places - from : BLOCK;
        weigh(h.dim, told + from - origin, number, [&](int i) { return values(slot(from + i)); },
              m.part(index, head, from / BLOCK));
      }
    }
  }
}

// The parts of one token and head, merged, into the rows of the output product.
static void gather(Model& m, int token, int head) {
  const Heads& h = m.heads;
  float* sum = m.part(token, head, 0);
  int blocks = (m.tokens[token].num_places() + BLOCK - 1) / BLOCK;
  for (int block = 1; block < blocks; block++) merge(sum, m.part(token, head, block), h.dim);
  F by = all(1.0f / sum[1]);
  for (int d = 0; d < h.dim; d += GROUP)
    m.mixed.put(token, (head * h.dim + d) / GROUP, mul(load(sum + LANES + d), by),
                mul(load(sum + LANES + d + LANES), by));
}

static void embed(Model& m, int token) {
  const Spec& s = m.spec;
  int mask = m.tokens[token].mask;
  float* x = &m.x[token * s.hidden];
  if (mask < 0 || s.num_mask_embeddings == 0) return s.embedding.row(m.tokens[token].id, x);
  int64_t row = mask < s.num_mask_embeddings ? mask : s.num_mask_embeddings - 1;
  memcpy(x, s.mask_embeddings + row * s.hidden, sizeof(float) * s.hidden);
}

static void run_layer(Model& m, Team& team, int thread, const Feed& feed, int index) {
  const Spec& s = m.spec;
  const Layer& layer = s.layers[index];
  const Heads& h = m.heads;
  Desk& desk = m.desks[thread];
  Cache cache{feed.cache, feed.layer_stride, feed.row_stride, feed.block_stride};
  int count = (int)m.tokens.size(), hidden = (int)s.hidden;
  auto normalise = [&](const float* weight) {
    team.each(count, 1, [&](int i) {
      grow(desk.wide, hidden);
      norm(&m.x[(size_t)i * hidden], weight, hidden, s.norm_floor, desk.wide.data(), m.normed, i);
    });
    m.clock.lap(thread, NORMS);
  };
  auto add_to_x = [&](int tile, const F* out, int) {
    for (int i = 0; i < count; i++) {
      float* x = &m.x[(size_t)i * hidden + tile * LANES];
      store(x, add(load(x), out[i]));
    }
  };
  normalise(layer.attention_norm);
  product(m, team, thread, layer.qkv, m.normed, 1, &layer.qkv_low,
          [&](int tile, const F* out, int) {
            F bias = layer.qkv_bias ? load(layer.qkv_bias + tile * LANES) : all(0.0f);
            for (int i = 0; i < count; i++)
              store(&m.projected[(size_t)i * h.all() + tile * LANES], add(out[i], bias));
          });
  m.clock.lap(thread, PRODUCTS);
  team.each(count, 1, [&](int i) {
    const Token& token = m.tokens[i];
    place_token(h, token, &m.projected[(size_t)i * h.all()],
                feed.turns + (int64_t)token.position * h.dim, cache, index);
  });
  team.each((int)m.tasks.size(), 1, [&](int i) {
    if (m.tasks[i].block < 0) {
      attend_tail(m, desk, cache, index, m.tasks[i]);
    } else {
      attend_block(m, desk, cache, index, m.tasks[i]);
    }
  });
  int heads = h.num_heads;
  team.each(count * heads, 4, [&](int i) { gather(m, i / heads, i % heads); });
  m.clock.lap(thread, ATTENTION);
  product(m, team, thread, layer.output, m.mixed, 1, &layer.output_low, add_to_x);
  m.clock.lap(thread, PRODUCTS);
  normalise(layer.feed_norm);
  product(m, team, thread, layer.gate_up, m.normed, 4, &layer.gate_up_low,
          [&](int task, const F* out, int stride) {
            for (int i = 0; i < count; i++)
              m.gated.put(i, task, mul(silu(out[i]), out[2 * stride + i]),
                          mul(silu(out[stride + i]), out[3 * stride + i]));
          });
  product(m, team, thread, layer.down, m.gated, 1, &layer.down_low, add_to_x);
  m.clock.lap(thread, PRODUCTS);
}

// The tokens `first` to `end` of each row; out: [rows, tokens, hidden].
static void run_pass(Model& m, const Feed& feed, int first, int end, float* out) {
  const Spec& s = m.spec;
  plan(m, feed, first, end);
  size_t count = m.tokens.size();
  grow(m.x, count * s.hidden), grow(m.projected, count * m.heads.all());
  grow(m.parts, count * m.heads.num_heads * m.num_blocks * part_size(m.heads.dim));
  grow(m.desks, (size_t)feed.num_threads);
  int rank = 0;
  for (const LowRank* low : {&s.layers->qkv_low, &s.layers->output_low, &s.layers->gate_up_low,
                             &s.layers->down_low})
    if (low->a.data && low->b.ins > rank) rank = (int)low->b.ins;
  grow(m.middle, count * rank);
  m.normed.shape((int)count, (int)s.hidden);
  m.mixed.shape((int)count, m.heads.num_heads * m.heads.dim);
  m.gated.shape((int)count, (int)s.feed);
  Pool::shared().run((int)feed.num_threads, [&](Team& team, int thread) {
    m.clock.start(thread);
    team.each((int)count, 1, [&](int i) { embed(m, i); });
    for (int layer = 0; layer < s.num_layers; layer++) run_layer(m, team, thread, feed, layer);
    team.each((int)count, 4, [&](int i) {
      memcpy(out + (int64_t)m.places[i] * s.hidden, &m.x[i * s.hidden], sizeof(float) * s.hidden);
    });
  });
}

constexpr int PASS = 64;               // tokens of a row at a time, of a prompt for instance
constexpr int64_t PARTS = 4 << 20;     // floats that the parts of a pass may take, if it has a choice

// A prompt is run in passes; tokens that branch are run at once.
static void run_forward(Model& m, const Feed& feed, float* out) {
  std::lock_guard<std::mutex> turn(m.turn);
  int width = (int)feed.num_tokens;
  for (int first = 0; first < width;) {
    int64_t blocks = 1;
    for (int r = 0; r < feed.num_rows; r++)
      blocks += (feed.cursors[r] + first + PASS) / BLOCK + 1;
    int64_t each = blocks * m.heads.num_heads * part_size(m.heads.dim);
    int64_t step = PARTS / each > PASS ? PASS : (PARTS / each < 8 ? 8 : PARTS / each);
    int end = feed.starts || first + step > width ? width : first + (int)step;
    run_pass(m, feed, first, end, out);
    first = end;
  }
}
