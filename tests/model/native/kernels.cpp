// Compares every kernel with plain loops, and checks that no bit of a forward depends on how many
// tokens or threads it has. Needs nothing but a C++ library, so it also runs under an emulator.
//
//   kernels          checks; prints logits of a small random model; exits with the number of failures
//   kernels N WIDTH  N forwards of WIDTH tokens of SmolLM2-135M's shape, each read, for counting
//                    instructions
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "forward.h"
#include "predict.h"

static int num_failures = 0;

static void check(bool is_good, const char* what, double found = 0, double wanted = 0) {
  if (is_good) return;
  if (num_failures++ < 20) printf("failed: %s, found %.9g, wanted %.9g\n", what, found, wanted);
}
static void check_near(const char* what, double found, double wanted, double tolerance) {
  check(std::fabs(found - wanted) <= tolerance, what, found, wanted);
}

// Uniform numbers between -1 and 1, the same on every machine.
struct Random {
  uint64_t state;

  float operator()() {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(state >> 32) / 2147483648.0f;
  }
  std::vector<float> many(size_t count, float scale = 1) {
    std::vector<float> found(count);
    for (float& x : found) x = scale * (*this)();
    return found;
  }
};

// Of a half: its value.
static double half_value(uint16_t h) {
  int exponent = (h >> 10) & 31, rest = h & 1023;
  double sign = h & 0x8000 ? -1 : 1;
  if (exponent == 31) return rest ? NAN : sign * INFINITY;
  return sign * (exponent ? std::ldexp(1024 + rest, exponent - 25) : std::ldexp(rest, -24));
}

// The nearest half of a float, ties to even.
static uint16_t nearest_half(float x) {
  uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  if (std::isnan(x)) return sign | 0x7e00;
  double size = std::fabs((double)x);
  if (size >= 65520) return sign | 0x7c00;
  int exponent = size < std::ldexp(1, -14) ? -14 : std::ilogb(size);
  int whole = (int)std::nearbyint(std::ldexp(size, 10 - exponent));
  return sign | (uint16_t)(whole + (exponent + 14) * 1024);
}

static void check_halves() {
  for (int first = 0; first < 65536; first += LANES) {
    uint16_t halves[LANES], back[LANES];
    float values[LANES];
    for (int i = 0; i < LANES; i++) halves[i] = (uint16_t)(first + i);
    F loaded = load_half(halves);
    store(values, loaded), store_half(back, loaded);
    for (int i = 0; i < LANES; i++) {
      double wanted = half_value(halves[i]);
      bool is_number = !std::isnan(wanted);
      check(is_number ? values[i] == wanted && std::signbit(values[i]) == std::signbit(wanted)
                      : std::isnan(values[i]), "load_half", values[i], wanted);
      check(is_number ? back[i] == halves[i] : std::isnan(half_value(back[i])), "store_half",
            back[i], halves[i]);
    }
  }
  Random random{1};
  for (int round = 0; round < 5000; round++) {
    float x[LANES];
    uint16_t found[LANES];
    for (int i = 0; i < LANES; i++) {
      x[i] = std::ldexp(random(), (int)(random() * 30) - 10);
      if (i % 4 == 0)  // between two halves
        x[i] = (float)(half_value((uint16_t)(round * 4 + i)) + half_value((uint16_t)(round * 4 + i + 1))) / 2;
    }
    store_half(found, load(x));
    for (int i = 0; i < LANES; i++) check(found[i] == nearest_half(x[i]), "rounded to half", x[i]);
  }
}

