/* A tile of queries: for each tile of keys, packed once, the scores, weights and weighted sums of values of all rows.
   It works in bands of rows, so that a band's scores, and then its sums, stay in registers.

   Tiles of keys begin at multiples of their size, wherever the tile of queries begins: the division of queries changes
   no bit of any result. Rows are queries times group: each query's heads together. Grains, of four bytes
   each, are packed. Where the processor has no product of bf16, numbers become floats when they are packed, so that the
   inner loop widens nothing; the sums are the same bit by bit. */
#include "attention_plan.h"
#include "packing.h"

typedef struct {
  const Op *op;
  const Share *share;
  int64_t row, start, num_rows; /* the first query's row in the step, its position; rows of this tile */
  int64_t depth, width;         /* grains of a query; columns of sums */
  float *queries;               /* [rows][depth] */
  vec *keys;                    /* [strips of keys][depth][STRIP] */
  vec *values;                  /* [strips of columns][grains of keys][STRIP] */
  float *scores;                /* [BAND][TILE_KEYS] */
  NAME(Inner) *weights;         /* [BAND][TILE_KEYS] */
  float *sums;                  /* [rows][width], weighted sums of values */
  float *maximum;                  /* [rows], the largest score so far */
  vec *totals;                  /* [rows], the sum of weights so far, spread over the lanes */
} NAME(Tile);

static NAME(Tile) NAME(new_tile)(const Op *op, const Share *share, Cutting cut, float *scratch) {
  int64_t first = share->part * cut.tile_queries, num_queries = share->queries.num_queries - first;
  NAME(Tile) tile = {.op = op, .share = share};
  tile.row = share->queries.row + first;
  tile.start = share->queries.start + first;
  tile.num_rows = smaller_int(cut.tile_queries, num_queries) * group_rows(op);
  tile.depth = ceil_div(op->head_dim, INNER(GRAIN));
  tile.width = sum_width(op);
  int64_t rows = round_up(tile.num_rows, BAND);
  tile.keys = (vec *)scratch;
  tile.values = (vec *)(scratch + TILE_KEYS * tile.depth);
  tile.scores = (float *)tile.values + TILE_KEYS * tile.width;
  tile.weights = (NAME(Inner) *)(tile.scores + BAND * TILE_KEYS);
  tile.totals = (vec *)(tile.weights + BAND * TILE_KEYS);
  tile.sums = (float *)(tile.totals + rows);
  tile.queries = tile.sums + rows * tile.width;
  tile.maximum = tile.queries + rows * tile.depth;
  return tile;
}

/* Copy the queries, with zeros after the last and in unfilled grains; clear the sums. */
static void NAME(begin_tile)(const NAME(Tile) *tile, const Step *step) {
  int64_t rows = round_up(tile->num_rows, BAND), group = group_rows(tile->op), size = tile->op->head_dim;
  memset(tile->queries, 0, rows * tile->depth * sizeof(float));
  memset(tile->sums, 0, rows * tile->width * sizeof(float));
  for (int64_t row = 0; row < rows; row++) {
    tile->maximum[row] = LOWEST_SCORE;
    tile->totals[row] = splat(0);
  }
  for (int64_t row = 0; row < tile->num_rows; row++) {
    const REAL *queries = NAME(queries_at)(tile->op, step, tile->row + row / group, tile->share->head);
    NAME(pack_row)(queries + row % group * size, (NAME(Inner) *)(tile->queries + row * tile->depth), size);
  }
}

/* -- a tile of keys and values -- */

static void NAME(pack_keys)(const NAME(Tile) *tile, const REAL *keys, const int64_t *places, Range strips) {
  for (int64_t i = strips.begin; i < strips.end; i += LANES) {
    const REAL *rows[LANES];
    for (int lane = 0; lane < LANES; lane++) rows[lane] = keys + places[i + lane];
    vec *strip = tile->keys + i / STRIP_COLUMNS * tile->depth * STRIP;
    NAME(pack_columns)(rows, tile->op->head_dim, strip + i % STRIP_COLUMNS / LANES, STRIP);
  }
}

