// The same products by AMX: up to 16 rows at a time cost little more than one.
//
// The matrix unit makes the whole-number sums of a group, which are exact; what follows is, number
// for number, what `tile_rows` does. So a row comes out the same to the last bit by either way.
#pragma once

#if defined(__AMX_INT8__) && defined(__AVX512VNNI__) && defined(__linux__)

#include <sys/syscall.h>
#include <unistd.h>

constexpr int AMX_ROWS = 16, AMX_FROM = 5;  // below so many rows memory is what is waited for
constexpr int AMX_FROM_4 = 7;               // 4 bits must be unpacked into memory first
constexpr int AMX_GROUPS = 4;               // for fewer, setting up the unit takes longer than it saves
constexpr int STRETCH = 6;                  // groups

// Asks the system for the registers, once in a process.
static inline bool has_amx() {
  static const bool is_there = syscall(SYS_arch_prctl, 0x1023, 18) == 0;
  return is_there;
}
static inline int rows_at_once() { return has_amx() ? AMX_ROWS : ROWS_AT_ONCE; }

// Rows of the activations that this thread's matrix registers are set up for; 0: not at all. Between
// forwards they are free for others.
static thread_local int amx_rows = 0;

static inline void amx_release() {
  if (amx_rows) _tile_release();
  amx_rows = 0;
}

// Registers 0 and 1: sums, N x 16; 2 and 3: activations, N x 32; 4 and 5: weights, 8 x 64 bytes.
static inline void amx_shape(int rows) {
  if (amx_rows == rows) return;
  struct alignas(64) {
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t bytes[16] = {64, 64, 32, 32, 64, 64};
    uint8_t rows[16] = {};
  } config;
  for (int i = 0; i < 4; i++) config.rows[i] = (uint8_t)rows;
  config.rows[4] = config.rows[5] = 8;
  // GCC 12 takes the load to read eight bytes, and may drop what was written to the others.
  asm volatile("" ::"r"(&config) : "memory");
  _tile_loadconfig(&config);
  amx_rows = rows;
}

template <int BITS, int N>
static void amx_tile_rows(const uint8_t* p, const Rows& x, int first, F* out, bool is_once) {
  constexpr int NUMBERS = BITS == 4 ? 256 : 512, BYTES = BITS == 4 ? BYTES_4 : BYTES_8;
  constexpr int STEP = PAIR * BYTES;
  const auto [values, scales, sums, counts, width, groups] = x.from(first);
  alignas(64) uint8_t weights[STRETCH][512];
  alignas(64) int32_t whole[STRETCH][AMX_ROWS * LANES];
  amx_shape(N);
  F acc[N];
  for (int i = 0; i < N; i++) acc[i] = all(0.0f);
  // Each step for some groups before the next step: what was just stored is slow to be read again.
  for (int from = 0; from < groups; from += STRETCH, p += STRETCH * STEP) {
    int count = groups - from < STRETCH ? groups - from : STRETCH;
    for (int s = 0; BITS == 4 && s < count; s++) {
      for (int i = 0; i < 4; i++) {
        Halves w = halves(p + s * STEP + 64 * i);
        _mm512_store_si512(weights[s] + 64 * i, w.low);
        _mm512_store_si512(weights[s] + 64 * (i + 4), w.high);
      }
    }
    for (int s = 0; s < count; s++) {
      const uint8_t* numbers = BITS == 4 ? weights[s] : p + s * STEP;
      const int8_t* rows = values + (from + s) * GROUP;
      fetch_ahead(p + s * STEP, BYTES, is_once);
      if (s % 2 == 0) {
        _tile_zero(0);
        _tile_loadd(2, rows, width);
        _tile_loadd(4, numbers, 64);
        _tile_dpbsud(0, 2, 4);
        _tile_stored(0, whole[s], 64);
      } else {
        _tile_zero(1);
        _tile_loadd(3, rows, width);
        _tile_loadd(5, numbers, 64);
        _tile_dpbsud(1, 3, 5);
        _tile_stored(1, whole[s], 64);
      }
    }
    for (int s = 0; s < count; s++) {
      int g = from + s;
      const uint8_t* scaling = p + s * STEP + NUMBERS;
      F scale = load_half((const uint16_t*)scaling);
      F minimum = BITS == 4 ? load_half((const uint16_t*)(scaling + 32)) : all(0.0f);
      for (int i = 0; i < N; i++) {
        I number = _mm512_load_si512(whole[s] + i * LANES);
        if (BITS == 8) number = plus(number, _mm512_set1_epi32(-128 * counts[i * groups + g]));
        acc[i] = fma(mul(floats(number), all(scales[i * groups + g])), scale, acc[i]);
        if (BITS == 4) acc[i] = fma(minimum, all(sums[i * groups + g]), acc[i]);
      }
    }
  }
  for (int i = 0; i < N; i++) out[i] = acc[i];
}

using AmxTileRows = void (*)(const uint8_t*, const Rows&, int, F*, bool);

template <int BITS, int... N>
static inline AmxTileRows amx_function(int count, std::integer_sequence<int, N...>) {
  static const AmxTileRows table[] = {amx_tile_rows<BITS, N + AMX_FROM>...};
  return table[count - AMX_FROM];
}

// Few rows are multiplied as well without.
static inline bool takes_amx(int64_t bits, int count, int groups) {
  return count >= (bits == 4 ? AMX_FROM_4 : AMX_FROM) && groups >= AMX_GROUPS && has_amx();
}

static inline void tile_rows_amx(int64_t bits, int count, const uint8_t* p, const Rows& x, int first,
                                 F* out, bool is_once) {
  constexpr std::make_integer_sequence<int, AMX_ROWS - AMX_FROM + 1> sizes;
  (bits == 4 ? amx_function<4>(count, sizes) : amx_function<8>(count, sizes))(
      p, x, first, out, is_once);
}

#else

static inline int rows_at_once() { return ROWS_AT_ONCE; }
static inline void amx_release() {}
static inline bool takes_amx(int64_t, int, int) { return false; }
static inline void tile_rows_amx(int64_t, int, const uint8_t*, const Rows&, int, F*, bool) {}

#endif