static void check_lanes() {
  Random random{2};
  for (int round = 0; round < 200; round++) {
    auto x = random.many(LANES, 100), y = random.many(LANES, 100);
    if (round % 2) y[round % LANES] = x[round % LANES];
    F a = load(x.data()), b = load(y.data());
    float sums[LANES], products[LANES], fused[LANES], most[LANES], least[LANES], some[LANES];
    store(sums, add(a, b)), store(products, mul(a, b)), store(fused, fma(a, b, a));
    store(most, larger(a, b)), store(least, smaller(a, b));
    store(some, first_lanes(round % 20 - 1, a, b));
    int8_t bytes[LANES];
    store_bytes(bytes, rounded(a));
    float again[LANES], sizes[LANES], quotients[LANES];
    store(again, floats(load_bytes(bytes))), store(sizes, magnitude(a)), store(quotients, div(a, b));
    double sum = 0, whole = 0, largest_one = -1e9;
    unsigned bits = 0;
    for (int i = 0; i < LANES; i++) {
      check(sums[i] == x[i] + y[i] && products[i] == x[i] * y[i], "add, mul");
      check(quotients[i] == x[i] / y[i] && sizes[i] == std::fabs(x[i]), "div, magnitude");
      check_near("fma", fused[i], (double)x[i] * y[i] + x[i], 1e-2);
      check(most[i] == std::max(x[i], y[i]) && least[i] == std::min(x[i], y[i]), "larger, smaller");
      check(some[i] == (i < round % 20 - 1 ? x[i] : y[i]), "first_lanes", some[i], x[i]);
      check(bytes[i] == std::nearbyint(x[i]) && again[i] == bytes[i], "bytes", bytes[i], x[i]);
      sum += x[i], whole += bytes[i], bits |= (unsigned)(x[i] > y[i]) << i;
      largest_one = std::max<double>(largest_one, x[i]);
    }
    check(above(a, b) == bits, "above", above(a, b), bits);
    check(largest(a) == largest_one, "largest", largest(a), largest_one);
    check(total(rounded(a)) == whole, "total of integers", total(rounded(a)), whole);
    check_near("total", total(a), sum, 1e-3);
  }
  for (float x = -87; x <= 88; x += 0.0037f) {
    float found[LANES];
    store(found, exponential(all(x)));
    double wanted = std::exp((double)x);
    check_near("exponential", found[7] / wanted, 1, 3e-7);
  }
}

// A random matrix in its packed form and in plain numbers, as decoded by plain loops.
struct Packed {
  Matrix matrix;
  std::vector<uint8_t> bytes;
  std::vector<double> plain;  // [outs, ins]

  static Packed of(const std::vector<float>& dense, int outs, int ins, int bits) {
    Packed p;
    p.matrix = {nullptr, bits, outs, ins};
    int groups = p.matrix.groups(), is_four = bits == 4, numbers = is_four ? 256 : 512;
    p.bytes.resize((size_t)(outs + 31) / 32 * groups * p.matrix.group_step());
    for (int o = 0; o < outs; o++)
      for (int g = 0; g < groups; g++) {
        const float* x = &dense[(size_t)o * ins + 32 * g];
        float low = *std::min_element(x, x + 32), high = *std::max_element(x, x + 32);
        float minimum = is_four ? low : 0;
        float scale = std::max(is_four ? (high - low) / 15 : std::max(high, -low) / 127, 1e-30f);
        uint8_t* at = &p.bytes[((o / 32 * groups + g) * 2 + o / 16 % 2) * p.matrix.group_bytes()];
        for (int j = 0; j < 32; j++) {
          int number = (int)std::nearbyint((x[j] - minimum) / scale);
          uint8_t& byte = at[64 * (j % (is_four ? 16 : 32) / 4) + 4 * (o % 16) + j % 4];
          if (is_four) byte |= std::min(number, 15) << (j < 16 ? 0 : 4);
          else byte = (uint8_t)(number + 128);
        }
        uint16_t halves[] = {nearest_half(scale), nearest_half(minimum)};
        memcpy(at + numbers + 2 * (o % 16), &halves[0], 2);
        if (is_four) memcpy(at + 288 + 2 * (o % 16), &halves[1], 2);
      }
    p.matrix.data = p.bytes.data();
    p.decode();
    return p;
  }
  uint16_t half_at(const uint8_t* at) const {
    uint16_t h;
    memcpy(&h, at, 2);
    return h;
  }
  void decode() {
    int groups = matrix.groups(), is_four = matrix.bits == 4, numbers = is_four ? 256 : 512;
    for (int o = 0; o < matrix.outs; o++)
      for (int k = 0; k < matrix.ins; k++) {
        size_t pair = o / 32, group = k / 32, j = k % 32, lane = o % 16;
        const uint8_t* p = &bytes[((pair * groups + group) * 2 + o / 16 % 2) * matrix.group_bytes()];
        int byte = p[64 * (j % (is_four ? 16 : 32) / 4) + 4 * lane + j % 4];
        double scale = half_value(half_at(p + numbers + 2 * lane));
        double minimum = is_four ? half_value(half_at(p + 288 + 2 * lane)) : 0;
        int number = !is_four ? byte - 128 : j < 16 ? byte & 15 : byte >> 4;
        plain.push_back(scale * number + minimum);
      }
  }
};