static void NAME(pack_values)(const NAME(Tile) *tile, const REAL *values, const int64_t *places, Range strips) {
  int64_t depth = TILE_KEYS / INNER(GRAIN), size = tile->op->head_dim;
  for (int64_t grain = strips.begin / INNER(GRAIN); grain < strips.end / INNER(GRAIN); grain++)
    for (int64_t column = 0; column < size; column += LANES) {
      vec *strip = tile->values + column / STRIP_COLUMNS * depth * STRIP;
      vec woven = NAME(weave)(values + column, places + grain * INNER(GRAIN), size - column);
      strip[grain * STRIP + column % STRIP_COLUMNS / LANES] = woven;
    }
}

/* Pack the strips that have keys to read. Before the first key and after the last, these two are repeated: slots that
   are unwritten or outside of the window are not read. */
static void NAME(pack_tile)(const NAME(Tile) *tile, int64_t first, Range keys) {
  Range strips = {keys.begin / STRIP_COLUMNS * STRIP_COLUMNS, round_up(keys.end, STRIP_COLUMNS)};
  int64_t places[TILE_KEYS];
  locate(tile->op, tile->share->table, first + keys.begin, keys.end - keys.begin, places + keys.begin);
  for (int64_t i = strips.begin; i < keys.begin; i++) places[i] = places[keys.begin];
  for (int64_t i = keys.end; i < strips.end; i++) places[i] = places[keys.end - 1];
  int64_t head = tile->share->head * tile->op->head_dim;
  NAME(pack_keys)(tile, (const REAL *)tile->op->keys + head, places, strips);
  NAME(pack_values)(tile, (const REAL *)tile->op->values + head, places, strips);
}

/* -- a band of rows -- */

typedef vec NAME(Band)[BAND][STRIP];

/* sums += rows x columns, over `depth` grains. Rows are `stride` numbers apart. */
INLINED void NAME(multiply_band)(const NAME(Inner) *rows, int64_t stride, const vec *columns, int64_t depth, NAME(Band) sums) {
  for (int64_t i = 0; i < depth; i++, columns += STRIP)
UNROLL(6)
    for (int row = 0; row < BAND; row++) {
      INNER(grains) grain = INNER(spread)(rows + row * stride + i * INNER(GRAIN));
UNROLL(4)
      for (int column = 0; column < STRIP; column++)
        sums[row][column] = INNER(dot)(sums[row][column], grain, (INNER(grains))columns[column]);
    }
}

/* Compute scores of the keys, in complete strips. */
static void NAME(score_band)(const NAME(Tile) *tile, const float *queries, Range keys) {
  float scale = tile->op->scale * LOG2_E;
  for (int64_t key = keys.begin / STRIP_COLUMNS * STRIP_COLUMNS; key < keys.end; key += STRIP_COLUMNS) {
    NAME(Band) sums = {};
    const vec *strip = tile->keys + key * tile->depth / LANES;
    NAME(multiply_band)((const NAME(Inner) *)queries, tile->depth * INNER(GRAIN), strip, tile->depth, sums);
    float *scores = tile->scores + key;
UNROLL(6)
    for (int row = 0; row < BAND; row++, scores += TILE_KEYS)
UNROLL(4)
      for (int i = 0; i < STRIP; i++) store_f32(scores + i * LANES, sums[row][i] * scale);
  }
}

/* Scale the band's sums, and add its weighted values. */
static void NAME(add_band)(const NAME(Tile) *tile, float *sums, const float *rescale, Range keys) {
  int64_t width = tile->width, begin = keys.begin / INNER(GRAIN), depth = ceil_div(keys.end, INNER(GRAIN)) - begin;
  for (int64_t column = 0; column < width; column += STRIP_COLUMNS, sums += STRIP_COLUMNS) {
    NAME(Band) band;
UNROLL(6)
    for (int row = 0; row < BAND; row++)
UNROLL(4)
      for (int i = 0; i < STRIP; i++) band[row][i] = load_f32(sums + row * width + i * LANES) * rescale[row];
    const vec *strip = tile->values + (column / STRIP_COLUMNS * (TILE_KEYS / INNER(GRAIN)) + begin) * STRIP;
    NAME(multiply_band)(tile->weights + begin * INNER(GRAIN), TILE_KEYS, strip, depth, band);
UNROLL(6)
    for (int row = 0; row < BAND; row++)
UNROLL(4)
      for (int i = 0; i < STRIP; i++) store_f32(sums + row * width + i * LANES, band[row][i]);
  }
}

