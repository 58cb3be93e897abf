// Computes predictions from hidden states: the output head, the best tokens, their probabilities.
//
// The vocabulary is processed in pieces whose logits are never stored. Of equal logits the lower id
// wins, and sums per piece are added in a fixed order, so the results do not depend on the number of
// threads or on other rows.
#pragma once

#include <algorithm>

#include "rank.h"

constexpr int PIECE = 32;  // number of tiles of the vocabulary in a piece

// Changes to a slot's logits before they are read; see acceptance.py.
struct Penalty {
  const int32_t* first_at;  // [vocabulary]; null if there is no repetition penalty
  int32_t known;
  float factor;
  int64_t num_added;
  const int32_t* ids;  // [num_added], ascending
  const float* amounts;
};

// first: the first token id of the piece.
static inline void penalise(const Penalty& p, float* logits, int count, int first) {
  if (p.first_at)
    for (int j = 0; j < count; j++)
      if (p.first_at[first + j] < p.known)
        logits[j] = logits[j] < 0 ? logits[j] * p.factor : logits[j] / p.factor;
  const int32_t* end = p.ids + p.num_added;
  for (const int32_t* id = std::lower_bound(p.ids, end, first); id < end && *id < first + count; id++)
    logits[*id - first] += p.amounts[id - p.ids];
}

struct Best {
  float logits[BEST];
  int32_t ids[BEST];  // -1 if there are fewer tokens

  Best() {
    for (int i = 0; i < BEST; i++) logits[i] = -INFINITY, ids[i] = -1;
  }
  void insert(float logit, int id) {
    int at = BEST;
    while (at > 0 && (logit > logits[at - 1] || (logit == logits[at - 1] && id < ids[at - 1]))) at--;
    if (at == BEST) return;
    for (int i = BEST - 1; i > at; i--) logits[i] = logits[i - 1], ids[i] = ids[i - 1];
    logits[at] = logit, ids[at] = id;
  }
  void insert_all(const float* values, int count, int first) {
    for (int i = 0; i < count; i += LANES) {
      unsigned better = above(load(values + i), all(logits[BEST - 1]));
      for (; better; better &= better - 1) {
        int at = i + __builtin_ctz(better);
        insert(values[at], first + at);
      }
    }
  }
  void join(const Best& other) {
    for (int i = 0; i < BEST && other.ids[i] >= 0; i++) insert(other.logits[i], other.ids[i]);
  }
};

// Of logits: their maximum, the sum of e^(logit - most), and for the entropy that of the products
// e^(logit - most) * (logit - most).
struct Sums {
  float most = -INFINITY, sum = 0, weighed = 0;

  static Sums of(const float* logits, int count, bool is_weighed) {
    Sums s;
    F most = all(-INFINITY), sum = all(0.0f), weighed = sum;
    for (int i = 0; i < count; i += LANES) most = larger(most, load(logits + i));
    s.most = largest(most);
    if (s.most == -INFINITY) return s;
    for (int i = 0; i < count; i += LANES) {
      F less = larger(sub(load(logits + i), all(s.most)), all(-87.0f));
      F e = exponential(less);
      sum = add(sum, e);
      if (is_weighed) weighed = fma(e, less, weighed);
    }
    s.sum = total(sum), s.weighed = total(weighed);
    return s;
  }
  void join(const Sums& other) {
    if (other.most == -INFINITY) return;
    if (most == -INFINITY) {
      *this = other;
      return;
    }
    float both = most > other.most ? most : other.most;
    float a = std::exp(most - both), b = std::exp(other.most - both);
    weighed = a * (weighed + (most - both) * sum) +
              b * (other.weighed + (other.most - both) * other.sum);
    sum = a * sum + b * other.sum;
    most = both;
  }
};

