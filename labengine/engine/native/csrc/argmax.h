/* Greedy sampling while the logits are in the cache: the token of each row's highest logit. */
#pragma once
#include "program.h"
#include "team.h"
#include "vec.h"

typedef struct {
  int32_t token, is_finite; /* finite: no NaN, no infinity except minus infinity, which excludes a token */
} Argmax;

static Argmax argmax_of(const float *logits, int64_t size) {
  vec highest = splat(-INFINITY);
  words is_nan = {};
  int64_t i = 0;
  for (; i + LANES <= size; i += LANES) {
    vec x = load_f32(logits + i);
    highest = larger(x, highest);
    is_nan |= (words)(x != x);
  }
  float highest_logit = -INFINITY;
  int has_nan = 0;
  for (int lane = 0; lane < LANES; lane++) {
    highest_logit = highest[lane] > highest_logit ? highest[lane] : highest_logit;
    has_nan |= is_nan[lane] != 0;
  }
  for (; i < size; i++) {
    highest_logit = logits[i] > highest_logit ? logits[i] : highest_logit;
    has_nan |= logits[i] != logits[i];
  }
  int64_t token = 0;
  while (token < size - 1 && logits[token] != highest_logit) token++;
  return (Argmax){(int32_t)token, !has_nan && isfinite(highest_logit)};
}

static void op_argmax(const Op *op, const Step *step, Team *team, int member) {
  (void)member;
  const float *logits = step->buffers[op->in];
  int32_t *tokens = step->buffers[op->out], *are_finite = tokens + step->num_sampling;
  for (long row = take_task(team); row < step->num_sampling; row = take_task(team)) {
    Argmax found = argmax_of(logits + row * op->n, op->n);
    tokens[row] = found.token, are_finite[row] = found.is_finite;
  }
}
