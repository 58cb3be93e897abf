// Reranks the candidates of masks from left to right, each given the token chosen before it. See
// reranker.py.
#pragma once

#include "model.h"

constexpr int BEST = 4;  // number of candidates of a slot

// `before` is the slot that predicts the token before the first mask.
struct MaskGroup {
  int32_t before, first, count;
};

// Computes the contribution of each normed state to the inner layer: m.prepared, [rows, inner].
static void prepare(Model& m, Team& team, int thread, int num_rows) {
  const Matrix& state = m.spec.sampler.state;
  ThreadScratch& scratch = m.scratches[thread];
  team.each(thread, state.tiles(), [&](int t) {
    F* out = scratch.tiles(1, num_rows);
    tile_product(state, t, 1, m.normed, 0, num_rows, out, num_rows);
    for (int i = 0; i < num_rows; i++) store(&m.prepared[i * state.outs + t * LANES], out[i]);
  });
}

// Computes the inner layer: silu of the contribution of a slot plus that of the token `before`.
static void inner_layer(const Sampler& s, const float* prepared, int before, float* inner) {
  const int8_t* row = s.previous + before * s.state.outs;
  F scale = all(s.previous_scales[before]);
  for (int i = 0; i < s.state.outs; i += LANES)
    store(inner + i, silu(fma(floats(load_bytes(row + i)), scale, load(prepared + i))));
}

static float score(const Sampler& s, const float* inner, int token) {
  const int8_t* row = s.candidate + token * s.state.outs;
  F sum = all(0.0f);
  for (int i = 0; i < s.state.outs; i += LANES)
    sum = fma(floats(load_bytes(row + i)), load(inner + i), sum);
  return s.candidate_scales[token] * total(sum);
}

// Redistributes the total probability of a slot's candidates by their scores and sorts them.
static void rank_slot(const Sampler& s, const float* inner, int32_t* ids, float* probabilities) {
  float scores[BEST], most = -INFINITY, sum = 0, shared = 0;
  int count = 0;
  for (; count < BEST && ids[count] >= 0 && probabilities[count] > 0; count++) {
    scores[count] = std::log(probabilities[count]) + score(s, inner, ids[count]);
    if (scores[count] > most) most = scores[count];
    shared += probabilities[count];
  }
  for (int i = 0; i < count; i++) sum += scores[i] = std::exp(scores[i] - most);
  for (int i = 0; i < count; i++) {
    float probability = scores[i] * shared / sum;
    int32_t id = ids[i];
    int at = i;
    for (; at > 0 && probability > probabilities[at - 1]; at--)
      ids[at] = ids[at - 1], probabilities[at] = probabilities[at - 1];
    ids[at] = id, probabilities[at] = probability < 1 ? probability : 1;
  }
}

static void rank_groups(Model& m, Team& team, int thread, int num_rows, int num_groups,
                        const MaskGroup* groups, int32_t* ids, float* probabilities) {
  const Sampler& s = m.spec.sampler;
  prepare(m, team, thread, num_rows);
  team.each(thread, num_groups, [&](int g) {
    Buffer<float>& inner = m.scratches[thread].wide;
    grow(inner, s.state.outs);
    int before = groups[g].before;
    for (int slot = groups[g].first; slot < groups[g].first + groups[g].count; slot++) {
      if (ids[before * BEST] < 0) break;  // all tokens of that slot are forbidden
      inner_layer(s, &m.prepared[slot * s.state.outs], ids[before * BEST], inner.data());
      rank_slot(s, inner.data(), ids + slot * BEST, probabilities + slot * BEST);
      before = slot;
    }
  });
}
