/* Operations across the lanes of vectors: transposing, and summing each of many vectors at once. */
#pragma once
#include "vec.h"

/* As runs of `size` lanes: the runs with even numbers of both, a's in place and b's after each; and those
   with odd ones. `size` is a constant power of 2. */
INLINED vec even_runs(vec a, vec b, int size) {
  words lane = lane_numbers(), is_odd = (words)((lane & size) != 0);
  return shuffle(a, b, (lane & ~is_odd) | ((lane - size + LANES) & is_odd));
}
INLINED vec odd_runs(vec a, vec b, int size) {
  words lane = lane_numbers(), is_odd = (words)((lane & size) != 0);
  return shuffle(a, b, ((lane + size) & ~is_odd) | ((lane + LANES) & is_odd));
}

/* Transpose in place. */
INLINED void transpose(vec rows[LANES]) {
#pragma GCC unroll 4
  for (int size = LANES / 2; size > 0; size /= 2)
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
      if (!(i & size)) {
        vec even = even_runs(rows[i], rows[i + size], size), odd = odd_runs(rows[i], rows[i + size], size);
        rows[i] = even;
        rows[i + size] = odd;
      }
}

/* Return a vector whose lane i is the sum of vectors[i]. Overwrites them. */
INLINED vec sums_of(vec vectors[LANES]) {
#pragma GCC unroll 4
  for (int size = LANES / 2; size > 0; size /= 2)
#pragma GCC unroll 8
    for (int i = 0; i < size; i++)
      vectors[i] = even_runs(vectors[i], vectors[i + size], size) + odd_runs(vectors[i], vectors[i + size], size);
  return vectors[0];
}

static inline float max_of(vec x) {
#pragma GCC unroll 4
  for (int size = LANES / 2; size > 0; size /= 2) x = larger(x, shuffle(x, x, lane_numbers() ^ size));
  return x[0];
}
