/* The last operation on a tile's sums, while they are in registers. */

#ifndef LABENGINE_LINEAR_FINISH
#define LABENGINE_LINEAR_FINISH
#include "program.h"
#include "vec.h"

/* Uses e to the -|y|, which is at most 1: a closed gate gives 0, however large x is. */
static inline vec times_sigmoid(vec x, vec y) {
  vec power = exponential(-larger(y, -y)), is_positive = (vec)((words)splat(1) & (words)(y > 0));
  return x * larger(power, is_positive) / (1 + power);
}
static inline vec silu(vec x) { return times_sigmoid(x, x); }
static inline vec gelu_tanh(vec x) { return times_sigmoid(x, 1.59576912f * (x + 0.044715f * x * x * x)); }

static inline int is_gated(Finish finish) { return finish == SILU_MUL || finish == GELU_MUL; }
#endif

/* Each half is rounded, and so is the activation, as by separate modules. */
static inline vec NAME(gated)(Finish finish, const vec *sums) {
  vec gate = NAME(rounded)(sums[0]), up = NAME(rounded)(sums[1]);
  return NAME(rounded)(finish == SILU_MUL ? silu(gate) : gelu_tanh(gate)) * up;
}

/* Destination of a tile's results: `width` of a row, `count` of its columns from the tile's first column on. */
typedef struct {
  void *out;
  const REAL *other;
  int64_t width, count;
} NAME(Place);

static inline __attribute__((always_inline)) void NAME(finish_vector)(const Finish finish, const NAME(Place) *place,
                                                                     int64_t at, int64_t count, vec x) {
  if (finish == ADD) x = NAME(load_part)(place->other + at, count) + NAME(rounded)(x);
  if (finish == TO_FLOAT)
    store_part_f32((float *)place->out + at, x, count);
  else
    NAME(store_part)((REAL *)place->out + at, x, count);
}

/* `finish` is a constant here. */
static inline __attribute__((always_inline)) void NAME(finish_rows)(const Finish finish, const NAME(Place) place,
                                                                   int64_t rows, vec (*sums)[2]) {
  for (int64_t row = 0; row < rows; row++) {
    int64_t at = row * place.width;
    vec first = is_gated(finish) ? NAME(gated)(finish, sums[row]) : sums[row][0];
    NAME(finish_vector)(finish, &place, at, place.count, first);
    if (is_gated(finish) || place.count <= LANES) continue;
    NAME(finish_vector)(finish, &place, at + LANES, place.count - LANES, sums[row][1]);
  }
}

static NAME(Place) NAME(place_of)(const Op *op, const Step *step, int64_t row, int64_t panel) {
  int64_t width = is_gated(op->finish) ? op->n / 2 : op->n;
  int64_t column = panel * (is_gated(op->finish) ? LANES : PANEL), at = row * width + column;
  size_t size = op->finish == TO_FLOAT ? sizeof(float) : sizeof(REAL);
  const REAL *other = op->finish == ADD ? (const REAL *)step->buffers[op->other] + at : NULL;
  return (NAME(Place)){(char *)step->buffers[op->out] + at * size, other, width, width - column};
}

static void NAME(finish_tile)(Finish finish, NAME(Place) place, int64_t rows, vec (*sums)[2]) {
  switch (finish) {
    case PLAIN: NAME(finish_rows)(PLAIN, place, rows, sums); break;
    case ADD: NAME(finish_rows)(ADD, place, rows, sums); break;
    case SILU_MUL: NAME(finish_rows)(SILU_MUL, place, rows, sums); break;
    case GELU_MUL: NAME(finish_rows)(GELU_MUL, place, rows, sums); break;
    case TO_FLOAT: NAME(finish_rows)(TO_FLOAT, place, rows, sums); break;
  }
}

/* Prefetch lines to be written while the tile is summed. */
static inline void NAME(fetch_place)(const Op *op, NAME(Place) place, int64_t rows) {
  int64_t size = op->finish == TO_FLOAT ? sizeof(float) : sizeof(REAL);
  for (int64_t row = 0; row < rows; row++) __builtin_prefetch((char *)place.out + row * place.width * size, 1);
}
