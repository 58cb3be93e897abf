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
  m.num_blocks = 0;
  for (int is_mask = 0; is_mask < 2; is_mask++) {
    for (size_t i = 0; i < found.size(); i++) {
      const Token& token = found[i];
      if ((token.mask >= 0) != (is_mask == 1)) continue;
      int q = token.slot - (int)feed.cursors[token.row];
      m.places.push_back(token.row * width + q);
      m.tokens.push_back(token);
      int blocks = (token.num_places() + BLOCK - 1) / BLOCK;
      if (blocks > m.num_blocks) m.num_blocks = blocks;
    }
    if (!is_mask) m.num_real = (int)m.tokens.size();
  }
  m.by_row.clear(), m.first_of.assign(1, 0);
  for (int r = 0; r < rows; r++) {
    for (size_t i = 0; i < m.tokens.size(); i++)
      if (m.tokens[i].row == r) m.by_row.push_back((int)i);
    m.first_of.push_back((int)m.by_row.size());
    m.cursors.push_back((int)feed.cursors[r] + (feed.starts ? 0 : first));
    for (int head = 0; head < m.heads.num_kv; head++) m.tasks.push_back({r, -1, head});
    for (int block = 0; block < m.cursors[r] / BLOCK; block++) m.tasks.push_back({r, block, 0});
  }
}

// Where the queries of a row's tokens, one token after the other, begin for one key-value head.
static float* queries_of(Model& m, Desk& desk, int row, int kv) {
  const Heads& h = m.heads;
  size_t all = m.by_row.size();
  return &desk.queries[(kv * all + m.first_of[row]) * h.group() * h.dim];
}

// Each thread turns all queries for itself: that is less than to wait for another.
static void turn_queries(Model& m, Desk& desk, const Feed& feed) {
  const Heads& h = m.heads;
  grow(desk.queries, m.tokens.size() * h.num_heads * h.dim);
  float scale = 1.0f / std::sqrt((float)h.dim), *to = desk.queries.data();
  for (int kv = 0; kv < h.num_kv; kv++)
    for (int token : m.by_row) {
      const float* turns = feed.turns + (int64_t)m.tokens[token].position * h.dim;
      const float* x = &m.projected[(size_t)token * h.all() + kv * h.group() * h.dim];
      for (int i = 0; i < h.group(); i++, to += h.dim) rotate(x + i * h.dim, turns, h.dim, scale, to);
    }
}

// Parts of all tokens of a row for one block that every one of them sees whole.
static void attend_block(Model& m, Desk& desk, const Cache& cache, int layer, AttentionTask task) {
  const Heads& h = m.heads;
  int first = m.first_of[task.row], count = (m.first_of[task.row + 1] - first) * h.group();
  grow(desk.wide, h.block()), grow(desk.scores, count * BLOCK), grow(desk.sums, count);
  float *keys = desk.wide.data(), *values = keys + BLOCK * h.dim, *scores = desk.scores.data();
  for (int kv = 0; kv < h.num_kv; kv++) {
    widen(block_of(cache, layer, task.row, task.block) + kv * h.block(), h.dim, keys);
    score(count, queries_of(m, desk, task.row, kv), keys, h.dim, scores, BLOCK);
    for (int i = 0; i < count; i++) {
      Parts parts = m.part(m.by_row[first + i / h.group()], kv * h.group() + i % h.group());
      soften(scores + i * BLOCK, BLOCK, parts.most + task.block, parts.sum + task.block);
      desk.sums[i] = parts.values + (size_t)task.block * h.dim;
    }
    weigh(count, scores, BLOCK, BLOCK, [&](int i) { return values + i * h.dim; }, h.dim,
          desk.sums.data());
  }
}

