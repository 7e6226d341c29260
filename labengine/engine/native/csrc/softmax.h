/* Online softmax: scores become weights, some keys at a time. When a larger score appears, earlier sums are scaled
   down to the new maximum. Scores are exponents of two. */
#pragma once
#include "vec.h"

static const float LOG2_E = 1.44269504f;
static const float LOWEST_SCORE = -0x1.fffffep127f; /* the maximum before any score */

enum { MAX_ROWS = 16 }; /* at a time; a multiple of LANES */

typedef struct {
  int64_t begin, end;
} Range;

/* Set the scores that are not read, in complete vectors, to minus infinity. */
static inline void mask(float *scores, Range all, Range reads) {
  uint32_t num_reads = reads.end > reads.begin ? reads.end - reads.begin : 0;
  words nothing = (words)splat(-INFINITY);
  for (int64_t i = all.begin; i < all.end; i += LANES) {
    words is_read = (words)(lane_numbers() + (uint32_t)(i - reads.begin) < num_reads);
    store_f32(scores + i, (vec)(((words)load_f32(scores + i) & is_read) | (nothing & ~is_read)));
  }
}

/* Update each row's maximum score; compute the factors that rescale its earlier sums. Rows are `stride`
   apart. NaN is ignored here: its weight will be NaN. */
static inline void update_maximum(const float *scores, int64_t stride, int rows, Range keys, float *maximum,
                             float rescale[MAX_ROWS]) {
  float before[MAX_ROWS] = {0}, now[MAX_ROWS] = {0};
  memcpy(before, maximum, rows * sizeof *maximum);
  for (int row = 0; row < rows; row++, scores += stride) {
    vec largest = splat(maximum[row]);
    for (int64_t i = keys.begin; i < keys.end; i += LANES) largest = larger(load_f32(scores + i), largest);
    maximum[row] = now[row] = max_of(largest);
  }
  for (int i = 0; i < rows; i += LANES) store_f32(rescale + i, power_of_two(load_f32(before + i) - load_f32(now + i)));
}

/* Turn scores into weights, possibly in place. Returns their sum, spread over the lanes. */
static inline vec weigh_f32(const float *scores, float *weights, Range keys, float maximum) {
  vec sum = {};
  for (int64_t i = keys.begin; i < keys.end; i += LANES) {
    vec weight = power_of_two(load_f32(scores + i) - maximum);
    store_f32(weights + i, weight);
    sum += weight;
  }
  return sum;
}
#if defined(HAS_BF16_INSTRUCTION)
static inline vec weigh_bf16(const float *scores, bf16 *weights, Range keys, float maximum) {
#else
static inline vec weigh_bf16(const float *scores, float *weights, Range keys, float maximum) {
#endif
  vec sum = {};
  for (int64_t i = keys.begin; i < keys.end; i += LANES) {
    vec weight = power_of_two(load_f32(scores + i) - maximum);
#if defined(HAS_BF16_INSTRUCTION)
    store_bf16(weights + i, weight);
#else
    store_f32(weights + i, rounded_bf16(weight));
#endif
    sum += weight;
  }
  return sum;
}