// A row as the library rounds it to 8 bits.
static std::vector<double> in_eight_bits(const std::vector<double>& x) {
  std::vector<double> found(x.size());
  for (size_t g = 0; g < x.size(); g += 32) {
    double most = 0;
    for (int k = 0; k < 32; k++) most = std::max(most, std::fabs(x[g + k]));
    for (int k = 0; k < 32 && most > 0; k++)
      found[g + k] = std::nearbyint(x[g + k] * 127 / most) * most / 127;
  }
  return found;
}
static std::vector<double> times(const Packed& w, const std::vector<double>& row) {
  std::vector<double> x = in_eight_bits(row), found(w.matrix.outs);
  for (int o = 0; o < w.matrix.outs; o++)
    for (int k = 0; k < w.matrix.ins; k++) found[o] += w.plain[(size_t)o * w.matrix.ins + k] * x[k];
  return found;
}

static void check_products() {
  Random random{4};
  const int outs = 96, ins = 160, most = 2 * ROWS_AT_ONCE + 3;
  for (int bits : {4, 8}) {
    Packed w = Packed::of(random.many(outs * ins), outs, ins, bits);
    auto rows = random.many(most * ins);
    for (int k = 0; k < ins; k++) rows[ins + k] = k % 2 ? 1.0f : -1.0f;  // the largest sums
    for (int k = 0; k < ins; k++) rows[2 * ins + k] = 1.0f;
    Rows x;
    x.shape(most, ins);
    for (int i = 0; i < most; i++) x.put(i, &rows[i * ins]);
    Buffer<float> alone(most * outs), out(most * outs);
    for (int i = 0; i < most; i++) {
      tile_product(w.matrix, 0, outs / LANES, x, i, i + 1, (F*)out.data(), 1);
      std::vector<double> row(&rows[i * ins], &rows[i * ins] + ins), wanted = times(w, row);
      for (int o = 0; o < outs; o++)
        check_near("product", out[o], wanted[o], 2e-5 * ins);
      memcpy(&alone[i * outs], out.data(), outs * sizeof(float));
    }
    for (int count = 1; count <= most; count++) {
      tile_product(w.matrix, 0, outs / LANES, x, 0, count, (F*)out.data(), count);
      for (int i = 0; i < count; i++)
        for (int t = 0; t < outs / LANES; t++)
          check(!memcmp(&out[(t * count + i) * LANES], &alone[i * outs + t * LANES], 64),
                "a product depends on the number of rows", count);
    }
  }
}

static void check_attention() {
  Random random{5};
  const int dim = 96, most = 7;
  auto queries = random.many(most * dim), keys = random.many(dim * BLOCK), values = random.many(BLOCK * dim);
  for (int count = 1; count <= most; count++) {
    Buffer<float> scores(most * BLOCK), sums(most * dim), alone(dim), one(BLOCK);
    score(count, queries.data(), keys.data(), dim, scores.data(), BLOCK);
    int places = 5 * count - 3;
    std::vector<float*> to;
    for (int q = 0; q < count; q++) {
      std::vector<double> wanted(BLOCK), weights(BLOCK);
      double most_wanted = -1e9, sum_wanted = 0;
      for (int i = 0; i < BLOCK; i++) {
        for (int d = 0; d < dim; d++) wanted[i] += queries[q * dim + d] * keys[d * BLOCK + i];
        check_near("score", scores[q * BLOCK + i], wanted[i], 1e-4);
      }
      score(1, &queries[q * dim], keys.data(), dim, one.data(), BLOCK);
      check(!memcmp(one.data(), &scores[q * BLOCK], sizeof(float) * BLOCK), "a score depends on others");
      float largest_score, sum;
      soften(&scores[q * BLOCK], places, &largest_score, &sum);
      for (int i = 0; i < places; i++) most_wanted = std::max(most_wanted, wanted[i]);
      for (int i = 0; i < places; i++) sum_wanted += weights[i] = std::exp(wanted[i] - most_wanted);
      for (int i = 0; i < BLOCK; i++) check_near("weight", scores[q * BLOCK + i], weights[i], 1e-4);
      check_near("maximum", largest_score, most_wanted, 1e-4);
      check_near("sum of weights", sum, sum_wanted, 1e-3);
      to.push_back(&sums[q * dim]);
    }
    auto row = [&](int i) { return values.data() + i * dim; };
    weigh(count, scores.data(), BLOCK, places, row, dim, to.data());
    for (int q = 0; q < count; q++) {
      float* of_one[] = {alone.data()};
      weigh(1, &scores[q * BLOCK], BLOCK, places, row, dim, of_one);
      check(!memcmp(alone.data(), to[q], sizeof(float) * dim), "a weighted sum depends on others");
      for (int d = 0; d < dim; d++) {
        double wanted = 0;
        for (int i = 0; i < places; i++) wanted += (double)scores[q * BLOCK + i] * values[i * dim + d];
        check_near("weighted sum", to[q][d], wanted, 1e-4);
      }
    }
  }
}