// Keeps the keys and values of a row's tokens, of one head; then their parts for the blocks from
// that of the cursor on.
static void attend_tail(Model& m, Desk& desk, const Feed& feed, const Cache& cache, int layer,
                        AttentionTask task) {
  const Heads& h = m.heads;
  int row = task.row, begin = m.first_of[row], end = m.first_of[row + 1];
  int first = m.cursors[row] / BLOCK, last = first, origin = first * BLOCK;
  grow(desk.wide, h.block());
  for (int i = begin; i < end; i++) {
    const Token& token = m.tokens[m.by_row[i]];
    last = token.slot / BLOCK > last ? token.slot / BLOCK : last;
    keep(h, token, task.head, &m.projected[(size_t)m.by_row[i] * h.all()],
         feed.turns + (int64_t)token.position * h.dim, desk.wide.data(), cache, layer);
  }
  int count = last - first + 1, width = count * BLOCK, group = h.group();
  grow(desk.wide, (size_t)count * h.block());
  int queries = (end - begin) * group;
  grow(desk.scores, (size_t)width * (queries + group)), grow(desk.sums, group);
  float* ordered = desk.scores.data() + (size_t)width * queries;
  for (int b = 0; b < count; b++) {
    float* keys = &desk.wide[(size_t)b * h.block()];
    widen(block_of(cache, layer, row, first + b) + task.head * h.block(), h.dim, keys);
    score(queries, queries_of(m, desk, row, task.head), keys, h.dim,
          desk.scores.data() + b * BLOCK, width);
  }
  for (int index = begin; index < end; index++) {
    const Token& token = m.tokens[m.by_row[index]];
    float* scores = desk.scores.data() + (size_t)(index - begin) * group * width;
    int places = token.num_places();
    auto slot = [&](int place) {  // from the origin
      return (place < token.root ? place : token.start + place - token.root) - origin;
    };
    float* told = scores;
    if (!token.is_plain()) {
      told = ordered;
      for (int i = 0; i < group; i++)
        for (int place = origin; place < places; place++)
          ordered[i * width + place - origin] = scores[i * width + slot(place)];
    }
    for (int from = origin; from < places; from += BLOCK) {
      int number = places - from < BLOCK ? places - from : BLOCK, block = from / BLOCK;
      for (int i = 0; i < group; i++) {
        Parts parts = m.part(m.by_row[index], task.head * group + i);
        soften(told + i * width + from - origin, number, parts.most + block, parts.sum + block);
        desk.sums[i] = parts.values + (size_t)block * h.dim;
      }
      auto values = [&](int i) {
        int at = slot(from + i);
        return &desk.wide[(size_t)(at / BLOCK) * h.block() + (BLOCK + at % BLOCK) * h.dim];
      };
      weigh(group, told + from - origin, width, number, values, h.dim, desk.sums.data());
    }
  }
}

// The parts of one token and head, merged, into the rows of the output product.
static void gather(Model& m, int token, int head) {
  const Heads& h = m.heads;
  Parts parts = m.part(token, head);
  int blocks = (m.tokens[token].num_places() + BLOCK - 1) / BLOCK;
  float most = -INFINITY;
  for (int i = 0; i < blocks; i++) most = parts.most[i] > most ? parts.most[i] : most;
  F sum = all(0.0f);
  for (int i = 0; i < blocks; i += LANES) {
    F weight = exponential(sub(load(parts.most + i), all(most)));
    weight = first_lanes(blocks - i, weight, all(0.0f));
    sum = add(sum, first_lanes(blocks - i, mul(weight, load(parts.sum + i)), all(0.0f)));
    store(parts.most + i, weight);
  }
  F by = all(1.0f / total(sum));
  for (int d = 0; d < h.dim; d += GROUP) {
    F low = all(0.0f), high = low;
    for (int i = 0; i < blocks; i++) {
      const float* values = parts.values + (size_t)i * h.dim + d;
      F weight = all(parts.most[i]);
      low = fma(weight, load(values), low), high = fma(weight, load(values + LANES), high);
    }
    m.mixed.put(token, (head * h.dim + d) / GROUP, mul(low, by), mul(high, by));
  }
}

static void embed(Model& m, int token) {
  const Spec& s = m.spec;
  int mask = m.tokens[token].mask;
  float* x = &m.x[token * s.hidden];
  if (mask < 0 || s.num_mask_embeddings == 0) return s.embedding.row(m.tokens[token].id, x);
  int64_t row = mask < s.num_mask_embeddings ? mask : s.num_mask_embeddings - 1;
  memcpy(x, s.mask_embeddings + row * s.hidden, sizeof(float) * s.hidden);
}

constexpr int FEW = 4;

