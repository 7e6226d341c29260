/* A step as data: a list of ops over numbered buffers, made once per model, and each step's inputs.
   native/layout.py mirrors these structs field by field, and the tables at the end let it verify that. */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { MAX_GROUPS = 16, MAX_BUFFERS = 32 };

typedef enum {
  EMBED,     /* out = rows of the packed table `weight` [n, k], by token id, times scale */
  ROTATION,  /* out[row] = cos (k floats), sin (k floats) of position * weight[i], float32; k = head_dim / 2 */
  NORM,      /* out = rms_norm(in) * weight, k wide; `other` >= 0: added to the result */
  LINEAR,    /* out = in [rows, k] x packed `weight` [n, k] transposed, finished as `finish` says */
  ROTATE,      /* queries and keys in `in` normed (if weights) and rotated by `other`; keys and values to their slots */
  ATTEND,    /* out = attention of the queries in `in` over the cache */
  ARGMAX,      /* out = tokens of the highest of n logits, then whether they are finite: int32 [2, sampling] */
} OpKind;

typedef enum {
  PLAIN,     /* as it is */
  ADD,       /* other + product */
  SILU_MUL,  /* silu(gate) * up: n counts both halves, out is n / 2 wide */
  GELU_MUL,  /* gelu_tanh(gate) * up */
  TO_FLOAT,  /* float32 out, whatever the dtype */
} Finish;

typedef struct {
  int32_t kind, finish;
  int32_t in, other, out;      /* numbers of buffers; -1: none */
  int32_t is_sampling;         /* the rows are the sampling ones: NORM reads them from all, later ops have but them */
  int32_t norm_offset;         /* NORM, ROTATE: weights count from 1, and the product is rounded once (Gemma) */
  int32_t group;
  int64_t n, k;
  const void *weight, *weight2; /* ROTATE: norm of queries, of keys */
  float eps, scale;
  void *keys, *values;          /* the layer's cache [blocks, block_size, kv_heads, head_dim] */
  int32_t num_heads, num_kv_heads, head_dim, block_size, window; /* window 0: none */
} Op;

typedef struct {
  int64_t num_tokens, num_requests, num_sampling;
  const int32_t *token_ids, *positions, *query_starts, *contexts, *sample_rows;
  const int32_t *slots[MAX_GROUPS], *tables[MAX_GROUPS];
  int64_t table_strides[MAX_GROUPS];
  void *buffers[MAX_BUFFERS];
  void *scratch;               /* see scratch_bytes() */
} Step;

/* Layout of these structs and enums, in the order of native/layout.py: with another layout the library would read and
   write wrong memory. */
#define OP_FIELDS(X)                                                                                                   \
  X(Op, kind) X(Op, finish) X(Op, in) X(Op, other) X(Op, out) X(Op, is_sampling) X(Op, norm_offset) X(Op, group)       \
  X(Op, n) X(Op, k) X(Op, weight) X(Op, weight2) X(Op, eps) X(Op, scale) X(Op, keys) X(Op, values) X(Op, num_heads)    \
  X(Op, num_kv_heads) X(Op, head_dim) X(Op, block_size) X(Op, window)
#define STEP_FIELDS(X)                                                                                                 \
  X(Step, num_tokens) X(Step, num_requests) X(Step, num_sampling) X(Step, token_ids) X(Step, positions)                \
  X(Step, query_starts) X(Step, contexts) X(Step, sample_rows) X(Step, slots) X(Step, tables) X(Step, table_strides)   \
  X(Step, buffers) X(Step, scratch)
#define ENUMS(X)                                                                                                       \
  X(EMBED) X(ROTATION) X(NORM) X(LINEAR) X(ROTATE) X(ATTEND) X(ARGMAX) X(PLAIN) X(ADD) X(SILU_MUL) X(GELU_MUL) X(TO_FLOAT)

#define FIELD_LAYOUT(type, name) offsetof(type, name), sizeof(((type *)0)->name),
#define ENUM_VALUE(name) name,

const int64_t labengine_layout[] = {
    OP_FIELDS(FIELD_LAYOUT) STEP_FIELDS(FIELD_LAYOUT) ENUMS(ENUM_VALUE) sizeof(Op), sizeof(Step),
};
const int64_t labengine_layout_count = sizeof labengine_layout / sizeof *labengine_layout;
