/* The division of a product into tiles (some rows by one panel of columns), and of tiles among members. */
#pragma once
#include "team.h"
#include "vec.h"

#if defined(__AVX512F__) || defined(__aarch64__)
#define MAX_TILE_ROWS 8 /* two sums of each in 32 registers; more than that was no faster */
#else
#define MAX_TILE_ROWS 6 /* with both vectors of weights and one of the row in 16 registers */
#endif

#if defined(__AVX2__) && !defined(__AVX512F__)
#define READS_PANELS_TOGETHER /* for a single row; not measured with other sets of instructions */
#endif

enum {
  PANEL = 2 * LANES,
  MAX_TILE = MAX_TILE_ROWS,
  BLOCK_BYTES = 512 * 1024, /* of input rows: they stay in a core's second-level cache for many panels */
  LINE_BYTES = 64,
  TILES_AHEAD = 2, /* tiles of a panel during which the next panel is prefetched */
  NEAR_BYTES = 192, /* from what is multiplied to what is prefetched, where a panel is read once */
};

/* With fewer rows only reading counts: a panel is read once, and no panel is prefetched ahead. As measured. */
#if defined(__AVX512F__)
enum { MIN_ROWS_AHEAD_f32 = MAX_TILE + 1, MIN_ROWS_AHEAD_bf16 = 5 };
#else
enum { MIN_ROWS_AHEAD_f32 = 5, MIN_ROWS_AHEAD_bf16 = 5 };
#endif

#if MAX_TILE_ROWS > 6
#define EACH_TILE(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)
#else
#define EACH_TILE(X) X(1) X(2) X(3) X(4) X(5) X(6)
#endif

static inline int64_t num_chunks(int64_t size, int64_t chunk) { return (size + chunk - 1) / chunk; }
static inline int64_t smaller_of(int64_t a, int64_t b) { return a < b ? a : b; }

/* The division of a product: each tile is some rows by one panel. A block of rows uses all panels, its tiles one after
   the other, then the next block does. */
typedef struct {
  int64_t rows, row_tiles, block_tiles, panels, tiles;
} Cut;

static inline Cut cut_product(int64_t rows, int64_t n, int64_t row_bytes) {
  int64_t row_tiles = num_chunks(rows, MAX_TILE), panels = num_chunks(n, PANEL);
  int64_t block_tiles = BLOCK_BYTES / (row_bytes * MAX_TILE);
  return (Cut){rows, row_tiles, block_tiles > 0 ? block_tiles : 1, panels, row_tiles * panels};
}

typedef struct {
  int64_t panel, first_row, num_rows, nth_of_panel, panel_tiles;
  int64_t block_row, block_end; /* the rows of its block */
} Tile;

static inline int64_t first_row_of(const Cut *cut, int64_t row_tile) { return cut->rows * row_tile / cut->row_tiles; }

static inline Tile nth_tile(const Cut *cut, int64_t number) {
  int64_t block_size = cut->block_tiles * cut->panels, first = number / block_size * cut->block_tiles;
  int64_t panel_tiles = smaller_of(cut->block_tiles, cut->row_tiles - first), in_block = number % block_size;
  int64_t nth = in_block % panel_tiles, first_row = first_row_of(cut, first + nth);
  int64_t num_rows = first_row_of(cut, first + nth + 1) - first_row;
  return (Tile){in_block / panel_tiles, first_row, num_rows, nth, panel_tiles, first_row_of(cut, first),
                first_row_of(cut, first + panel_tiles)};
}

/* Neighbouring tiles that one member computes. */
typedef struct {
  int64_t tile, end;
} Run;

/* Long runs first, for long streams, then shorter ones, so that the wait for the last run is short. */
static inline Run take_run(Team *team, const Cut *cut) {
  int64_t first = 0, length = 0;
  for (long number = take_task(team); number >= 0 && first < cut->tiles; number--) {
    first += length;
    length = num_chunks(cut->tiles - first, 2 * team->num_members);
  }
  return (Run){first, first + length};
}

static inline Run after_tile(Run run, Team *team, const Cut *cut) {
  return ++run.tile < run.end ? run : take_run(team, cut);
}

/* Prefetch both vectors of a panel's grains into the second-level cache. */
static inline void fetch_lines(const void *grains) {
  for (int byte = 0; byte < 2 * VECTOR_BYTES; byte += LINE_BYTES) __builtin_prefetch((const char *)grains + byte, 0, 2);
}

/* Prefetch what is read once, so that it passes by the large cache: what stays in there, Python's memory above all and
   some of the weights, need not be read anew in each step. */
static inline void fetch_once(const void *grains) {
  const char *soon = (const char *)grains + NEAR_BYTES;
  for (int byte = 0; byte < 2 * VECTOR_BYTES; byte += LINE_BYTES) __builtin_prefetch(soon + byte, 0, 0);
}

/* -- a member's floats, where the processor has no products of bf16 -- */

#if defined(HAS_BF16_INSTRUCTION) && !defined(LABENGINE_WIDENS)
#define HAS_BF16_PRODUCTS
#endif

static inline int64_t even(int64_t k) { return num_chunks(k, 2) * 2; }

/* For the rows of a block and a panel. */
static inline int64_t widened_floats(const Cut *cut, int64_t k) {
  return num_chunks(even(k) * (cut->block_tiles * MAX_TILE + PANEL), 16) * 16;
}

static inline int64_t widened_bytes(int64_t k, int num_members) {
#if defined(HAS_BF16_PRODUCTS)
  (void)k, (void)num_members;
  return 0;
#else
  Cut cut = cut_product(1, 1, k * sizeof(float));
  return num_members * widened_floats(&cut, k) * (int64_t)sizeof(float);
#endif
}
