/* The product of a single row. Only reading counts: several panels are read side by side, because memory answers more
   streams faster, and because the sums of one panel would wait for each other where bf16 is widened in flight. Each
   column's sum has the order that it has in a tile. */
#include "linear_cut.h"

#ifndef LABENGINE_LINEAR_ROW
#define LABENGINE_LINEAR_ROW
enum { PANELS_AT_ONCE = 4 };
#endif

/* Add the products of the row's next numbers and of a panel's: one, or a grain of two bf16. */
#if defined(IS_BF16)
enum { ROW_STEP_bf16 = 2 };
INLINED void add_step_bf16(vec sums[2], const float *in, const bf16 *grains) {
  words left = *(const words *)grains, right = *(const words *)(grains + 2 * LANES);
  vec first = splat(in[0]), second = splat(in[1]);
  sums[0] += first * first_of(left);
  sums[1] += first * first_of(right);
  sums[0] += second * second_of(left);
  sums[1] += second * second_of(right);
}
static inline const float *single_row_bf16(Source_bf16 *source, const Cut *cut, int64_t k) {
  widen_rows(source, nth_tile(cut, 0), k);
  return source->rows;
}
#else
enum { ROW_STEP_f32 = 1 };
INLINED void add_step_f32(vec sums[2], const float *in, const float *grains) {
  vec first = splat(in[0]);
  sums[0] += first * load_f32(grains);
  sums[1] += first * load_f32(grains + LANES);
}
static inline const float *single_row_f32(Source_f32 *source, const Cut *cut, int64_t k) {
  (void)cut, (void)k;
  return source->rows;
}
#endif

/* `panels` is a constant. */
INLINED void NAME(multiply_row)(const int panels, const float *in, const REAL *panel, int64_t k, vec (*out)[2]) {
  vec sums[PANELS_AT_ONCE][2];
UNROLL(4)
  for (int i = 0; i < panels; i++) sums[i][0] = sums[i][1] = (vec){};
  for (int64_t at = 0; at < k; at += NAME(ROW_STEP))
UNROLL(4)
    for (int i = 0; i < panels; i++) {
      const REAL *grains = panel + i * NAME(panel_size)(k) + at * PANEL;
      fetch_once(grains);
      NAME(add_step)(sums[i], in + at, grains);
    }
UNROLL(4)
  for (int i = 0; i < panels; i++) out[i][0] = sums[i][0], out[i][1] = sums[i][1];
}

static void NAME(multiply_panels)(int64_t panels, const float *in, const REAL *panel, int64_t k, vec (*out)[2]) {
  if (panels == PANELS_AT_ONCE) return NAME(multiply_row)(PANELS_AT_ONCE, in, panel, k, out);
  for (int64_t i = 0; i < panels; i++) NAME(multiply_row)(1, in, panel + i * NAME(panel_size)(k), k, out + i);
}

/* The tiles of one row are the panels. */
static void NAME(product_of_row)(const Op *op, const Step *step, NAME(Source) *source, const Cut *cut, Team *team) {
  const float *in = NAME(single_row)(source, cut, op->k);
  for (Run run = take_run(team, cut); run.tile < cut->tiles; run = take_run(team, cut))
    for (int64_t count; run.tile < run.end; run.tile += count) {
      vec sums[PANELS_AT_ONCE][2];
      count = smaller_of(run.end - run.tile, PANELS_AT_ONCE);
      const REAL *panels = (const REAL *)op->weight + run.tile * NAME(panel_size)(op->k);
      NAME(multiply_panels)(count, in, panels, op->k, sums);
      for (int64_t i = 0; i < count; i++)
        NAME(finish_tile)(op->finish, NAME(place_of)(op, step, 0, run.tile + i), 1, sums + i);
    }
}
