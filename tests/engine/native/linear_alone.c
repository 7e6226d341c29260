/* The linear ops and nothing else: quickly compiled for processors that know less than this one. */
#include "team.h"
#include "vec.h"
#include "program.h"

#define REAL float
#define NAME(x) x##_f32
#define LOAD load_f32
#define STORE store_f32
#define WIDE wide_f32
#define NARROW narrow_f32
#include "linear.h"
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
#include "linear.h"

void run_alone_f32(const Op *op, const Step *step) {
  Team team = {.num_members = 1};
  op_linear_f32(op, step, &team, 0);
}

void run_alone_bf16(const Op *op, const Step *step) {
  Team team = {.num_members = 1};
  op_linear_bf16(op, step, &team, 0);
}

int lanes(void) { return LANES; }
int64_t widened(int64_t k) { return widened_bytes(k, 1); }
