/* One query, all heads, over a part of its keys. Keys and values are read once, in place, while the next ones are
   fetched: one line of those per line of these, so that memory is always busy. */
#include "attention_plan.h"
#include "packing.h"

#ifndef LABENGINE_ATTENTION_DECODE
#define LABENGINE_ATTENTION_DECODE
enum {
  SOME_KEYS = 64, /* at a time: they stay in the cache for all heads of a group */
  KEYS_AT_ONCE = LANES < 4 ? LANES : 4,
  SOME_HEADS = 4, /* at a time: their sums, for four keys or four vectors of values, stay in registers */
};

/* Some keys, by their places in the cache. The last place is repeated to fill vectors: unwritten slots are not
   read. */
typedef struct {
  int64_t count, places[SOME_KEYS];
} Keys;

/* The keys of one part of a decode. */
typedef struct {
  int64_t first, end;
} Part;

static inline Part part_of(const Op *op, const Share *share) {
  int64_t position = share->queries.start, reads = num_first_reads(op, share->queries);
  int64_t size = round_up(ceil_div(reads, share->parts), SOME_KEYS);
  int64_t first = first_read(op, position) + share->part * size;
  return (Part){first, smaller_int(first + size, position + 1)};
}

static inline void find_keys(const Op *op, const int32_t *table, int64_t first, int64_t end, Keys *keys) {
  keys->count = smaller_int(end - first, SOME_KEYS);
  locate(op, table, first, keys->count, keys->places);
  for (int64_t i = keys->count; i < SOME_KEYS; i++) keys->places[i] = keys->places[keys->count - 1];
}

/* Prefetch into the second-level cache: so many lines of keys and values would not fit into the first. */
static inline void fetch_line(const void *line) { __builtin_prefetch(line, 0, 2); }

/* Partial result of some heads: weighted sums of values [heads][width], and per head the maximum score and the sum
   of weights. */
typedef struct {
  float *sums, *maximum, *total;
} Reading;

static inline Reading reading_in(const Op *op, float *memory, int64_t head) {
  float *maximum = memory + op->num_heads * sum_width(op);
  return (Reading){memory + head * sum_width(op), maximum + head, maximum + op->num_heads + head};
}

#endif

typedef float NAME(Scores)[SOME_HEADS][SOME_KEYS];
typedef NAME(Inner) NAME(Weights)[SOME_HEADS][SOME_KEYS];

/* Turn scores into weights. */
INLINED void NAME(weigh_keys)(int heads, NAME(Scores) scores, int64_t count, Reading reading, float rescale[MAX_ROWS],
                              NAME(Weights) weights) {
  Range all = {0, round_up(count, WEIGHED)};
  for (int head = 0; count < all.end && head < heads; head++) mask(scores[head], all, (Range){0, count});
  update_maximum(scores[0], SOME_KEYS, heads, all, reading.maximum, rescale);
  for (int head = 0; head < heads; head++) {
    float sum = sum_of(NAME(weigh)(scores[head], weights[head], all, reading.maximum[head]));
    reading.total[head] = reading.total[head] * rescale[head] + sum;
  }
}

/* Scores of LANES keys for some heads. is_full: a head fills its vectors; otherwise there is a call in the
   inner loop, and no sum would stay in a register. */
INLINED void NAME(score_keys)(const int heads, const int is_full, const Op *op, const REAL *queries, const REAL *keys,
                              const int64_t *places, const int64_t *next, vec *scores) {
  enum { STEPS = LANES / KEYS_AT_ONCE };
  vec sums[SOME_HEADS][STEPS];
  int64_t size = op->head_dim;
  for (int first = 0; first < STEPS; first++) {
    vec sum[KEYS_AT_ONCE][SOME_HEADS] = {};
    for (int64_t i = 0; i < size; i += LANES * NAME(GRAIN)) {
      int64_t bytes = is_full ? VECTOR_BYTES : (size - i) * sizeof(REAL);
      NAME(grains) query[SOME_HEADS];
UNROLL(4)
      for (int head = 0; head < heads; head++) query[head] = (NAME(grains))load_bytes(queries + head * size + i, bytes);
UNROLL(4)
      for (int k = 0; k < KEYS_AT_ONCE; k++) {
        NAME(grains) grains = (NAME(grains))load_bytes(keys + places[first + k * STEPS] + i, bytes);
        fetch_line(keys + next[first + k * STEPS] + i);
UNROLL(4)
        for (int head = 0; head < heads; head++) sum[k][head] = NAME(dot)(sum[k][head], query[head], grains);
      }
    }
UNROLL(4)
    for (int head = 0; head < heads; head++) {
      vec of_head[KEYS_AT_ONCE];
UNROLL(4)
      for (int k = 0; k < KEYS_AT_ONCE; k++) of_head[k] = sum[k][head];
      sums[head][first] = fold(of_head, KEYS_AT_ONCE, LANES / 2);
    }
  }
UNROLL(4)
  for (int head = 0; head < heads; head++) scores[head] = fold(sums[head], STEPS, STEPS / 2) * (op->scale * LOG2_E);
}

