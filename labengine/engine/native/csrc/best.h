/* Greedy sampling, while the logits are still near: the token of the highest logit of each row. */
#pragma once
#include "program.h"
#include "rows.h"
#include "vec.h"

typedef struct {
  int32_t token, is_finite; /* no NaN, no infinity but minus infinity: what was asked not to be sampled */
} Best;

static Best best_of(const float *logits, int64_t size) {
  vec highest = splat(-INFINITY);
  words is_nan = {};
  int64_t i = 0;
  for (; i + LANES <= size; i += LANES) {
    vec x = load_f32(logits + i);
    highest = larger(x, highest);
    is_nan |= (words)(x != x);
  }
  float best = -INFINITY;
  int has_nan = 0;
  for (int lane = 0; lane < LANES; lane++) {
    best = highest[lane] > best ? highest[lane] : best;
    has_nan |= is_nan[lane] != 0;
  }
  for (; i < size; i++) {
    best = logits[i] > best ? logits[i] : best;
    has_nan |= logits[i] != logits[i];
  }
  int64_t token = 0;
  while (token < size - 1 && logits[token] != best) token++;
  return (Best){(int32_t)token, !has_nan && isfinite(best)};
}

static void op_best(const Op *op, const Step *step, Team *team, int member) {
  (void)member;
  const float *logits = step->buffers[op->in];
  Best *out = step->buffers[op->out];
  for (long row = take_task(team); row < step->num_sampling; row = take_task(team))
    out[row] = best_of(logits + row * op->n, op->n);
}