// Sizes of a model.
struct Shape {
  int vocab, hidden, layers, heads, kv, dim, feed;

  int qkv() const { return (heads + 2 * kv) * dim; }
};

// The memory of a cache and of rotations, and forwards that use them.
struct Session {
  static constexpr int CAPACITY = 96;
  Shape shape;
  Model& model;
  std::vector<uint16_t> cache;
  std::vector<float> rotations;

  Session(const Shape& shape, Model& model) : shape(shape), model(model) {
    cache.resize((size_t)shape.layers * CAPACITY * shape.kv * 2 * shape.dim + 4096);
    int half = shape.dim / 2;
    for (int p = 0; p < CAPACITY; p++)
      for (int d = 0; d < shape.dim; d++) {
        double angle = p * std::pow(10000.0, -(d % half) / (double)half);
        rotations.push_back((float)(d < half ? std::cos(angle) : std::sin(angle)));
      }
  }
  void feed(const int64_t* ids, int count, int64_t cursor, int num_threads, float* out) {
    Feed feed{};
    feed.num_rows = 1, feed.num_tokens = count, feed.ids = ids, feed.cursors = &cursor;
    feed.rotations = rotations.data(), feed.cache = cache.data(), feed.num_threads = num_threads;
    feed.block_stride = (int64_t)shape.kv * 2 * BLOCK * shape.dim;
    feed.row_stride = feed.layer_stride = feed.block_stride * (CAPACITY / BLOCK);
    run_forward(model, feed, out);
  }
};

// A model of random weights, and the same forward in plain loops.
struct Small {
  Shape shape{150, 96, 2, 6, 2, 32, 160};
  std::vector<Packed> qkv, output, gate_up, down;
  std::vector<std::vector<float>> norms, biases;
  Packed embedding;
  std::vector<Layer> layers;
  std::vector<float> final_norm;

