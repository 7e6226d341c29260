/* Attention of a step's queries to the cache: prompts in tiles, decodes alone or, if long, in parts. */
#include "attention_plan.h"

/* Where the processor has no product of bf16, numbers become floats before they are multiplied. */
#if defined(IS_BF16) && !defined(HAS_BF16_INSTRUCTION)
#define INNER(x) x##_f32
typedef float NAME(Inner); /* a number as it is multiplied */
#else
#define INNER(x) NAME(x)
typedef REAL NAME(Inner);
#endif

/* The queries of one row for one kv head, [group][head_dim]. */
static inline const REAL *NAME(queries_at)(const Op *op, const Step *step, int64_t row, int64_t head) {
  int64_t heads = op->num_heads + 2 * op->num_kv_heads;
  return (const REAL *)step->buffers[op->in] + (row * heads + head * group_rows(op)) * op->head_dim;
}

static inline REAL *NAME(out_at)(const Op *op, const Step *step, int64_t row, int64_t head) {
  return (REAL *)step->buffers[op->out] + (row * op->num_heads + head * group_rows(op)) * op->head_dim;
}

/* Divide sums by their total; zeros where nothing was read. */
static inline void NAME(write_mean)(REAL *out, const float *sums, float total, int64_t size) {
  vec inverse = splat(total == 0 ? 0 : 1 / total);
  for (int64_t i = 0; i < size; i += LANES) NAME(store_part)(out + i, load_f32(sums + i) * inverse, size - i);
}

#include "attention_decode.h"
#include "attention_tile.h"

/* Add up the parts of decodes that were cut, in the order of their share numbers. */
static void NAME(join_parts)(const Op *op, const Step *step, Cutting cut, Team *team, float *parts) {
  Walker walker = {};
  for (Share share; find_share(&walker, take_task(team), op, step, cut, &share);) {
    if (!is_decode(share.queries) || share.parts == 1 || share.part) continue;
    float *first = parts + share.number * part_floats(op);
    for (int64_t part = 1; part < share.parts; part++) NAME(join)(op, first, first - part * part_floats(op));
    NAME(write_reading)(op, step, &share, first);
  }
}

static void NAME(op_attend)(const Op *op, const Step *step, Team *team, int member) {
  Cutting cut = cut_attention(op, step, team->num_members);
  float *memory = (float *)step->scratch + member * member_floats(op);
  float *parts = (float *)step->scratch + team->num_members * member_floats(op);
  Walker walker = {};
  Share share, next;
  int is_fetched = 0, has_next;
  for (int has = find_share(&walker, take_task(team), op, step, cut, &share); has; has = has_next, share = next) {
    has_next = find_share(&walker, take_task(team), op, step, cut, &next);
    if (!is_decode(share.queries)) {
      NAME(attend_tile)(op, step, &share, cut, memory);
      is_fetched = 0;
      continue;
    }
    float *sums = share.parts == 1 ? memory : parts + share.number * part_floats(op);
    is_fetched = NAME(attend_part)(op, step, &share, has_next ? &next : NULL, is_fetched, sums);
    if (share.parts == 1) NAME(write_reading)(op, step, &share, sums);
  }
  if (!cuts_decodes(op, step, cut)) return;
  barrier(team);
  NAME(join_parts)(op, step, cut, team, parts);
}
#undef INNER
