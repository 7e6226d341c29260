/* Vectors of floats in the machine's width, and the two dtypes of tensors: float and bf16. */
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#include <arm_neon.h>
#define HAS_BFDOT
#endif
#if (defined(__AVX512BF16__) && defined(__AVX512F__)) || defined(HAS_BFDOT)
#define HAS_BF16_INSTRUCTION /* products of pairs of bf16 */
#endif

#if defined(__clang__)
/* Fuse a product with the sum in the same expression, not with later ones after inlining and unrolling:
   there clang fuses some rows of a loop and others not, and a row's result would depend on its place. */
#pragma clang fp contract(on)
#endif

/* Unroll the next loop completely; it has at most n turns. clang ignores GCC's pragma, and would keep arrays that the
   loop indexes in memory instead of registers. */
#define PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define UNROLL(n) PRAGMA(clang loop unroll(full))
#else
#define UNROLL(n) PRAGMA(GCC unroll n)
#endif

#define INLINED static inline __attribute__((always_inline))

#if defined(__AVX512F__)
enum { LANES = 16 };
#define VECTOR_BYTES 64
#elif defined(__AVX__)
enum { LANES = 8 };
#define VECTOR_BYTES 32
#else
enum { LANES = 4 };
#define VECTOR_BYTES 16
#endif

typedef uint16_t bf16;
typedef float vec __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
typedef uint32_t words __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
typedef uint16_t halves __attribute__((vector_size(VECTOR_BYTES / 2), aligned(2), may_alias));

static inline vec splat(float x) { return x - (vec){}; }

static inline float wide_bf16(bf16 x) {
  uint32_t bits = (uint32_t)x << 16;
  float wide;
  memcpy(&wide, &bits, 4);
  return wide;
}
static inline float wide_f32(float x) { return x; }

/* Round to nearest, ties to even; NaN stays NaN. */
static inline bf16 narrow_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  if (x != x) return (bf16)(bits >> 16 | 0x40);
  return (bf16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static inline float narrow_f32(float x) { return x; }

static inline vec load_f32(const float *from) { return *(const vec *)from; }
static inline vec load_bf16(const bf16 *from) {
#if defined(__AVX512F__)
  return (vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)from)), 16);
#else
  return (vec)(__builtin_convertvector(*(const halves *)from, words) << 16);
#endif
}
static inline void store_f32(float *to, vec x) { *(vec *)to = x; }
#if defined(__AVX512BF16__) && defined(__AVX512F__)
static inline void store_bf16(bf16 *to, vec x) {
  __m256bh narrow = _mm512_cvtneps_pbh((__m512)x);
  memcpy(to, &narrow, sizeof narrow);
}
static inline vec rounded_bf16(vec x) {
  bf16 narrow[LANES];
  store_bf16(narrow, x);
  return load_bf16(narrow);
}
#else
/* To nearest, ties to even: the upper half of each lane's bits. NaN stays NaN: here it comes from a bf16 or from the
   processor, so that its lower half is 0 and carries nothing into the upper one. */
static inline words rounded_bits(vec x) {
  words bits = (words)x;
  return bits + 0x7fff + (bits >> 16 & 1);
}
static inline vec rounded_bf16(vec x) { return (vec)(rounded_bits(x) & 0xffff0000); }
static inline void store_bf16(bf16 *to, vec x) {
  words bits = rounded_bits(x) >> 16;
#if defined(__AVX2__) && !defined(__AVX512F__)
  __m256i narrow = _mm256_permute4x64_epi64(_mm256_packus_epi32((__m256i)bits, (__m256i)bits), 0x8);
  _mm_storeu_si128((void *)to, _mm256_castsi256_si128(narrow));
#else
  *(halves *)to = __builtin_convertvector(bits, halves);
#endif
}
#endif
static inline vec rounded_f32(vec x) { return x; }

/* The first `count` lanes (at most all), zeros in the others: for the ends of rows. */
static inline vec load_part_f32(const float *from, int64_t count) {
  if (count >= LANES) return load_f32(from);
  float part[LANES] = {0};
  memcpy(part, from, count * sizeof *from);
  return load_f32(part);
}
static inline vec load_part_bf16(const bf16 *from, int64_t count) {
  if (count >= LANES) return load_bf16(from);
  bf16 part[LANES] = {0};
  memcpy(part, from, count * sizeof *from);
  return load_bf16(part);
}
static inline void store_part_f32(float *to, vec x, int64_t count) {
  if (count >= LANES) return store_f32(to, x);
  float part[LANES];
  store_f32(part, x);
  memcpy(to, part, count * sizeof *to);
}
static inline void store_part_bf16(bf16 *to, vec x, int64_t count) {
  if (count >= LANES) return store_bf16(to, x);
  bf16 part[LANES];
  store_bf16(part, x);
  memcpy(to, part, count * sizeof *to);
}

static inline words lane_numbers(void) {
  words lanes;
  for (int i = 0; i < LANES; i++) lanes[i] = i;
  return lanes;
}