// Applies the final norm to `count` rows, then calls done(piece, logits [count, PIECE * 16]).
template <class Done>
static void head_product(Model& m, Team& team, int thread, const float* hidden, int count,
                         bool* is_finite, Done done) {
  const Spec& s = m.spec;
  ThreadScratch& scratch = m.scratches[thread];
  team.each(thread, count, [&](int i) {
    grow(scratch.wide, s.hidden);
    bool is_good = norm(hidden + (int64_t)i * s.hidden, s.final_norm, (int)s.hidden, s.norm_floor,
                        scratch.wide.data(), m.normed, i);
    if (is_finite) is_finite[i] = is_good;
  });
  int tiles = s.head.tiles();
  team.each(thread, (tiles + PIECE - 1) / PIECE, [&](int piece) {
    grow(scratch.wide, (size_t)count * PIECE * LANES);
    F* out = scratch.tiles(TILES_AT_ONCE, count);
    int end = tiles - piece * PIECE < PIECE ? tiles - piece * PIECE : PIECE;
    for (int t = 0; t < end; t += TILES_AT_ONCE) {
      int some = end - t < TILES_AT_ONCE ? end - t : TILES_AT_ONCE;
      tile_product(s.head, piece * PIECE + t, some, m.normed, 0, count, out, count);
      for (int j = 0; j < some; j++)
        for (int i = 0; i < count; i++)
          store(&scratch.wide[((size_t)i * PIECE + t + j) * LANES], out[j * count + i]);
    }
    done(piece, scratch.wide.data());
  });
}

// Writes for each row the BEST most probable tokens, the entropy over all allowed tokens in nats
// and whether the row is finite, then reranks the masks in groups. forbidden: ascending. penalties:
// one per row, or null. entropies: may be null.
static void run_predict(Model& m, int num_threads, const float* hidden, int count,
                     int num_forbidden, const int64_t* forbidden, const Penalty* penalties,
                     int num_groups, const MaskGroup* groups, int32_t* ids, float* probabilities,
                     float* entropies, bool* is_finite) {
  std::lock_guard<std::mutex> lock(m.in_use);
  const Spec& s = m.spec;
  int pieces = (s.head.tiles() + PIECE - 1) / PIECE, wide = PIECE * LANES;
  grow(m.scratches, num_threads);
  m.normed.shape(count, (int)s.hidden);
  std::vector<Best> best((size_t)num_threads * count);
  std::vector<Sums> sums((size_t)pieces * count);
  if (num_groups) grow(m.prepared, (size_t)count * s.sampler.state.tiles() * LANES);
  Pool::shared().run(num_threads, [&](Team& team, int thread) {
    Best* own = &best[(size_t)thread * count];
    head_product(m, team, thread, hidden, count, is_finite, [&](int piece, float* logits) {
      int first = piece * wide, number = s.vocab - first < wide ? (int)s.vocab - first : wide;
      int padded = (number + LANES - 1) / LANES * LANES;
      const int64_t* end = forbidden + num_forbidden;
      const int64_t* from = std::lower_bound(forbidden, end, first);
      for (int i = 0; i < count; i++) {
        float* row = logits + (size_t)i * wide;
        if (penalties) penalise(penalties[i], row, number, first);
        for (const int64_t* id = from; id < end && *id < first + number; id++)
          row[*id - first] = -INFINITY;
        for (int j = number; j < padded; j++) row[j] = -INFINITY;
        own[i].insert_all(row, padded, first);
        sums[(size_t)i * pieces + piece] = Sums::of(row, padded, entropies);
      }
    });
    team.each(thread, count, [&](int i) {
      for (int t = 1; t < num_threads; t++) best[i].join(best[(size_t)t * count + i]);
      Sums sum;
      for (int p = 0; p < pieces; p++) sum.join(sums[(size_t)i * pieces + p]);
      for (int j = 0; j < BEST; j++) {
        int id = ids[i * BEST + j] = best[i].ids[j];
        probabilities[i * BEST + j] =
            id < 0 ? 0.0f : std::exp(best[i].logits[j] - sum.most) / sum.sum;
      }
      if (entropies) entropies[i] = std::log(sum.sum) - sum.weighed / sum.sum;
    });
    if (num_groups) rank_groups(m, team, thread, count, num_groups, groups, ids, probabilities);
  });
}

static void run_logits(Model& m, int num_threads, const float* hidden, int count, float* out) {
  std::lock_guard<std::mutex> lock(m.in_use);
  const Spec& s = m.spec;
  int wide = PIECE * LANES;
  grow(m.scratches, num_threads);
  m.normed.shape(count, (int)s.hidden);
  Pool::shared().run(num_threads, [&](Team& team, int thread) {
    head_product(m, team, thread, hidden, count, nullptr, [&](int piece, const float* logits) {
      int first = piece * wide, number = s.vocab - first < wide ? (int)s.vocab - first : wide;
      for (int i = 0; i < count; i++)
        memcpy(out + i * s.vocab + first, logits + (size_t)i * wide, sizeof(float) * number);
    });
  });
}