/* The range of keys that the row's query reads, in the tile of keys that begins at `first`. */
static inline Range NAME(reads_of)(const NAME(Tile) *tile, int64_t row, int64_t first, int64_t count) {
  int64_t position = tile->start + row / group_rows(tile->op);
  return (Range){larger_int(first_read(tile->op, position) - first, 0), smaller_int(position + 1 - first, count)};
}

/* Turn the scores of a band into weights. */
static void NAME(weigh_band)(const NAME(Tile) *tile, int64_t row, int64_t first, Range keys, float rescale[MAX_ROWS]) {
  Range vectors = {keys.begin / WEIGHED * WEIGHED, round_up(keys.end, WEIGHED)};
  for (int i = 0; i < BAND; i++) {
    Range reads = NAME(reads_of)(tile, row + i, first, keys.end);
    int is_all = reads.begin <= vectors.begin && reads.end >= vectors.end;
    if (!is_all) mask(tile->scores + i * TILE_KEYS, vectors, reads);
  }
  update_maximum(tile->scores, TILE_KEYS, BAND, vectors, tile->maximum + row, rescale);
  for (int i = 0; i < BAND; i++) {
    const float *scores = tile->scores + i * TILE_KEYS;
    vec sum = NAME(weigh)(scores, tile->weights + i * TILE_KEYS, vectors, tile->maximum[row + i]);
    tile->totals[row + i] = tile->totals[row + i] * rescale[i] + sum;
  }
}

static void NAME(attend_band)(const NAME(Tile) *tile, int64_t row, int64_t first, int64_t count) {
  int64_t last = smaller_int(row + BAND, tile->num_rows) - 1;
  Range keys = {NAME(reads_of)(tile, row, first, count).begin, NAME(reads_of)(tile, last, first, count).end};
  if (keys.begin >= keys.end) return;
  float rescale[MAX_ROWS];
  NAME(score_band)(tile, tile->queries + row * tile->depth, keys);
  NAME(weigh_band)(tile, row, first, keys, rescale);
  NAME(add_band)(tile, tile->sums + row * tile->width, rescale, keys);
}

/* -- the complete tile -- */

static void NAME(end_tile)(const NAME(Tile) *tile, const Step *step) {
  int64_t group = group_rows(tile->op), size = tile->op->head_dim;
  for (int64_t row = 0; row < tile->num_rows; row++) {
    REAL *out = NAME(out_at)(tile->op, step, tile->row + row / group, tile->share->head) + row % group * size;
    NAME(write_mean)(out, tile->sums + row * tile->width, sum_of(tile->totals[row]), size);
  }
}

static void NAME(attend_tile)(const Op *op, const Step *step, const Share *share, Cutting cut, float *scratch) {
  NAME(Tile) tile = NAME(new_tile)(op, share, cut, scratch);
  NAME(begin_tile)(&tile, step);
  int64_t end = tile.start + ceil_div(tile.num_rows, group_rows(op));
  int64_t begin = first_read(op, tile.start);
  for (int64_t first = begin / TILE_KEYS * TILE_KEYS; first < end; first += TILE_KEYS) {
    int64_t count = smaller_int(TILE_KEYS, end - first);
    NAME(pack_tile)(&tile, first, (Range){larger_int(begin - first, 0), count});
    for (int64_t row = 0; row < tile.num_rows; row += BAND) NAME(attend_band)(&tile, row, first, count);
  }
  NAME(end_tile)(&tile, step);
}
