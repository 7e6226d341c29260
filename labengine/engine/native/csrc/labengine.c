/* labengine's CPU kernels: every op for float and for bf16, and the loop over a program's ops. */
#include "team.h"
#include "vec.h"
#include "program.h"
#include "argmax.h"
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

#define REAL float
#define NAME(x) x##_f32
#define LOAD load_f32
#define STORE store_f32
#define WIDE wide_f32
#define NARROW narrow_f32
#include "kernels.h"
#undef REAL
#undef NAME
#undef LOAD
#undef STORE
#undef WIDE
#undef NARROW

#define REAL bf16
#define NAME(x) x##_bf16
#define LOAD load_bf16
#define STORE store_bf16
#define WIDE wide_bf16
#define NARROW narrow_bf16
#define IS_BF16
#include "kernels.h"
