/* Grains, and packing a matrix's rows for multiplication: grains of neighbouring columns side by side.
   A lane multiplies one grain at a time: a float, or two bf16 that are neighbours along the summed dimension. */
#pragma once
#include "vec.h"

enum { GRAIN_f32 = 1, GRAIN_bf16 = 2 };
typedef vec grains_f32;
typedef words grains_bf16;

/* Copy one grain to all lanes. */
static inline vec spread_f32(const float *grain) { return splat(*grain); }
static inline words spread_bf16(const bf16 *grain) {
  uint32_t both;
  memcpy(&both, grain, 4);
  return both - (words){};
}

/* Copy the rest of a grain at the end of the summed dimension: missing numbers count as zero and are not read. */
static inline vec spread_last_f32(const float *grain) { return splat(*grain); }
static inline words spread_last_bf16(const bf16 *grain) { return (uint32_t)*grain - (words){}; }

/* sum + a * b, per lane. */
static inline vec dot_f32(vec sum, vec a, vec b) { return sum + a * b; }
static inline vec dot_bf16(vec sum, words a, words b) {
#if defined(__AVX512BF16__) && defined(__AVX512F__)
  return (vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#elif defined(HAS_BFDOT)
  return (vec)vbfdotq_f32((float32x4_t)sum, vreinterpretq_bf16_u32((uint32x4_t)a), vreinterpretq_bf16_u32((uint32x4_t)b));
#else
  sum += (vec)(a << 16) * (vec)(b << 16);
  return sum + (vec)(a & 0xffff0000) * (vec)(b & 0xffff0000);
#endif
}

/* -- packing -- */

static inline vec load_bytes(const void *from, int64_t count) {
  vec part = {};
  if (count >= VECTOR_BYTES) return *(const vec *)from;
  memcpy(&part, from, count);
  return part;
}

/* Transposed: LANES rows become columns. The grains of each, of `bytes` in all, are `stride` vectors apart. */
static inline void pack_grains(const char *const rows[LANES], int64_t bytes, vec *to, int64_t stride) {
  for (int64_t at = 0; at < bytes; at += VECTOR_BYTES) {
    vec square[LANES];
UNROLL(16)
    for (int i = 0; i < LANES; i++) square[i] = load_bytes(rows[i] + at, bytes - at);
    transpose(square);
    for (int i = 0; i < LANES && at + 4 * i < bytes; i++, to += stride) *to = square[i];
  }
}
static inline void pack_columns_f32(const float *const rows[LANES], int64_t count, vec *to, int64_t stride) {
  pack_grains((const char *const *)rows, count * sizeof **rows, to, stride);
}
static inline void pack_row_f32(const float *row, float *to, int64_t count) { memcpy(to, row, count * sizeof *to); }

/* Not transposed: a grain takes its numbers from the row at one place, or from those at two. */
static inline vec weave_f32(const float *rows, const int64_t *places, int64_t count) {
  return load_part_f32(rows + places[0], count);
}

static inline void widen_row(const bf16 *row, float *to, int64_t count) {
  for (int64_t i = 0; i < count; i += LANES) store_part_f32(to + i, load_part_bf16(row + i, count - i), count - i);
}

INLINED void weave_all_f32(const int vectors, const float *rows, const int64_t *places, int64_t left, vec *woven) {
UNROLL(4)
  for (int i = 0; i < vectors; i++) woven[i] = weave_f32(rows + i * LANES, places, left);
}

#if defined(HAS_BF16_INSTRUCTION)
static inline void pack_columns_bf16(const bf16 *const rows[LANES], int64_t count, vec *to, int64_t stride) {
  pack_grains((const char *const *)rows, count * sizeof **rows, to, stride);
}
static inline void pack_row_bf16(const bf16 *row, bf16 *to, int64_t count) { memcpy(to, row, count * sizeof *to); }
static inline vec weave_bf16(const bf16 *rows, const int64_t *places, int64_t count) {
  words first = (words)load_part_bf16(rows + places[0], count), second = (words)load_part_bf16(rows + places[1], count);
  return (vec)(first >> 16 | second);
}
/* Two vectors of grains from complete rows. */
INLINED void weave_two(const bf16 *first, const bf16 *second, vec *woven) {
#if defined(__AVX512F__)
  __m512i a = _mm512_loadu_si512(first), b = _mm512_loadu_si512(second);
  words grains = lane_numbers() * 0x10001 + 0x200000;
  woven[0] = (vec)_mm512_permutex2var_epi16(a, (__m512i)grains, b);
  woven[1] = (vec)_mm512_permutex2var_epi16(a, (__m512i)(grains + 0x100010), b);
#else
  uint16x8_t a = vld1q_u16(first), b = vld1q_u16(second);
  woven[0] = (vec)vzip1q_u16(a, b);
  woven[1] = (vec)vzip2q_u16(a, b);
#endif
}
/* An even number of vectors is complete. */
INLINED void weave_all_bf16(const int vectors, const bf16 *rows, const int64_t *places, int64_t left, vec *woven) {
  if (vectors % 2) woven[0] = weave_bf16(rows, places, left);
UNROLL(4)
  for (int i = 0; i + 2 <= vectors; i += 2)
    weave_two(rows + places[0] + i * LANES, rows + places[1] + i * LANES, woven + i);
}
#else
/* Numbers become floats, which is exact: a grain is one of them. */
static inline void pack_columns_bf16(const bf16 *const rows[LANES], int64_t count, vec *to, int64_t stride) {
  for (int64_t at = 0; at < count; at += LANES) {
    vec square[LANES];
UNROLL(16)
    for (int i = 0; i < LANES; i++) square[i] = load_part_bf16(rows[i] + at, count - at);
    transpose(square);
    for (int i = 0; i < LANES && at + i < count; i++, to += stride) *to = square[i];
  }
}
static inline void pack_row_bf16(const bf16 *row, float *to, int64_t count) { widen_row(row, to, count); }
static inline vec weave_bf16(const bf16 *rows, const int64_t *places, int64_t count) {
  return load_part_bf16(rows + places[0], count);
}
INLINED void weave_all_bf16(const int vectors, const bf16 *rows, const int64_t *places, int64_t left, vec *woven) {
UNROLL(4)
  for (int i = 0; i < vectors; i++) woven[i] = weave_bf16(rows + i * LANES, places, left);
}
#endif
