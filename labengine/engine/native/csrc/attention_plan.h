/* The division of attention among the team, and its scratch memory.

   A share is one member's unit of work, for one request: a tile of neighbouring queries with all their keys of one
   kv head, or one query (a decode) with a part of its keys, of all heads. The query heads that share a kv head
   are a group: rows of one matrix. */
#pragma once
#include "program.h"
#include "team.h"
#include "linear_cut.h"
#include "softmax.h"

enum {
  TILE_ROWS = 192,       /* rows that use one packed tile of keys */
  TILE_KEYS = 128,
  BAND = 6,              /* rows of a tile at a time: BAND * STRIP sums and the operands stay in registers */
#if defined(__AVX512F__) || defined(__aarch64__)
  STRIP = 4,             /* vectors of columns at a time */
#else
  STRIP = 2,
#endif
  STRIP_COLUMNS = STRIP * LANES,
  WEIGHED = LANES < 2 ? 2 : LANES, /* keys at least that are weighed together: a vector, and a grain of bf16 */
  PART_KEYS = 256,       /* a decode is cut in any batch: its sums are then always joined in the same order */
  SHARES_PER_MEMBER = 4, /* or more, so that the wait for the last share is short */
};

static inline int64_t larger_int(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t smaller_int(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

/* Number of query heads that share a kv head. */
static inline int64_t group_rows(const Op *op) { return op->num_heads / op->num_kv_heads; }

/* A request's queries: the rows from `row`, at the positions from `start`. */
typedef struct {
  int64_t row, num_queries, start;
} Queries;

static inline Queries queries_of(const Step *step, int64_t request) {
  int64_t row = step->query_starts[request], num_queries = step->query_starts[request + 1] - row;
  return (Queries){row, num_queries, step->contexts[request] - num_queries};
}

static inline int64_t first_read(const Op *op, int64_t position) {
  return op->window ? larger_int(position - op->window + 1, 0) : 0;
}

/* Number of keys that a request's first query reads: for a decode all of them. */
static inline int64_t num_first_reads(const Op *op, Queries queries) {
  return larger_int(queries.start + 1 - first_read(op, queries.start), 0);
}

/* The division of an op: queries per tile. */
typedef struct {
  int64_t tile_queries;
} Cutting;

static inline int is_decode(Queries queries) { return queries.num_queries == 1; }

static inline int64_t num_parts(const Op *op, Cutting cut, Queries queries) {
  if (!is_decode(queries)) return ceil_div(queries.num_queries, cut.tile_queries);
  return larger_int(ceil_div(num_first_reads(op, queries), PART_KEYS), 1);
}

/* Number of heads whose parts are separate shares. */
static inline int64_t num_separate_heads(const Op *op, Queries queries) {
  return is_decode(queries) ? 1 : op->num_kv_heads;
}

/* Make tiles smaller until every member has work. */
static inline Cutting cut_attention(const Op *op, const Step *step, int num_members) {
  int64_t num_shares = num_members > 1 ? SHARES_PER_MEMBER * num_members : 1, num_queries = step->num_tokens;
  int64_t largest = larger_int(TILE_ROWS / group_rows(op), 1), smallest = ceil_div(largest, 4);
  int64_t share = ceil_div(num_queries * op->num_kv_heads, num_shares);
  return (Cutting){larger_int(smaller_int(largest, share), smallest)};
}

typedef struct {
  int64_t number;            /* among all shares */
  int64_t head, part, parts; /* a decode has all heads */
  Queries queries;
  const int32_t *table;
} Share;

/* Iterates over the shares, forwards only. */
typedef struct {
  int64_t request, before; /* the request, and the number of shares before its first */
} Walker;

/* Find a share; 0 if there is none. The parts of a request come last to first: the last take longest. */
static inline int find_share(Walker *walker, int64_t number, const Op *op, const Step *step, Cutting cut,
                             Share *share) {
  for (; walker->request < step->num_requests; walker->request++) {
    Queries queries = queries_of(step, walker->request);
    int64_t heads = num_separate_heads(op, queries), parts = num_parts(op, cut, queries), index = number - walker->before;
    if (index < parts * heads) {
      const int32_t *table = step->tables[op->group] + walker->request * step->table_strides[op->group];
      *share = (Share){number, index % heads, parts - 1 - index / heads, parts, queries, table};
      return 1;
    }
    walker->before += parts * heads;
  }
  return 0;
}

static inline int64_t num_shares(const Op *op, const Step *step, Cutting cut) {
  Walker walker = {};
  Share none;
  find_share(&walker, INT64_MAX, op, step, cut, &none);
  return walker.before;
}

static inline int cuts_decodes(const Op *op, const Step *step, Cutting cut) {
  for (int64_t request = 0; request < step->num_requests; request++) {
    Queries queries = queries_of(step, request);
    if (is_decode(queries) && num_parts(op, cut, queries) > 1) return 1;
  }
  return 0;
}

/* Write the offsets in the cache, in elements, of the first heads of positions first .. first + count. */
static inline void locate(const Op *op, const int32_t *table, int64_t first, int64_t count, int64_t *places) {
  int64_t stride = (int64_t)op->num_kv_heads * op->head_dim, done = 0;
  while (done < count) {
    int64_t entry = (first + done) / op->block_size, offset = (first + done) % op->block_size;
    int64_t end = smaller_int(done + op->block_size - offset, count);
    int64_t place = (table[entry] * (int64_t)op->block_size + offset) * stride;
    for (; done < end; done++, place += stride) places[done] = place;
  }
}

/* -- scratch: each member's memory, then the parts of decodes -- */

/* Number of columns of a row of sums, padding included. */
static inline int64_t sum_width(const Op *op) { return round_up(op->head_dim, STRIP_COLUMNS); }

/* Per head: weighted sums of values, the maximum score and the sum of weights. */
static inline int64_t part_floats(const Op *op) { return round_up(op->num_heads * (sum_width(op) + 2), 16); }

/* Per row of a tile: queries, sums and totals; per band: scores and weights; and a tile of keys and values. */
static inline int64_t member_floats(const Op *op) {
  int64_t rows = round_up(larger_int(TILE_ROWS, group_rows(op)) + BAND, 16), width = sum_width(op);
  return larger_int(rows * (2 * width + LANES + 1) + 2 * TILE_KEYS * (BAND + width), part_floats(op));
}

static inline int64_t attention_bytes(const Op *op, const Step *step, int num_members) {
  int64_t parts = num_shares(op, step, cut_attention(op, step, num_members));
  return (num_members * member_floats(op) + parts * part_floats(op)) * (int64_t)sizeof(float);
}

/* Bytes that step->scratch needs for these ops. */
int64_t scratch_bytes(const Op *ops, int64_t num_ops, const Step *step, int num_members) {
  int64_t bytes = 0;
  for (const Op *op = ops; op < ops + num_ops; op++) {
    if (op->kind == EMBED) bytes = larger_int(bytes, num_members * op->k * (int64_t)sizeof(float));
    if (op->kind == LINEAR) bytes = larger_int(bytes, widened_bytes(op->k, num_members));
    if (op->kind == ATTEND) bytes = larger_int(bytes, attention_bytes(op, step, num_members));
  }
  return bytes;
}
