/* The division of an op's rows: short runs, taken by any free member. */
#pragma once
#include "team.h"
#include <stdint.h>

enum { ROWS_AT_ONCE = 8 };

typedef struct {
  int64_t begin, end;
} Rows;

/* Take the next rows of `num_rows`; return 0 when none is left. */
static inline int take_rows(Team *team, int64_t num_rows, Rows *rows) {
  rows->begin = (int64_t)take_task(team) * ROWS_AT_ONCE;
  rows->end = rows->begin + ROWS_AT_ONCE < num_rows ? rows->begin + ROWS_AT_ONCE : num_rows;
  return rows->begin < num_rows;
}