/* Add weighted values to the sums of some heads, in some vectors of columns; `left` columns remain. */
INLINED void NAME(add_values)(const int heads, const int vectors, const REAL *values, int64_t left, const Keys *keys,
                              const int64_t *next, NAME(Weights) weights, const float *rescale, float *sums,
                              int64_t width) {
  vec sum[SOME_HEADS][4], value[4];
UNROLL(4)
  for (int head = 0; head < heads; head++)
UNROLL(4)
    for (int i = 0; i < vectors; i++) sum[head][i] = load_f32(sums + head * width + i * LANES) * rescale[head];
  for (int64_t key = 0; key < keys->count; key += INNER(GRAIN)) {
    NAME(weave_all)(vectors, values, keys->places + key, left, value);
UNROLL(2)
    for (int k = 0; k < INNER(GRAIN); k++)
UNROLL(4)
      for (int i = 0; i < vectors * LANES; i += 64 / sizeof(REAL)) fetch_line(values + next[key + k] + i);
UNROLL(4)
    for (int head = 0; head < heads; head++) {
      INNER(grains) weight = INNER(spread)(weights[head] + key);
UNROLL(4)
      for (int i = 0; i < vectors; i++) sum[head][i] = INNER(dot)(sum[head][i], weight, (INNER(grains))value[i]);
    }
  }
UNROLL(4)
  for (int head = 0; head < heads; head++)
UNROLL(4)
    for (int i = 0; i < vectors; i++) store_f32(sums + head * width + i * LANES, sum[head][i]);
}

/* Some heads of a group read some keys, of the kv head that begins at `offset` from the first. */
INLINED void NAME(read_with)(const int heads, const int is_full, const Op *op, const REAL *queries, int64_t offset,
                             const Keys *keys, const int64_t *next, Reading reading) {
  const REAL *all_keys = (const REAL *)op->keys + offset, *values = (const REAL *)op->values + offset;
  NAME(Scores) all_scores;
  NAME(Weights) weights;
  float rescale[MAX_ROWS];
  for (int64_t key = 0; key < keys->count; key += LANES) {
    vec scores[SOME_HEADS];
    NAME(score_keys)(heads, is_full, op, queries, all_keys, keys->places + key, next + key, scores);
    for (int head = 0; head < heads; head++) store_f32(all_scores[head] + key, scores[head]);
  }
  NAME(weigh_keys)(heads, all_scores, keys->count, reading, rescale, weights);
  int64_t i = 0, size = op->head_dim, width = sum_width(op);
  for (; i + 4 * LANES <= size; i += 4 * LANES)
    NAME(add_values)(heads, 4, values + i, LANES, keys, next, weights, rescale, reading.sums + i, width);
  for (; i < size; i += LANES) {
    int64_t left = is_full ? LANES : size - i;
    NAME(add_values)(heads, 1, values + i, left, keys, next, weights, rescale, reading.sums + i, width);
  }
}

typedef void (*NAME(Read))(const Op *op, const REAL *queries, int64_t offset, const Keys *keys, const int64_t *next,
                           Reading reading);

#define READ(heads, is_full)                                                                                        \
  static void NAME(read_##heads##_##is_full)(const Op *op, const REAL *queries, int64_t offset, const Keys *keys,   \
                                              const int64_t *next, Reading reading) {                                \
    NAME(read_with)(heads, is_full, op, queries, offset, keys, next, reading);                                      \
  }
