// What hidden states predict: the head's product, and from it the best tokens and how sure they are.
//
// Logits are read where they are made: each piece of the vocabulary leaves four candidates and two
// sums, and pieces are merged in their order, so that results do not depend on threads or company.
#pragma once

#include "rank.h"

constexpr int PIECE = 32;  // tiles of the vocabulary read together

struct Found {
  float logits[BEST];
  int32_t ids[BEST];
  float most, sum, weighed;  // sum: of e^(logit - most); weighed: of the same times (logit - most)
};

// What a slot holds against tokens that stand in its row's text already; see acceptance.py.
struct Penalty {
  const int32_t* first_at;  // [vocabulary]; none where nothing is held against any
  int32_t known;
  float factor;
};

// One row's logits of a piece; ids count from `first`.
static inline void penalise(const Penalty& p, float* logits, int count, int first) {
  if (!p.first_at) return;
  for (int j = 0; j < count; j++)
    if (p.first_at[first + j] < p.known)
      logits[j] = logits[j] < 0 ? logits[j] * p.factor : logits[j] / p.factor;
}

static inline void insert(Found& f, float logit, int id) {
  int at = BEST;
  while (at > 0 && logit > f.logits[at - 1]) at--;
  if (at == BEST) return;
  for (int i = BEST - 1; i > at; i--) f.logits[i] = f.logits[i - 1], f.ids[i] = f.ids[i - 1];
  f.logits[at] = logit, f.ids[at] = id;
}

// One row's logits of a piece; ids count from `first`. Forbidden ones are minus infinity.
static inline Found look(const float* logits, int count, int first) {
  Found f;
  for (int i = 0; i < BEST; i++) f.logits[i] = -INFINITY, f.ids[i] = -1;
  F most = all(-INFINITY);
  for (int i = 0; i < count; i += LANES) {
    F some = load(logits + i);
    most = larger(most, some);
    if (!(largest(some) > f.logits[BEST - 1])) continue;
    for (int j = 0; j < LANES; j++) insert(f, logits[i + j], first + i + j);
  }
  f.most = largest(most);
  F sum = all(0.0f), weighed = sum;
  for (int i = 0; f.most > -INFINITY && i < count; i += LANES) {
    F less = larger(sub(load(logits + i), all(f.most)), all(-87.0f));
    F e = exponential(less);
    sum = add(sum, e);
    weighed = fma(e, less, weighed);
  }
  f.sum = total(sum), f.weighed = total(weighed);
  return f;
}

static inline void join(Found& f, const Found& other) {
  if (other.most == -INFINITY) return;
  if (f.most == -INFINITY) {
    f = other;
    return;
  }
  for (int i = 0; i < BEST; i++) insert(f, other.logits[i], other.ids[i]);
  float most = f.most > other.most ? f.most : other.most;
  float a = std::exp(f.most - most), b = std::exp(other.most - most);
  f.weighed = a * (f.weighed + (f.most - most) * f.sum) +
              b * (other.weighed + (other.most - most) * other.sum);
  f.sum = a * f.sum + b * other.sum;
  f.most = most;
}

// Final norm of `count` rows, and then done(piece, logits) for each piece: [count, PIECE * 16].
template <class Done>
static void head_product(Model& m, Team& team, int thread, const float* hidden, int count,
                         bool* is_finite, Done done) {
  const Spec& s = m.spec;
  Desk& desk = m.desks[thread];
  team.each(count, 1, [&](int i) {
    grow(desk.wide, s.hidden);
    bool is_good = norm(hidden + (int64_t)i * s.hidden, s.final_norm, (int)s.hidden, s.norm_floor,
                        desk.wide.data(), m.normed, i);
    if (is_finite) is_finite[i] = is_good;
  });
  int tiles = s.head.tiles();
  team.each((tiles + PIECE - 1) / PIECE, 1, [&](int piece) {
    grow(desk.wide, (size_t)count * PIECE * LANES);
    F* out = desk.tiles(1, count);
    for (int t = 0; t < PIECE && piece * PIECE + t < tiles; t++) {
      tile_product(s.head, piece * PIECE + t, m.normed, 0, count, out);
      for (int i = 0; i < count; i++)
        store(&desk.wide[((size_t)i * PIECE + t) * LANES], out[i]);
    }
    done(piece, desk.wide.data());
  });
  amx_release();
}

// For each of `count` rows the four best ids with their probabilities, the entropy over allowed
// tokens in nats, and whether it was a finite number; masks of groups are ranked anew.
// is_forbidden: [vocabulary]. penalties: none, or of each row.
static void run_read(Model& m, int num_threads, const float* hidden, int count,
                     const uint8_t* is_forbidden, const Penalty* penalties, int num_groups,
                     const MaskGroup* groups, int32_t* ids, float* probabilities, float* entropies,
                     bool* is_finite) {
  std::lock_guard<std::mutex> turn(m.turn);
  const Spec& s = m.spec;
  int pieces = (s.head.tiles() + PIECE - 1) / PIECE, wide = PIECE * LANES;
  grow(m.desks, num_threads);
  m.normed.shape(count, (int)s.hidden);
  std::vector<Found> found((size_t)pieces * count);
  if (num_groups) grow(m.prepared, (size_t)count * s.sampler.state.tiles() * LANES);
  Pool::shared().run(num_threads, [&](Team& team, int thread) {
    m.clock.start(thread);
    head_product(m, team, thread, hidden, count, is_finite, [&](int piece, float* logits) {
      int first = piece * wide, number = s.vocab - first < wide ? (int)s.vocab - first : wide;
      for (int i = 0; i < count; i++) {
        float* row = logits + (size_t)i * wide;
        if (penalties) penalise(penalties[i], row, number, first);
        for (int j = 0; j < number; j++)
          if (is_forbidden[first + j]) row[j] = -INFINITY;
        for (int j = number; j % LANES; j++) row[j] = -INFINITY;
        found[(size_t)i * pieces + piece] = look(row, (number + LANES - 1) / LANES * LANES, first);
      }
    });
    team.each(count, 1, [&](int i) {
      Found f = found[(size_t)i * pieces];
      for (int p = 1; p < pieces; p++) join(f, found[(size_t)i * pieces + p]);
      for (int j = 0; j < BEST; j++) {
        ids[i * BEST + j] = f.ids[j];
        probabilities[i * BEST + j] = f.ids[j] < 0 ? 0.0f : std::exp(f.logits[j] - f.most) / f.sum;
      }
      entropies[i] = std::log(f.sum) - f.weighed / f.sum;
    });
    if (num_groups) rank_groups(m, team, thread, count, num_groups, groups, ids, probabilities);
    m.clock.lap(thread, HEAD);
  });
}

// All logits: [count, vocabulary].
static void run_logits(Model& m, int num_threads, const float* hidden, int count, float* out) {
  std::lock_guard<std::mutex> turn(m.turn);
  const Spec& s = m.spec;
  int wide = PIECE * LANES;
  grow(m.desks, num_threads);
  m.normed.shape(count, (int)s.hidden);
  Pool::shared().run(num_threads, [&](Team& team, int thread) {
    head_product(m, team, thread, hidden, count, nullptr, [&](int piece, const float* logits) {
      int first = piece * wide, number = s.vocab - first < wide ? (int)s.vocab - first : wide;
      for (int i = 0; i < count; i++)
        memcpy(out + i * s.vocab + first, logits + (size_t)i * wide, sizeof(float) * number);
    });
  });
}