  Small() {
    Random random{6};
    const Shape& s = shape;
    auto norm = [&] {
      auto weights = random.many(s.hidden, 0.5f);
      for (float& w : weights) w += 1;
      return weights;
    };
    for (int l = 0; l < s.layers; l++) {
      int bits = l ? 8 : 4;
      norms.push_back(norm()), norms.push_back(norm());
      biases.push_back(random.many(s.qkv()));
      auto matrix = [&](int outs, int ins) {
        return Packed::of(random.many((size_t)outs * ins, 0.3f), outs, ins, bits);
      };
      qkv.push_back(matrix(s.qkv(), s.hidden));
      output.push_back(matrix(s.hidden, s.heads * s.dim));
      gate_up.push_back(matrix(2 * s.feed, s.hidden));
      down.push_back(matrix(s.hidden, s.feed));
    }
    final_norm = norm();
    embedding = Packed::of(random.many((size_t)s.vocab * s.hidden, 0.3f), s.vocab, s.hidden, 8);
    for (int l = 0; l < s.layers; l++) {
      Layer layer{};
      layer.attention_norm = norms[2 * l].data(), layer.feed_norm = norms[2 * l + 1].data();
      layer.qkv = qkv[l].matrix, layer.qkv_bias = biases[l].data(), layer.output = output[l].matrix;
      layer.gate_up = gate_up[l].matrix, layer.down = down[l].matrix;
      layers.push_back(layer);
    }
  }
  Spec spec() const {
    Spec spec{};
    spec.vocab = shape.vocab, spec.hidden = shape.hidden, spec.num_layers = shape.layers;
    spec.num_heads = shape.heads, spec.num_kv = shape.kv, spec.dim = shape.dim;
    spec.feed = shape.feed, spec.norm_floor = 1e-5f, spec.layers = layers.data();
    spec.final_norm = final_norm.data(), spec.embedding = spec.head = embedding.matrix;
    spec.mask_id = -1;
    return spec;
  }
  std::vector<double> normed(const std::vector<double>& x, const std::vector<float>& weight) const {
    double squares = 0;
    for (double each : x) squares += each * each;
    std::vector<double> found(x.size());
    for (size_t i = 0; i < x.size(); i++)
      found[i] = x[i] / std::sqrt(squares / x.size() + 1e-5) * weight[i];
    return found;
  }
  void rotate(double* head, int position, const Session& session) const {
    const float* angles = &session.rotations[position * shape.dim];
    int half = shape.dim / 2;
    for (int i = 0; i < half; i++) {
      double a = head[i], b = head[i + half];
      head[i] = a * angles[i] - b * angles[i + half];
      head[i + half] = b * angles[i] + a * angles[i + half];
    }
  }
  // Logits of each token, [count][vocab].
  std::vector<std::vector<double>> forward(const std::vector<int64_t>& ids, const Session& session) const {
    const Shape& s = shape;
    std::vector<std::vector<double>> x;
    for (int64_t id : ids)
      x.emplace_back(&embedding.plain[id * s.hidden], &embedding.plain[id * s.hidden] + s.hidden);
    for (int l = 0; l < s.layers; l++) {
      std::vector<std::vector<double>> kept;
      for (size_t t = 0; t < x.size(); t++) {
        std::vector<double> all = times(qkv[l], normed(x[t], norms[2 * l]));
        for (int i = 0; i < s.qkv(); i++) all[i] += biases[l][i];
        for (int h = 0; h < s.heads + s.kv; h++) rotate(&all[h * s.dim], (int)t, session);
        for (int i = s.heads * s.dim; i < s.qkv(); i++) all[i] = half_value(nearest_half((float)all[i]));
        kept.push_back(all);
        std::vector<double> mixed = attend(kept), added = times(output[l], mixed);
        for (int i = 0; i < s.hidden; i++) x[t][i] += added[i];
        std::vector<double> both = times(gate_up[l], normed(x[t], norms[2 * l + 1])), gated(s.feed);
        for (int i = 0; i < s.feed; i++) {
          double gate = both[i / 32 * 64 + i % 32], up = both[i / 32 * 64 + 32 + i % 32];
          gated[i] = gate / (1 + std::exp(-gate)) * up;
        }
        added = times(down[l], gated);
        for (int i = 0; i < s.hidden; i++) x[t][i] += added[i];
      }
    }
    for (auto& row : x) row = times(embedding, normed(row, final_norm));
    return x;
  }
  // Attention of the last of some tokens to all of them.
  std::vector<double> attend(const std::vector<std::vector<double>>& kept) const {
    const Shape& s = shape;
    std::vector<double> mixed(s.heads * s.dim);
    for (int h = 0; h < s.heads; h++) {
      int key = (s.heads + h / (s.heads / s.kv)) * s.dim, value = key + s.kv * s.dim;
      std::vector<double> weights;
      double sum = 0;
      for (auto& other : kept) {
        double score = 0;
        for (int d = 0; d < s.dim; d++) score += kept.back()[h * s.dim + d] * other[key + d];
        weights.push_back(std::exp(score / std::sqrt((double)s.dim)));
        sum += weights.back();
      }
      for (size_t t = 0; t < kept.size(); t++)
        for (int d = 0; d < s.dim; d++) mixed[h * s.dim + d] += weights[t] / sum * kept[t][value + d];
    }
    return mixed;
  }
};