READ(1, 0) READ(2, 0) READ(3, 0) READ(4, 0) READ(1, 1) READ(2, 1) READ(3, 1) READ(4, 1)
#undef READ

static const NAME(Read) NAME(read)[2][SOME_HEADS + 1] = {
    {NULL, NAME(read_1_0), NAME(read_2_0), NAME(read_3_0), NAME(read_4_0)},
    {NULL, NAME(read_1_1), NAME(read_2_1), NAME(read_3_1), NAME(read_4_1)},
};

/* All heads read some keys, a few heads of a group at a time. */
static void NAME(read_keys)(const Op *op, const REAL *queries, const Keys *keys, const int64_t *next, float *memory) {
  int64_t group = group_rows(op), is_full = op->head_dim % (LANES * NAME(GRAIN)) == 0;
  for (int64_t first = 0; first < op->num_heads; first += group)
    for (int64_t head = first; head < first + group; head += SOME_HEADS) {
      NAME(Read) read = NAME(read)[is_full][smaller_int(first + group - head, SOME_HEADS)];
      read(op, queries + head * op->head_dim, first / group * op->head_dim, keys, next, reading_in(op, memory, head));
    }
}

static void NAME(fetch_keys)(const Op *op, const Keys *keys) {
  int64_t size = op->num_kv_heads * op->head_dim;
  for (int64_t key = 0; key < keys->count; key++)
    for (int64_t i = 0; i < size; i += 64 / sizeof(REAL)) {
      fetch_line((const REAL *)op->keys + keys->places[key] + i);
      fetch_line((const REAL *)op->values + keys->places[key] + i);
    }
}

/* `following` is the same member's next share, if any: the last keys of this share prefetch its first ones.
   Returns whether they did. */
static int NAME(attend_part)(const Op *op, const Step *step, const Share *share, const Share *following, int is_fetched,
                             float *memory) {
  Part part = part_of(op, share), after = {};
  if (following && is_decode(following->queries)) after = part_of(op, following);
  const REAL *queries = NAME(queries_at)(op, step, share->queries.row, 0);
  memset(memory, 0, part_floats(op) * sizeof(float));
  for (int64_t head = 0; head < op->num_heads; head++) *reading_in(op, memory, head).maximum = LOWEST_SCORE;
  Keys keys[2];
  if (part.first < part.end) find_keys(op, share->table, part.first, part.end, keys);
  if (part.first < part.end && !is_fetched) NAME(fetch_keys)(op, keys);
  for (int current = 0; part.first < part.end; current ^= 1, part.first += SOME_KEYS) {
    Keys *now = &keys[current], *next = &keys[!current];
    if (part.first + SOME_KEYS < part.end) {
      find_keys(op, share->table, part.first + SOME_KEYS, part.end, next);
    } else if (after.first < after.end) {
      find_keys(op, following->table, after.first, after.end, next);
    } else {
      next = now;
    }
    NAME(read_keys)(op, queries, now, next->places, memory);
  }
  return after.first < after.end;
}

/* -- joining parts -- */

/* Add another part's result to this one. */
static void NAME(join)(const Op *op, float *memory, float *other) {
  int64_t width = sum_width(op);
  for (int64_t head = 0; head < op->num_heads; head++) {
    Reading all = reading_in(op, memory, head), part = reading_in(op, other, head);
    float maximum = *all.maximum > *part.maximum ? *all.maximum : *part.maximum;
    float rescale = power_of_two(splat(*all.maximum - maximum))[0], weight = power_of_two(splat(*part.maximum - maximum))[0];
    for (int64_t i = 0; i < width; i++) all.sums[i] = all.sums[i] * rescale + part.sums[i] * weight;
    *all.total = *all.total * rescale + *part.total * weight;
    *all.maximum = maximum;
  }
}

static void NAME(write_reading)(const Op *op, const Step *step, const Share *share, float *memory) {
  REAL *out = NAME(out_at)(op, step, share->queries.row, 0);
  for (int64_t head = 0; head < op->num_heads; head++) {
    Reading reading = reading_in(op, memory, head);
    NAME(write_mean)(out + head * op->head_dim, reading.sums, *reading.total, op->head_dim);
  }
}
