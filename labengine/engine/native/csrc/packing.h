/* Packing of a matrix's rows for multiplication: grains (see dot.h) of neighbouring columns side by side. */
#pragma once
#include "dot.h"
#include "lanes.h"

static inline vec load_bytes(const void *from, int64_t count) {
  vec part = {};
  if (count >= VECTOR_BYTES) return *(const vec *)from;
  memcpy(&part, from, count);
  return part;
}

/* Transposed: LANES rows become columns. The grains of each, of `bytes` in all, are `stride` vectors apart. */
static inline void pack_columns(const char *const rows[LANES], int64_t bytes, vec *to, int64_t stride) {
  for (int64_t at = 0; at < bytes; at += VECTOR_BYTES) {
    vec square[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) square[i] = load_bytes(rows[i] + at, bytes - at);
    transpose(square);
    for (int i = 0; i < LANES && at + 4 * i < bytes; i++, to += stride) *to = square[i];
  }
}

/* Not transposed: a grain takes its numbers from the row at one place, or from those at two. */
static inline vec weave_f32(const float *rows, const int64_t *places, int64_t count) {
  return load_part_f32(rows + places[0], count);
}
static inline vec weave_bf16(const bf16 *rows, const int64_t *places, int64_t count) {
  words first = (words)load_part_bf16(rows + places[0], count), second = (words)load_part_bf16(rows + places[1], count);
  return (vec)(first >> 16 | second);
}
