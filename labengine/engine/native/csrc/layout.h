/* Layout of structs and enums, which native/layout.py compares with its own before any call: with another layout the
   library would read and write wrong memory. Names and numbers are in its order. */
#pragma once
#include "program.h"
#include <stddef.h>

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

#define FIELD_NAME(type, name) #type "." #name " "
#define FIELD_LAYOUT(type, name) offsetof(type, name), sizeof(((type *)0)->name),
#define ENUM_NAME(name) #name " "
#define ENUM_VALUE(name) name,

const char labengine_names[] = OP_FIELDS(FIELD_NAME) STEP_FIELDS(FIELD_NAME) ENUMS(ENUM_NAME);
const int64_t labengine_layout[] = {
    OP_FIELDS(FIELD_LAYOUT) STEP_FIELDS(FIELD_LAYOUT) ENUMS(ENUM_VALUE) sizeof(Op), sizeof(Step),
};
const int64_t labengine_layout_count = sizeof labengine_layout / sizeof *labengine_layout;
