/* The division of a product into tiles (some rows by one panel of columns), and of tiles among members. */
#pragma once
#include "team.h"
#include "vec.h"

#if defined(__AVX512F__) || defined(__aarch64__)
#define MAX_TILE_ROWS 8 /* two sums of each in 32 registers; more than that was no faster */
#else
#define MAX_TILE_ROWS 4 /* in 16 registers */
#endif

enum {
  PANEL = 2 * LANES,
  MAX_TILE = MAX_TILE_ROWS,
  BLOCK_BYTES = 256 * 1024, /* of input rows: they stay in a core's second-level cache for many panels */
  MIN_ROWS_AHEAD = 5, /* with fewer rows only reading counts, and the processor prefetches by itself */
  TILES_AHEAD = 2, /* tiles of a panel during which the next panel is prefetched */
};

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
} Tile;

static inline Tile nth_tile(const Cut *cut, int64_t number) {
  int64_t block_size = cut->block_tiles * cut->panels, first = number / block_size * cut->block_tiles;
  int64_t panel_tiles = smaller_of(cut->block_tiles, cut->row_tiles - first), in_block = number % block_size;
  int64_t nth = in_block % panel_tiles, first_row = cut->rows * (first + nth) / cut->row_tiles;
  int64_t end_row = cut->rows * (first + nth + 1) / cut->row_tiles;
  return (Tile){in_block / panel_tiles, first_row, end_row - first_row, nth, panel_tiles};
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
