/* How the rows of an op are shared out: in short runs, taken by whoever is free. */
#pragma once
#include "team.h"
#include <stdint.h>

enum { ROWS_AT_ONCE = 8 };

typedef struct {
  int64_t begin, end;
} Rows;

/* The next rows to do of `num_rows`; 0 when none is left. */
static inline int take_rows(Team *team, int64_t num_rows, Rows *rows) {
  rows->begin = (int64_t)take_task(team) * ROWS_AT_ONCE;
  rows->end = rows->begin + ROWS_AT_ONCE < num_rows ? rows->begin + ROWS_AT_ONCE : num_rows;
  return rows->begin < num_rows;
}
