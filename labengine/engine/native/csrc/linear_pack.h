/* The weight [n, k] in the order of multiplication: panels of two vectors of columns,
       [panels][k in grains][2 vectors][LANES][grain]
   The halves of a gated weight are side by side: a panel's first vector is the gate's, its second the gated half's. */

#ifndef LABENGINE_LINEAR_PACK
#define LABENGINE_LINEAR_PACK
#include "packing.h"
#include "linear_cut.h"

_Static_assert(64 % PANEL == 0, "weights are packed in pieces of a multiple of 64 rows: PIECE_ROWS in weights.py");

/* The row of the weight [n, k] for a panel's column; n or more for padding. */
static inline int64_t row_of_column(int64_t panel, int column, int64_t n, int is_gated) {
  if (!is_gated) return panel * PANEL + column;
  int64_t in_half = panel * LANES + column % LANES;
  return in_half < n / 2 ? column / LANES * (n / 2) + in_half : n;
}
#endif

static inline int64_t NAME(panel_size)(int64_t k) { return num_chunks(k, NAME(GRAIN)) * NAME(GRAIN) * PANEL; }

int64_t NAME(packed_size)(int64_t n, int64_t k) { return num_chunks(n, PANEL) * NAME(panel_size)(k); }

/* The place of a column's element in its panel. */
static inline int64_t NAME(place)(int column, int64_t i) {
  return (i / NAME(GRAIN) * PANEL + column) * NAME(GRAIN) + i % NAME(GRAIN);
}

static void NAME(pack_column)(const REAL *row, REAL *panel, int column, int64_t k) {
  for (int64_t i = 0; i < k; i++) panel[NAME(place)(column, i)] = row[i];
}

static void NAME(unpack_column)(const REAL *panel, REAL *row, int column, int64_t k) {
  for (int64_t i = 0; i < k; i++) row[i] = panel[NAME(place)(column, i)];
}

void NAME(pack)(const REAL *weight, REAL *packed, int64_t n, int64_t k, int is_gated) {
  int is_padded = n % PANEL || k % NAME(GRAIN);
  if (is_padded) memset(packed, 0, NAME(packed_size)(n, k) * sizeof *packed);
  for (int64_t panel = 0; panel < num_chunks(n, PANEL); panel++)
    for (int column = 0; column < PANEL; column++) {
      int64_t row = row_of_column(panel, column, n, is_gated);
      if (row < n) NAME(pack_column)(weight + row * k, packed + panel * NAME(panel_size)(k), column, k);
    }
}

void NAME(unpack)(const REAL *packed, REAL *weight, int64_t n, int64_t k, int is_gated) {
  for (int64_t panel = 0; panel < num_chunks(n, PANEL); panel++)
    for (int column = 0; column < PANEL; column++) {
      int64_t row = row_of_column(panel, column, n, is_gated);
      if (row < n) NAME(unpack_column)(packed + panel * NAME(panel_size)(k), weight + row * k, column, k);
    }
}

/* Unpack one row of an ungated weight to floats. */
static inline void NAME(unpack_row)(const REAL *packed, int64_t n, int64_t k, int64_t row, float *out) {
  (void)n;
  const REAL *panel = packed + row / PANEL * NAME(panel_size)(k);
  for (int64_t i = 0; i < k; i++) out[i] = WIDE(panel[NAME(place)(row % PANEL, i)]);
}