/* Lane i is lane which[i] of a and b, b's lanes counted after a's. `which` is a compile-time constant. */
INLINED vec shuffle(vec a, vec b, words which) {
#if defined(__clang__)
  vec picked; /* becomes one instruction, as GCC's builtin does, which clang lacks */
UNROLL(16)
  for (int i = 0; i < LANES; i++) picked[i] = which[i] < LANES ? a[which[i]] : b[which[i] - LANES];
  return picked;
#else
  return __builtin_shuffle(a, b, which);
#endif
}

static inline float sum_of(vec x) {
UNROLL(4)
  for (int size = LANES / 2; size > 0; size /= 2) x += shuffle(x, x, lane_numbers() ^ size);
  return x[0];
}

/* Per lane a > b ? a : b, so b where one is NaN. */
static inline vec larger(vec a, vec b) {
#if defined(__AVX512F__)
  return (vec)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX__)
  return (vec)_mm256_max_ps((__m256)a, (__m256)b);
#endif
  words is_larger = (words)(a > b);
  return (vec)(((words)a & is_larger) | ((words)b & ~is_larger));
}

/* e to the x, to two units in the last place; 0 below -87 and no more than e to the 88th. Not for NaN. */
static inline vec exponential(vec x) {
  vec bounded = -larger(-larger(x, splat(-87)), splat(-88));
  vec shifted = bounded * 1.442695041f + 0x1.8p23f; /* the low bits are now the nearest whole power of 2 */
  vec power = shifted - 0x1.8p23f;
  vec remainder = (bounded - power * 0.693359375f) + power * 2.12194440e-4f; /* log(2) in two steps, the first exact */
  vec sum = remainder * 1.9875691500e-4f + 1.3981999507e-3f;
  sum = sum * remainder + 8.3334519073e-3f;
  sum = sum * remainder + 4.1665795894e-2f;
  sum = sum * remainder + 1.6666665459e-1f;
  sum = sum * remainder + 5.0000001201e-1f;
  sum = sum * remainder * remainder + remainder + 1;
  words scaled = (words)sum + ((words)shifted << 23);
  return (vec)(scaled & (words)(x > -87));
}

/* 2 to the x for x up to 0, to one unit in the last place; 0 below -126. NaN stays NaN. */
static inline vec power_of_two(vec x) {
  vec shifted = x + 0x1.8p23f; /* the low bits are now the nearest whole number */
  vec remainder = x - (shifted - 0x1.8p23f);
  vec power = remainder * 1.5353362e-4f + 1.3398874e-3f;
  power = power * remainder + 9.6184369e-3f;
  power = power * remainder + 5.5503324e-2f;
  power = power * remainder + 2.4022648e-1f;
  power = power * remainder + 6.9314718e-1f;
  power = power * remainder + 1;
  words exponent = (words)shifted << 23;
#if defined(__AVX512F__)
  __mmask16 is_there = _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(-126), _CMP_NLT_UQ);
  return (vec)_mm512_maskz_add_epi32(is_there, (__m512i)power, (__m512i)exponent);
#else
  return (vec)(((words)power + exponent) & ~(words)(x < -126));
#endif
}

/* -- across the lanes of vectors: transposing, and summing each of many vectors at once -- */

/* As runs of `size` lanes: the runs with even numbers of both, a's in place and b's after each; and those
   with odd ones. `size` is a constant power of 2. */
INLINED vec even_runs(vec a, vec b, int size) {
  words lane = lane_numbers(), is_odd = (words)((lane & size) != 0);
  return shuffle(a, b, (lane & ~is_odd) | ((lane - size + LANES) & is_odd));
}
INLINED vec odd_runs(vec a, vec b, int size) {
  words lane = lane_numbers(), is_odd = (words)((lane & size) != 0);
  return shuffle(a, b, ((lane + size) & ~is_odd) | ((lane + LANES) & is_odd));
}

/* Transpose in place. */
INLINED void transpose(vec rows[LANES]) {
UNROLL(4)
  for (int size = LANES / 2; size > 0; size /= 2)
UNROLL(16)
    for (int i = 0; i < LANES; i++)
      if (!(i & size)) {
        vec even = even_runs(rows[i], rows[i + size], size), odd = odd_runs(rows[i], rows[i + size], size);
        rows[i] = even;
        rows[i + size] = odd;
      }
}

/* The sums of neighbouring runs of `size` lanes: a's in the even runs, b's in the odd ones. */
INLINED vec paired_runs(vec a, vec b, int size) {
  words lane = lane_numbers(), from_b = (words)((lane & size) != 0) & LANES;
  return shuffle(a, b, lane | from_b) + shuffle(a, b, (lane ^ size) | from_b);
}

/* Add up runs of `size` lanes, then of half of that, and so on, until one of `count` vectors is left. All are constants. */
INLINED vec fold(vec *vectors, int count, int size) {
UNROLL(4)
  for (; count > 1; count /= 2, size /= 2)
UNROLL(8)
    for (int i = 0; i < count / 2; i++) vectors[i] = paired_runs(vectors[i], vectors[i + count / 2], size);
  return vectors[0];
}

static inline float max_of(vec x) {
UNROLL(4)
  for (int size = LANES / 2; size > 0; size /= 2) x = larger(x, shuffle(x, x, lane_numbers() ^ size));
  return x[0];
}