constexpr int NUM_TOKENS = 70;  // more than two blocks of the cache, and than one pass

// States of NUM_TOKENS tokens, fed in pieces of these sizes in turn.
static std::vector<float> states(Small& small, const std::vector<int64_t>& ids,
                                 const std::vector<int>& sizes, int num_threads) {
  Model model(small.spec());
  Session session(small.shape, model);
  std::vector<float> out((size_t)NUM_TOKENS * small.shape.hidden);
  for (int first = 0, turn = 0, count; first < NUM_TOKENS; first += count, turn++) {
    count = std::min(sizes[turn % sizes.size()], NUM_TOKENS - first);
    session.feed(&ids[first], count, first, num_threads, &out[(size_t)first * small.shape.hidden]);
  }
  return out;
}

static void check_forward() {
  Small small;
  Random random{7};
  std::vector<int64_t> ids;
  for (int i = 0; i < NUM_TOKENS; i++) ids.push_back((int64_t)((random() + 1) / 2 * (small.shape.vocab - 1)));
  std::vector<float> whole = states(small, ids, {NUM_TOKENS}, 1);
  for (int num_threads : {1, 2, 3})
    for (const std::vector<int>& sizes :
         std::vector<std::vector<int>>{{NUM_TOKENS}, {1}, {1, 2, 3, 4, 5}, {7, 1, 13}})
      check(states(small, ids, sizes, num_threads) == whole, "a forward depends on tokens or threads",
            sizes[0], num_threads);
  Model model(small.spec());
  std::vector<float> logits((size_t)NUM_TOKENS * small.shape.vocab), threaded(logits.size());
  run_logits(model, 1, whole.data(), NUM_TOKENS, logits.data());
  run_logits(model, 3, whole.data(), NUM_TOKENS, threaded.data());
  check(logits == threaded, "logits depend on threads");
  auto wanted = small.forward(ids, Session(small.shape, model));
  double error = 0, size = 0;
  for (int t = 0; t < NUM_TOKENS; t++)
    for (int v = 0; v < small.shape.vocab; v++) {
      double w = wanted[t][v], d = logits[(size_t)t * small.shape.vocab + v] - w;
      error += d * d, size += w * w;
    }
  printf("forward %.3g\n", std::sqrt(error / size));
  check(std::sqrt(error / size) < 0.02, "forward", std::sqrt(error / size));

  std::vector<int32_t> best(NUM_TOKENS * BEST);
  std::vector<float> probabilities(NUM_TOKENS * BEST), entropies(NUM_TOKENS);
  bool is_finite[NUM_TOKENS];
  const int64_t forbidden[] = {3, 77};
  run_predict(model, 2, whole.data(), NUM_TOKENS, 2, forbidden, nullptr, 0, nullptr, best.data(),
           probabilities.data(), entropies.data(), is_finite);
  for (int t = 0; t < NUM_TOKENS; t++) {
    float* row = &logits[(size_t)t * small.shape.vocab];
    row[3] = row[77] = -INFINITY;
    std::vector<int32_t> order;
    double most = *std::max_element(row, row + small.shape.vocab), sum = 0, entropy = 0;
    for (int v = 0; v < small.shape.vocab; v++) order.push_back(v), sum += std::exp(row[v] - most);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return row[a] > row[b]; });
    for (int v = 0; v < small.shape.vocab; v++) {
      double p = std::exp(row[v] - most) / sum;
      entropy -= p > 0 ? p * std::log(p) : 0;
    }
    check(is_finite[t], "a finite row");
    check_near("entropy", entropies[t], entropy, 1e-4);
    for (int i = 0; i < BEST; i++) {
      check(best[t * BEST + i] == order[i], "best token", best[t * BEST + i], order[i]);
      check_near("probability", probabilities[t * BEST + i], std::exp(row[order[i]] - most) / sum, 1e-5);
    }
  }
  for (int t = 0; t < NUM_TOKENS; t += 9)
    for (int v = 0; v < small.shape.vocab; v += 7) printf("logit %.9g\n", logits[(size_t)t * small.shape.vocab + v]);
}

