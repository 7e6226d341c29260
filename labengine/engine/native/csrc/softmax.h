/* Scores become weights, some keys at a time: what a row read before counts less and less as larger scores turn up, all
   that it has being scaled down to the largest so far (an online softmax). Scores are exponents of two. */
#pragma once
#include "lanes.h"

static const float LOG2_E = 1.44269504f;
static const float LEAST = -0x1.fffffep127f; /* the largest score before there is one */

enum { MAX_ROWS = 16 }; /* at a time; a multiple of LANES */

typedef struct {
  int64_t begin, end;
} Range;

/* Of all scores, whole vectors of them, those that are not read become as small as can be. */
static inline void mask(float *scores, Range all, Range reads) {
  uint32_t num_reads = reads.end > reads.begin ? reads.end - reads.begin : 0;
  words nothing = (words)splat(-INFINITY);
  for (int64_t i = all.begin; i < all.end; i += LANES) {
    words is_read = (words)(lane_numbers() + (uint32_t)(i - reads.begin) < num_reads);
    store_f32(scores + i, (vec)(((words)load_f32(scores + i) & is_read) | (nothing & ~is_read)));
  }
}

/* The largest score of each row so far; and what all that the row read before has to be scaled by. Rows lie `stride`
   apart. NaN is passed over here: its weight will be NaN. */
static inline void find_most(const float *scores, int64_t stride, int rows, Range keys, float *most,
                             float shrink[MAX_ROWS]) {
  float before[MAX_ROWS] = {0}, now[MAX_ROWS] = {0};
  memcpy(before, most, rows * sizeof *most);
  for (int row = 0; row < rows; row++, scores += stride) {
    vec largest = splat(most[row]);
    for (int64_t i = keys.begin; i < keys.end; i += LANES) largest = larger(load_f32(scores + i), largest);
    most[row] = now[row] = max_of(largest);
  }
  for (int i = 0; i < rows; i += LANES) store_f32(shrink + i, power_of_two(load_f32(before + i) - load_f32(now + i)));
}

/* From scores weights, which may take their place. Returns their sum, spread over the lanes. */
static inline vec weigh_f32(const float *scores, float *weights, Range keys, float most) {
  vec sum = {};
  for (int64_t i = keys.begin; i < keys.end; i += LANES) {
    vec weight = power_of_two(load_f32(scores + i) - most);
    store_f32(weights + i, weight);
    sum += weight;
  }
  return sum;
}
static inline vec weigh_bf16(const float *scores, bf16 *weights, Range keys, float most) {
  vec sum = {};
  for (int64_t i = keys.begin; i < keys.end; i += LANES) {
    vec weight = power_of_two(load_f32(scores + i) - most);
    store_bf16(weights + i, weight);
    sum += weight;
  }
  return sum;
}
