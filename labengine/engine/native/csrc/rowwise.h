/* Ops on single rows: embedding, rotation, norms, and the rotation of heads. */
#include "team.h"

static void NAME(op_embed)(const Op *op, const Step *step, Team *team, int member) {
  float *wide = (float *)step->scratch + member * op->k;
  REAL *out = step->buffers[op->out];
  for (Rows rows; take_rows(team, step->num_tokens, &rows);)
    for (int64_t row = rows.begin; row < rows.end; row++) {
      NAME(unpack_row)(op->weight, op->n, op->k, step->token_ids[row], wide);
      for (int64_t i = 0; i < op->k; i += LANES)
        NAME(store_part)(out + row * op->k + i, load_part_f32(wide + i, op->k - i) * op->scale, op->k - i);
    }
}

static void NAME(op_rotation)(const Op *op, const Step *step, Team *team, int member) {
  (void)member;
  const float *frequencies = op->weight;
  float *out = step->buffers[op->out];
  for (Rows rows; take_rows(team, step->num_tokens, &rows);)
    for (int64_t row = rows.begin; row < rows.end; row++) {
      float *cosines = out + row * 2 * op->k, *sines = cosines + op->k;
      for (int64_t i = 0; i < op->k; i++) {
        float angle = (float)step->positions[row] * frequencies[i];
        cosines[i] = cosf(angle);
        sines[i] = sinf(angle);
      }
    }
}

static inline float NAME(mean_square)(const REAL *in, int64_t size) {
  vec sum = splat(0);
  for (int64_t i = 0; i < size; i += LANES) {
    vec x = NAME(load_part)(in + i, size - i);
    sum += x * x;
  }
  return sum_of(sum) / (float)size;
}

/* Normalize one row; `out` may be `in`. An offset weight is added to 1, and multiplied before rounding instead of after.
   `added`, if any, is added to the rounded norm. */
static inline void NAME(norm)(const Op *op, const REAL *in, const REAL *weight, const REAL *added, REAL *out, int64_t size) {
  vec inverse = splat(1 / sqrtf(NAME(mean_square)(in, size) + op->eps));
  for (int64_t i = 0; i < size; i += LANES) {
    vec x = NAME(load_part)(in + i, size - i) * inverse, w = NAME(load_part)(weight + i, size - i);
    x = op->norm_offset ? x * (1 + w) : NAME(rounded)(x) * w;
    if (added) x = NAME(load_part)(added + i, size - i) + NAME(rounded)(x);
    NAME(store_part)(out + i, x, size - i);
  }
}

/* For the sampling rows, `in` and `other` are read at the sampled row, and `out` holds only these rows. */
static void NAME(op_norm)(const Op *op, const Step *step, Team *team, int member) {
  (void)member;
  const REAL *in = step->buffers[op->in], *other = op->other < 0 ? NULL : step->buffers[op->other];
  REAL *out = step->buffers[op->out];
  for (Rows rows; take_rows(team, op->is_sampling ? step->num_sampling : step->num_tokens, &rows);)
    for (int64_t row = rows.begin; row < rows.end; row++) {
      int64_t source = (op->is_sampling ? step->sample_rows[row] : row) * op->k;
      NAME(norm)(op, in + source, op->weight, other ? other + source : NULL, out + row * op->k, op->k);
    }
}

/* Rotate dimension i with dimension i + half, by the angle of this cosine and sine. */
static inline void NAME(rotate)(REAL *head, const float *cosines, int64_t half) {
  const float *sines = cosines + half;
  for (int64_t i = 0; i < half; i += LANES) {
    int64_t left = half - i;
    vec cosine = load_part_f32(cosines + i, left), sine = load_part_f32(sines + i, left);
    vec first = NAME(load_part)(head + i, left), second = NAME(load_part)(head + half + i, left);
    NAME(store_part)(head + i, first * cosine - second * sine, left);
    NAME(store_part)(head + half + i, second * cosine + first * sine, left);
  }
}

static inline void NAME(norm_and_rotate)(const Op *op, REAL *heads, int num_heads, const REAL *weight, const float *rotation) {
  for (REAL *head = heads; head < heads + num_heads * op->head_dim; head += op->head_dim) {
    if (weight) NAME(norm)(op, head, weight, NULL, head, op->head_dim);
    NAME(rotate)(head, rotation, op->head_dim / 2);
  }
}

static inline void NAME(keep)(const Op *op, const REAL *keys, int32_t slot) {
  if (slot < 0) return;
  int64_t size = (int64_t)op->num_kv_heads * op->head_dim;
  memcpy((REAL *)op->keys + slot * size, keys, size * sizeof(REAL));
  memcpy((REAL *)op->values + slot * size, keys + size, size * sizeof(REAL));
}

static void NAME(op_rotate)(const Op *op, const Step *step, Team *team, int member) {
  (void)member;
  int64_t width = (int64_t)(op->num_heads + 2 * op->num_kv_heads) * op->head_dim;
  for (Rows rows; take_rows(team, step->num_tokens, &rows);)
    for (int64_t row = rows.begin; row < rows.end; row++) {
      REAL *queries = (REAL *)step->buffers[op->in] + row * width, *keys = queries + op->num_heads * op->head_dim;
      const float *rotation = (const float *)step->buffers[op->other] + row * op->head_dim;
      NAME(norm_and_rotate)(op, queries, op->num_heads, op->weight, rotation);
      NAME(norm_and_rotate)(op, keys, op->num_kv_heads, op->weight2, rotation);
      NAME(keep)(op, keys, step->slots[op->group][row]);
    }
}
