/* Products of bf16 where the processor has no instruction for them. Numbers become floats, which is exact: rows once per
   block of rows, a panel once for many tiles, or in flight for few. Either way the sums are the same bit by bit. */
#include "linear_cut.h"

enum { MIN_TILES_WIDENED = 4 }; /* of a panel in a block: for fewer of them its weights are widened in flight */

/* The rows in the op's buffer, and a member's floats, with the numbers of the first row and of the panel in them; -1:
   none yet. */
typedef struct {
  const bf16 *in;
  float *rows, *panel; /* [rows of a block][depth], [depth][PANEL] */
  int64_t depth, first_row, number;
  int reads_once; /* each panel */
} Source_bf16;

static inline Source_bf16 source_bf16(const Op *op, const Step *step, const Cut *cut, int member) {
  float *memory = (float *)step->scratch + member * widened_floats(cut, op->k);
  int64_t depth = even(op->k);
  return (Source_bf16){step->buffers[op->in], memory, memory + depth * cut->block_tiles * MAX_TILE, depth, -1, -1,
                       cut->rows < MIN_ROWS_AHEAD_bf16};
}

static inline void widen_rows(Source_bf16 *source, Tile tile, int64_t k) {
  if (source->first_row == tile.block_row) return;
  for (int64_t row = 0; row < tile.block_end - tile.block_row; row++) {
    float *wide = source->rows + row * source->depth;
    widen_row(source->in + (tile.block_row + row) * k, wide, k);
    if (k < source->depth) wide[k] = 0;
  }
  source->first_row = tile.block_row;
}

static inline vec first_of(words grain) { return (vec)(grain << 16); }
static inline vec second_of(words grain) { return (vec)(grain & 0xffff0000); }

/* Six rows' sums, two vectors of weights and one number of the row fill 15 of 16 registers. A mask in the last one, or
   weights that are loaded early, put a sum into memory, and a tile takes 1.4 times as long: so the mask is read from
   memory, and each half of the grains after the sums of the other one. */
static const uint32_t upper_halves[LANES] = {[0 ... LANES - 1] = 0xffff0000};
#define FINISH_BEFORE_READING __asm__ volatile("" ::: "memory")

INLINED vec first_in_memory(const bf16 *grains) { return first_of(*(const words *)grains); }
INLINED vec second_in_memory(const bf16 *grains) {
  return (vec)(*(const volatile words *)upper_halves & *(const words *)grains);
}

/* Add the products of a number of each row and two vectors of weights, which are kept in `wide`, if any. */
INLINED void add_number(const int rows, vec (*sums)[2], const float *in, int64_t depth, vec left, vec right, float *wide) {
  if (wide) {
    store_f32(wide, left);
    store_f32(wide + LANES, right);
  }
UNROLL(8)
  for (int row = 0; row < rows; row++) {
    vec number = splat(in[row * depth]);
    sums[row][0] += number * left;
    sums[row][1] += number * right;
  }
  FINISH_BEFORE_READING;
}

/* As multiply_f32, from a panel of bf16. The panel's floats are kept in `wide`, if any. `rows` is a constant. */
INLINED void multiply_in_flight(const int rows, const float *in, const bf16 *panel, const bf16 *ahead, int reads_once,
                                float *wide, int64_t depth, vec (*out)[2]) {
  vec sums[MAX_TILE][2];
UNROLL(8)
  for (int row = 0; row < rows; row++) sums[row][0] = sums[row][1] = (vec){};
  for (int64_t i = 0; i < depth; i += 2, in += 2, panel += 2 * PANEL) {
    const bf16 *right = panel + 2 * LANES;
    if (ahead) fetch_lines(ahead + i * PANEL);
    if (reads_once) fetch_once(panel);
    add_number(rows, sums, in, depth, first_in_memory(panel), first_in_memory(right), wide);
    if (wide) wide += PANEL;
    add_number(rows, sums, in + 1, depth, second_in_memory(panel), second_in_memory(right), wide);
    if (wide) wide += PANEL;
  }
UNROLL(8)
  for (int row = 0; row < rows; row++) out[row][0] = sums[row][0], out[row][1] = sums[row][1];
}

typedef void (*MultiplyInFlight)(const float *in, const bf16 *panel, const bf16 *ahead, int reads_once, float *wide,
                                 int64_t depth, vec (*out)[2]);
#define MULTIPLY(rows)                                                                                                 \
  static void multiply_in_flight_##rows(const float *in, const bf16 *panel, const bf16 *ahead, int reads_once,         \
                                        float *wide, int64_t depth, vec (*out)[2]) {                                   \
    multiply_in_flight(rows, in, panel, ahead, reads_once, wide, depth, out);                                          \
  }
EACH_TILE(MULTIPLY)
#undef MULTIPLY
#define NAMED(rows) [rows] = multiply_in_flight_##rows,
static const MultiplyInFlight multiply_rows_in_flight[MAX_TILE + 1] = {EACH_TILE(NAMED)};
#undef NAMED

static inline void sum_tile_bf16(Source_bf16 *source, int64_t k, Tile tile, const bf16 *panel, const bf16 *ahead,
                                 vec (*sums)[2]) {
  widen_rows(source, tile, k);
  const float *in = source->rows + (tile.first_row - tile.block_row) * source->depth;
  int is_kept = tile.panel_tiles >= MIN_TILES_WIDENED;
  if (is_kept && source->number == tile.panel)
    return multiply_rows_f32[tile.num_rows](in, source->panel, NULL, 0, source->depth, sums);
  float *wide = is_kept ? source->panel : NULL;
  multiply_rows_in_flight[tile.num_rows](in, panel, ahead, source->reads_once, wide, source->depth, sums);
  if (is_kept) source->number = tile.panel;
}
