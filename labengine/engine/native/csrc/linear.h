/* out = in x weight transposed, for any number of rows. A tile's sums stay in registers over all of k, so that a row's
   result is the same, bit by bit, in any batch. A weight is read in order, and once per block of rows. */
#include "packing.h"
#include "linear_cut.h"
#include "linear_finish.h"
#include "linear_pack.h"

/* -- a tile: some rows by one panel -- */

/* Add the products of all rows' next grains and the panel's. */
static inline __attribute__((always_inline)) void NAME(add_products)(const int rows, vec (*sums)[2], const REAL *in,
                                                                    int64_t stride, const REAL *weights, int is_last) {
  NAME(grains) left = *(const NAME(grains) *)weights;
  NAME(grains) right = *(const NAME(grains) *)(weights + LANES * NAME(GRAIN));
UNROLL(8)
  for (int row = 0; row < rows; row++) {
    NAME(grains) grain = is_last ? NAME(spread_last)(in + row * stride) : NAME(spread)(in + row * stride);
    sums[row][0] = NAME(dot)(sums[row][0], grain, left);
    sums[row][1] = NAME(dot)(sums[row][1], grain, right);
  }
}

/* `rows` is a constant here, so that the sums stay in registers over all of k. `ahead` is prefetched meanwhile, or the
   panel itself, if it is read once. */
static inline __attribute__((always_inline)) void NAME(multiply)(const int rows, const REAL *in, const REAL *panel,
                                                                const REAL *ahead, int reads_once, int64_t k,
                                                                vec (*out)[2]) {
  vec sums[MAX_TILE][2];
UNROLL(8)
  for (int row = 0; row < rows; row++) sums[row][0] = sums[row][1] = (vec){};
  int64_t i = 0;
#pragma GCC unroll 2
  for (; i + NAME(GRAIN) <= k; i += NAME(GRAIN)) {
    if (ahead) fetch_lines(ahead + i * PANEL);
    if (reads_once) fetch_once(panel + i * PANEL);
    NAME(add_products)(rows, sums, in + i, k, panel + i * PANEL, 0);
  }
  if (i < k) NAME(add_products)(rows, sums, in + i, k, panel + i * PANEL, 1);
UNROLL(8)
  for (int row = 0; row < rows; row++) out[row][0] = sums[row][0], out[row][1] = sums[row][1];
}

typedef void (*NAME(Multiply))(const REAL *in, const REAL *panel, const REAL *ahead, int reads_once, int64_t k,
                               vec (*out)[2]);
#define MULTIPLY(rows)                                                                                                 \
  static void NAME(multiply_##rows)(const REAL *in, const REAL *panel, const REAL *ahead, int reads_once, int64_t k,   \
                                    vec (*out)[2]) {                                                                   \
    NAME(multiply)(rows, in, panel, ahead, reads_once, k, out);                                                        \
  }
EACH_TILE(MULTIPLY)
#undef MULTIPLY
#define NAMED(rows) [rows] = NAME(multiply_##rows),
static const NAME(Multiply) NAME(multiply_rows)[MAX_TILE + 1] = {EACH_TILE(NAMED)};
#undef NAMED

#if defined(IS_BF16) && !defined(HAS_BF16_PRODUCTS)
#include "linear_wide.h"
#else
/* The rows as they are multiplied. */
typedef struct {
  const REAL *rows;
  int reads_once; /* each panel */
} NAME(Source);

static inline NAME(Source) NAME(source)(const Op *op, const Step *step, const Cut *cut, int member) {
  (void)member;
  return (NAME(Source)){step->buffers[op->in], cut->rows < NAME(MIN_ROWS_AHEAD)};
}

static inline void NAME(sum_tile)(NAME(Source) *source, int64_t k, Tile tile, const REAL *panel, const REAL *ahead,
                                  vec (*sums)[2]) {
  NAME(multiply_rows)[tile.num_rows](source->rows + tile.first_row * k, panel, ahead, source->reads_once, k, sums);
}
#endif

#if defined(READS_PANELS_TOGETHER)
#include "linear_row.h"
#endif

/* -- the product -- */

static inline const REAL *NAME(nth_panel)(const Op *op, int64_t panel) {
  return (const REAL *)op->weight + panel * NAME(panel_size)(op->k);
}

/* The panel that this member reads after the present one, if it is to be prefetched now. */
static inline const REAL *NAME(panel_ahead)(const Op *op, const NAME(Source) *source, const Cut *cut, Tile tile, Run run,
                                            Run next) {
  if (source->reads_once || tile.nth_of_panel >= TILES_AHEAD) return NULL;
  int64_t after = run.tile + tile.panel_tiles < run.end ? run.tile + tile.panel_tiles : next.tile;
  return after < cut->tiles ? NAME(nth_panel)(op, nth_tile(cut, after).panel) : NULL;
}

static void NAME(multiply_tile)(const Op *op, const Step *step, NAME(Source) *source, Tile tile, const REAL *ahead) {
  NAME(Place) place = NAME(place_of)(op, step, tile.first_row, tile.panel);
  vec sums[MAX_TILE][2];
  NAME(fetch_place)(op, place, tile.num_rows);
  NAME(sum_tile)(source, op->k, tile, NAME(nth_panel)(op, tile.panel), ahead, sums);
  NAME(finish_tile)(op->finish, place, tile.num_rows, sums);
}

static void NAME(op_linear)(const Op *op, const Step *step, Team *team, int member) {
  int64_t rows = op->is_sampling ? step->num_sampling : step->num_tokens;
  Cut cut = cut_product(rows, op->n, op->k * sizeof *(NAME(Source)){}.rows);
  NAME(Source) source = NAME(source)(op, step, &cut, member);
#if defined(READS_PANELS_TOGETHER)
  if (rows == 1) return NAME(product_of_row)(op, step, &source, &cut, team);
#endif
  for (Run run = take_run(team, &cut), next; run.tile < cut.tiles; run = next) {
    Tile tile = nth_tile(&cut, run.tile);
    next = after_tile(run, team, &cut);
    NAME(multiply_tile)(op, step, &source, tile, NAME(panel_ahead)(op, &source, &cut, tile, run, next));
  }
}