static void run_layer(Model& m, Team& team, int thread, const Feed& feed, int index) {
  const Spec& s = m.spec;
  const Layer& layer = s.layers[index];
  const Heads& h = m.heads;
  Desk& desk = m.desks[thread];
  Cache cache{feed.cache, feed.layer_stride, feed.row_stride, feed.block_stride};
  int count = (int)m.tokens.size(), hidden = (int)s.hidden;
  // Of few rows each thread finds the norm for itself: that is less than to wait for another.
  Rows& normed = count <= FEW ? desk.normed : m.normed;
  auto normalise = [&](const float* weight) {
    grow(desk.wide, hidden);
    auto one = [&](int i) {
      norm(&m.x[(size_t)i * hidden], weight, hidden, s.norm_floor, desk.wide.data(), normed, i);
    };
    if (count <= FEW) {
      for (int i = 0; i < count; i++) one(i);
    } else {
      team.each(count, 1, one);
    }
    m.clock.lap(thread, NORMS);
  };
  auto add_to_x = [&](int tile, const F* out, int) {
    for (int i = 0; i < count; i++) {
      float* x = &m.x[(size_t)i * hidden + tile * LANES];
      store(x, add(load(x), out[i]));
    }
  };
  normalise(layer.attention_norm);
  product(m, team, thread, layer.qkv, normed, 1, &layer.qkv_low,
          [&](int tile, const F* out, int) {
            F bias = layer.qkv_bias ? load(layer.qkv_bias + tile * LANES) : all(0.0f);
            for (int i = 0; i < count; i++)
              store(&m.projected[(size_t)i * h.all() + tile * LANES], add(out[i], bias));
          });
  turn_queries(m, desk, feed);
  team.each((int)m.tasks.size(), 1, [&](int i) {
    if (m.tasks[i].block < 0) {
      attend_tail(m, desk, feed, cache, index, m.tasks[i]);
    } else {
      attend_block(m, desk, cache, index, m.tasks[i]);
    }
  });
  int heads = h.num_heads;
  team.each(count * heads, 4, [&](int i) { gather(m, i / heads, i % heads); });
  m.clock.lap(thread, ATTENTION);
  product(m, team, thread, layer.output, m.mixed, 1, &layer.output_low, add_to_x);
  normalise(layer.feed_norm);
  product(m, team, thread, layer.gate_up, normed, 4, &layer.gate_up_low,
          [&](int task, const F* out, int stride) {
            for (int i = 0; i < count; i++)
              m.gated.put(i, task, mul(silu(out[i]), out[2 * stride + i]),
                          mul(silu(out[stride + i]), out[3 * stride + i]));
          });
  product(m, team, thread, layer.down, m.gated, 1, &layer.down_low, add_to_x);
}

// The tokens `first` to `end` of each row; out: [rows, tokens, hidden].
static void run_pass(Model& m, const Feed& feed, int first, int end, float* out) {
  const Spec& s = m.spec;
  plan(m, feed, first, end);
  size_t count = m.tokens.size();
  grow(m.x, count * s.hidden), grow(m.projected, count * m.heads.all());
  grow(m.parts, count * m.heads.num_heads * Parts::size(m.num_blocks, m.heads.dim));
  grow(m.desks, (size_t)feed.num_threads);
  m.normed.shape((int)count, (int)s.hidden);
  for (Desk& desk : m.desks) desk.normed.shape(FEW, (int)s.hidden);
  m.mixed.shape((int)count, m.heads.num_heads * m.heads.dim);
  m.gated.shape((int)count, (int)s.feed);
  Pool::shared().run((int)feed.num_threads, [&](Team& team, int thread) {
    m.clock.start(thread);
    team.each((int)count, 1, [&](int i) {
      if (feed.first_layer == 0) return embed(m, i);
      const float* given = out + (int64_t)m.places[i] * s.hidden;
      memcpy(&m.x[i * s.hidden], given, sizeof(float) * s.hidden);
    });
    for (int layer = (int)feed.first_layer; layer < feed.end_layer; layer++)
      run_layer(m, team, thread, feed, layer);
    team.each((int)count, 4, [&](int i) {
      memcpy(out + (int64_t)m.places[i] * s.hidden, &m.x[i * s.hidden], sizeof(float) * s.hidden);
    });
    amx_release();
  });
}

constexpr int PASS = 64;               // tokens of a row at a time, of a prompt for instance
constexpr int64_t MOST_PARTS = 4 << 20;  // floats that the parts of a pass may take, if it has a choice

// A prompt is run in passes; tokens that branch are run at once.
static void run_forward(Model& m, const Feed& feed, float* out) {
  std::lock_guard<std::mutex> turn(m.turn);
  int width = (int)feed.num_tokens;
  for (int first = 0; first < width;) {
    int64_t blocks = 1;
    for (int r = 0; r < feed.num_rows; r++)
      blocks += (feed.cursors[r] + first + PASS) / BLOCK + 1;
    int64_t each = m.heads.num_heads * (int64_t)Parts::size((int)blocks, m.heads.dim);
    int64_t step = MOST_PARTS / each > PASS ? PASS : (MOST_PARTS / each < 8 ? 8 : MOST_PARTS / each);
    int end = feed.starts || first + step > width ? width : first + (int)step;
    run_pass(m, feed, first, end, out);
    first = end;
  }
}