// The sampler head's ranking of four candidates.
static void check_ranking() {
  Random random{8};
  const int inner = 48, vocab = 8;
  std::vector<int8_t> previous(vocab * inner), candidate(vocab * inner);
  for (auto& x : previous) x = (int8_t)(random() * 127);
  for (auto& x : candidate) x = (int8_t)(random() * 127);
  auto first_scales = random.many(vocab, 0.02f), second_scales = random.many(vocab, 0.02f);
  auto prepared = random.many(inner);
  Sampler s{{nullptr, 8, inner, 32}, previous.data(), candidate.data(), first_scales.data(), second_scales.data()};
  for (int before = 0; before < vocab; before++) {
    float layer[inner], probabilities[BEST] = {0.4f, 0.3f, 0.2f, 0.05f};
    int32_t ids[BEST] = {1, 3, 5, 7};
    inner_layer(s, prepared.data(), before, layer);
    double scores[BEST], sum = 0, wanted[8] = {};
    for (int i = 0; i < BEST; i++) {
      scores[i] = 0;
      for (int k = 0; k < inner; k++) {
        double x = previous[before * inner + k] * (double)first_scales[before] + prepared[k];
        check_near("inner layer", layer[k], x / (1 + std::exp(-x)), 1e-5);
        scores[i] += candidate[ids[i] * inner + k] * x / (1 + std::exp(-x));
      }
      sum += scores[i] = probabilities[i] * std::exp(scores[i] * second_scales[ids[i]]);
    }
    for (int i = 0; i < BEST; i++) wanted[ids[i]] = 0.95 * scores[i] / sum;
    rank_slot(s, layer, ids, probabilities);
    for (int i = 0; i < BEST; i++) {
      check_near("probability of a mask", probabilities[i], wanted[ids[i]], 1e-4);
      check(i == 0 || probabilities[i] <= probabilities[i - 1], "order of candidates");
    }
  }
}

// Runs forwards of SmolLM2-135M's shape, 4-bit layers and an 8-bit head.
static void run_forwards(int count, int width) {
  Shape s{49152, 576, 30, 9, 3, 64, 1536};
  std::vector<std::vector<uint8_t>> memory;
  auto matrix = [&](int outs, int ins, int bits) {
    Matrix m{nullptr, bits, outs, ins};
    memory.emplace_back((size_t)(outs / 32) * m.groups() * m.group_step(), 0x11);
    m.data = memory.back().data();
    return m;
  };
  std::vector<float> norm(s.hidden, 1);
  Layer layer{};
  layer.attention_norm = layer.feed_norm = norm.data();
  layer.qkv = matrix(s.qkv(), s.hidden, 4), layer.output = matrix(s.hidden, s.heads * s.dim, 4);
  layer.gate_up = matrix(2 * s.feed, s.hidden, 4), layer.down = matrix(s.hidden, s.feed, 4);
  std::vector<Layer> layers(s.layers, layer);
  Spec spec{};
  spec.vocab = s.vocab, spec.hidden = s.hidden, spec.num_layers = s.layers, spec.num_heads = s.heads;
  spec.num_kv = s.kv, spec.dim = s.dim, spec.feed = s.feed, spec.norm_floor = 1e-5f;
  spec.layers = layers.data(), spec.final_norm = norm.data(), spec.mask_id = -1;
  spec.embedding = spec.head = matrix(s.vocab, s.hidden, 8);
  Model model(spec);
  Session session(s, model);
  std::vector<float> out((size_t)width * s.hidden), probabilities(width * BEST);
  std::vector<int32_t> best(width * BEST);
  std::vector<int64_t> ids(width, 5);
  std::unique_ptr<bool[]> is_finite(new bool[width]);
  for (int i = 0; i < count; i++) {
    session.feed(ids.data(), width, Session::CAPACITY - width, 1, out.data());
    run_predict(model, 1, out.data(), width, 0, nullptr, nullptr, 0, nullptr, best.data(),
             probabilities.data(), nullptr, is_finite.get());
  }
}

int main(int argc, char** argv) {
  if (argc == 3) return run_forwards(atoi(argv[1]), atoi(argv[2])), 0;
  printf("path %s\n", SIMD_NAME);
  check_halves(), check_lanes(), check_products(), check_attention();
  check_forward(), check_ranking();
  return num_failures > 100 ? 100 : num_failures;
}
