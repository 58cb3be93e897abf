// The functions that library.py calls.
#include "forward.h"
#include "predict.h"

#ifdef _WIN32
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED
#endif

extern "C" {

EXPORTED const char* mars_path() { return SIMD_NAME; }

EXPORTED int64_t mars_sizes(int64_t which) {
  const int64_t sizes[] = {sizeof(Matrix), sizeof(Layer), sizeof(Spec), sizeof(Feed),
                           sizeof(Sampler), sizeof(Penalty)};
  return sizes[which];
}

EXPORTED void* mars_new(const Spec* spec) {
  choose_prefetch(spec->head);
  return new Model(*spec);
}

EXPORTED void mars_free(void* model) { delete static_cast<Model*>(model); }

// Returns 1 if a token id is outside the vocabulary.
EXPORTED int64_t mars_hidden(void* model, const Feed* feed, float* out) {
  Model& m = *static_cast<Model*>(model);
  for (int64_t i = 0; i < feed->num_rows * feed->num_tokens; i++)
    if (feed->ids[i] < 0 || feed->ids[i] >= m.spec.vocab) return 1;
  run_forward(m, *feed, out);
  return 0;
}

EXPORTED void mars_predict(void* model, int64_t num_threads, const float* hidden, int64_t count,
               int64_t num_forbidden, const int64_t* forbidden, const Penalty* penalties,
               int64_t num_groups, const MaskGroup* groups, int32_t* ids, float* probabilities,
               float* entropies, bool* is_finite) {
  run_predict(*static_cast<Model*>(model), (int)num_threads, hidden, (int)count, (int)num_forbidden,
           forbidden, penalties, (int)num_groups, groups, ids, probabilities, entropies, is_finite);
}

EXPORTED void mars_logits(void* model, int64_t num_threads, const float* hidden, int64_t count, float* out) {
  run_logits(*static_cast<Model*>(model), (int)num_threads, hidden, (int)count, out);
}
}
