/* The kernels against plain loops in double: no Python and no torch, so that it runs under an emulator too.
   Memory that may not be read is NaN. Prints the number of comparisons; returns 1 at the first difference. */
#include "labengine.c"
#include <stdio.h>

static const char *subject = "";
static long num_compared = 0;

static void fail(const char *what, double found, double wanted) {
  printf("%s: %s: found %.9g, wanted %.9g\n", subject, what, found, wanted);
  exit(1);
}
static void near(const char *what, double found, double wanted, double tolerance) {
  num_compared++;
  if (!(fabs(found - wanted) <= tolerance * (1 + fabs(wanted)))) fail(what, found, wanted);
}

/* -- numbers of either dtype -- */

typedef struct {
  int is_bf16;
  int64_t count;
  void *data;
} Numbers;

static Numbers unwritten(int is_bf16, int64_t count) {
  size_t bytes = count * (is_bf16 ? 2 : 4) + 128;
  void *data = aligned_new(bytes);
  memset(data, 0xff, bytes); /* NaN in both */
  return (Numbers){is_bf16, count, data};
}
static double get(Numbers numbers, int64_t i) {
  return numbers.is_bf16 ? wide_bf16(((bf16 *)numbers.data)[i]) : ((float *)numbers.data)[i];
}
static void put(Numbers numbers, int64_t i, double x) {
  if (numbers.is_bf16) ((bf16 *)numbers.data)[i] = narrow_bf16((float)x);
  else ((float *)numbers.data)[i] = (float)x;
}
static double as_stored(int is_bf16, double x) { return is_bf16 ? wide_bf16(narrow_bf16((float)x)) : (float)x; }
static double any_number(void) {
  static uint64_t state = 1;
  double sum = -2;
  for (int i = 0; i < 4; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    sum += (state >> 40) / (double)(1 << 24);
  }
  return sum * 1.7;
}
static Numbers any(int is_bf16, int64_t count, double scale) {
  Numbers numbers = unwritten(is_bf16, count);
  for (int64_t i = 0; i < count; i++) put(numbers, i, any_number() * scale);
  return numbers;
}
static void same_bits(const char *what, Numbers a, int64_t from_a, Numbers b, int64_t from_b, int64_t count) {
  size_t size = a.is_bf16 ? 2 : 4;
  num_compared += count;
  if (memcmp((char *)a.data + from_a * size, (char *)b.data + from_b * size, count * size)) fail(what, 0, 0);
}

static void run(int is_bf16, Op op, Step step, int num_threads) {
  static Team *teams[5];
  if (!teams[num_threads]) teams[num_threads] = team_new(num_threads);
  Numbers scratch = unwritten(0, scratch_bytes(&op, 1, &step, num_threads) / 4 + 16);
  step.scratch = scratch.data;
  (is_bf16 ? run_program_bf16 : run_program_f32)(teams[num_threads], &op, 1, &step, NULL);
  aligned_free(scratch.data);
}

/* -- products -- */

static Numbers packed(Numbers weight, int64_t n, int64_t k, int is_gated) {
  Numbers memory = unwritten(weight.is_bf16, weight.is_bf16 ? packed_size_bf16(n, k) : packed_size_f32(n, k));
  if (weight.is_bf16) pack_bf16(weight.data, memory.data, n, k, is_gated);
  else pack_f32(weight.data, memory.data, n, k, is_gated);
  return memory;
}

static double activated(Finish finish, double x) {
  return finish == SILU_MUL ? x / (1 + exp(-x)) : x * 0.5 * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static Numbers product(Numbers rows, Numbers memory, Numbers other, int64_t num_rows, int64_t n, int64_t k, Finish finish,
                       int num_threads) {
  Numbers out = unwritten(rows.is_bf16 && finish != TO_FLOAT, num_rows * (is_gated(finish) ? n / 2 : n));
  Op op = {.kind = LINEAR, .finish = finish, .in = 0, .other = finish == ADD ? 1 : -1, .out = 2, .n = n, .k = k};
  op.weight = memory.data;
  Step step = {.num_tokens = num_rows, .buffers = {rows.data, other.data, out.data}};
  run(rows.is_bf16, op, step, num_threads);
  return out;
}

static void try_product(int is_bf16, int64_t num_rows, int64_t n, int64_t k, Finish finish) {
  Numbers rows = any(is_bf16, num_rows * k, 1), weight = any(is_bf16, n * k, 1 / sqrt((double)k));
  Numbers other = any(is_bf16, num_rows * n, 1), memory = packed(weight, n, k, is_gated(finish));
  Numbers out = product(rows, memory, other, num_rows, n, k, finish, 1);
  Numbers beside = product(rows, memory, other, num_rows, n, k, finish, 3);
  int64_t width = is_gated(finish) ? n / 2 : n;
  double tolerance = is_bf16 ? 0x1p-6 : 1e-5;
  same_bits("a product by three threads", out, 0, beside, 0, num_rows * width);
  for (int64_t row = 0; row < num_rows; row++)
    for (int64_t i = 0; i < width; i++) {
      double sums[2] = {0, 0};
      for (int half = 0; half < 1 + is_gated(finish); half++)
        for (int64_t j = 0; j < k; j++) sums[half] += get(rows, row * k + j) * get(weight, (i + half * width) * k + j);
      double wanted = sums[0];
      if (finish == ADD) wanted = get(other, row * n + i) + as_stored(is_bf16, sums[0]);
      if (is_gated(finish)) {
        double gate = as_stored(is_bf16, sums[0]), up = as_stored(is_bf16, sums[1]);
        wanted = as_stored(is_bf16, activated(finish, gate)) * up;
      }
      near("a product", get(out, row * width + i), wanted, tolerance);
    }
  for (int64_t row = 0; row < num_rows; row += 3) {
    size_t size = is_bf16 ? 2 : 4;
    Numbers alone = {is_bf16, k, (char *)rows.data + row * k * size};
    Numbers its = {is_bf16, n, (char *)other.data + row * n * size};
    Numbers result = product(alone, memory, its, 1, n, k, finish, 1);
    same_bits("a row of a product alone", out, row * width, result, 0, width);
    aligned_free(result.data);
  }
  Numbers made[] = {rows, weight, other, memory, out, beside};
  for (int i = 0; i < 6; i++) aligned_free(made[i].data);
}

/* -- attention -- */

typedef struct {
  int num_heads, num_kv_heads, head_dim, block_size, window;
} Heads;
typedef struct {
  int64_t before, now; /* tokens whose keys are in the cache, and tokens of this step */
} Request;

enum { MAX_REQUESTS = 5, MAX_ENTRIES = 1024 };
typedef struct {
  int num_requests;
  int32_t query_starts[MAX_REQUESTS + 1], contexts[MAX_REQUESTS], tables[MAX_REQUESTS][MAX_ENTRIES];
} Batch;

static Numbers attention(Heads heads, const Batch *batch, Numbers rows, Numbers keys, Numbers values, int num_threads) {
  int64_t num_tokens = batch->query_starts[batch->num_requests];
  Numbers out = unwritten(rows.is_bf16, num_tokens * heads.num_heads * heads.head_dim);
  Op op = {.kind = ATTEND, .in = 0, .out = 1, .scale = 1 / sqrtf(heads.head_dim), .keys = keys.data, .values = values.data};
  op.num_heads = heads.num_heads, op.num_kv_heads = heads.num_kv_heads, op.head_dim = heads.head_dim;
  op.block_size = heads.block_size, op.window = heads.window;
  Step step = {.num_tokens = num_tokens, .num_requests = batch->num_requests, .buffers = {rows.data, out.data}};
  step.query_starts = batch->query_starts, step.contexts = batch->contexts;
  step.tables[0] = batch->tables[0], step.table_strides[0] = MAX_ENTRIES;
  run(rows.is_bf16, op, step, num_threads);
  return out;
}

static int64_t place_of_key(Heads heads, const Batch *batch, int request, int64_t position, int kv_head) {
  int64_t slot = batch->tables[request][position / heads.block_size] * (int64_t)heads.block_size + position % heads.block_size;
  return (slot * heads.num_kv_heads + kv_head) * heads.head_dim;
}

static void near_plain_attention(Heads heads, const Batch *batch, int request, int64_t row, Numbers rows, Numbers keys,
                                 Numbers values, Numbers out) {
  static double weights[MAX_ENTRIES * 64];
  int64_t size = heads.head_dim, width = (heads.num_heads + 2 * heads.num_kv_heads) * size;
  int64_t last = batch->contexts[request] - batch->query_starts[request + 1] + row;
  int64_t first = heads.window && last - heads.window + 1 > 0 ? last - heads.window + 1 : 0;
  for (int head = 0; head < heads.num_heads; head++) {
    int kv_head = head / (heads.num_heads / heads.num_kv_heads);
    double largest = -INFINITY, total = 0;
    for (int64_t p = first; p <= last; p++) {
      int64_t place = place_of_key(heads, batch, request, p, kv_head);
      weights[p] = 0;
      for (int64_t i = 0; i < size; i++) weights[p] += get(rows, row * width + head * size + i) * get(keys, place + i);
      weights[p] /= sqrt((double)size);
      largest = weights[p] > largest ? weights[p] : largest;
    }
    for (int64_t p = first; p <= last; p++) total += weights[p] = exp(weights[p] - largest);
    for (int64_t i = 0; i < size; i++) {
      double sum = 0;
      for (int64_t p = first; p <= last; p++)
        sum += weights[p] / total * get(values, place_of_key(heads, batch, request, p, kv_head) + i);
      near("attention", get(out, (row * heads.num_heads + head) * size + i), sum, rows.is_bf16 ? 1.5e-2 : 1e-5);
    }
  }
}

static void try_attention(int is_bf16, Heads heads, const Request *requests, int num_requests) {
  static Batch batch, alone;
  int64_t entries = 0, size = heads.head_dim, kv = (int64_t)heads.num_kv_heads * size, width = heads.num_heads * size + 2 * kv;
  memset(batch.tables, 0xff, sizeof batch.tables);
  batch.num_requests = num_requests;
  for (int r = 0; r < num_requests; r++) {
    batch.contexts[r] = requests[r].before + requests[r].now;
    batch.query_starts[r + 1] = batch.query_starts[r] + requests[r].now;
    entries += num_chunks(batch.contexts[r], heads.block_size);
  }
  int64_t num_tokens = batch.query_starts[num_requests], left = entries;
  Numbers keys = unwritten(is_bf16, entries * heads.block_size * kv), values = unwritten(is_bf16, keys.count);
  for (int r = 0; r < num_requests; r++) {
    for (int64_t e = 0; e < num_chunks(batch.contexts[r], heads.block_size); e++) batch.tables[r][e] = --left;
    int64_t first = heads.window ? requests[r].before - heads.window + 1 : 0; /* earlier ones stay NaN */
    for (int64_t p = first > 0 ? first : 0; p < batch.contexts[r]; p++)
      for (int64_t i = 0, place = place_of_key(heads, &batch, r, p, 0); i < kv; i++) {
        put(keys, place + i, any_number());
        put(values, place + i, any_number());
      }
  }
  Numbers rows = any(is_bf16, num_tokens * width, 2);
  Numbers out = attention(heads, &batch, rows, keys, values, 1), beside = attention(heads, &batch, rows, keys, values, 3);
  same_bits("attention by three threads", out, 0, beside, 0, out.count);
  for (int r = 0; r < num_requests; r++) {
    for (int64_t row = batch.query_starts[r]; row < batch.query_starts[r + 1]; row++)
      near_plain_attention(heads, &batch, r, row, rows, keys, values, out);
    alone = (Batch){.num_requests = 1, .query_starts = {0, requests[r].now}, .contexts = {batch.contexts[r]}};
    memcpy(alone.tables[0], batch.tables[r], sizeof batch.tables[r]);
    int64_t before = batch.query_starts[r] * heads.num_heads * size;
    Numbers its = {is_bf16, requests[r].now * width, (char *)rows.data + batch.query_starts[r] * width * (is_bf16 ? 2 : 4)};
    Numbers result = attention(heads, &alone, its, keys, values, 1);
    same_bits("a request's attention alone", out, before, result, 0, result.count);
    aligned_free(result.data);
  }
  Numbers made[] = {keys, values, rows, out, beside};
  for (int i = 0; i < 5; i++) aligned_free(made[i].data);
}

/* -- rows -- */

static double mean_square_of(Numbers in, int64_t from, int64_t size) {
  double sum = 0;
  for (int64_t i = 0; i < size; i++) sum += get(in, from + i) * get(in, from + i);
  return sum / size;
}

static void try_norm(int is_bf16, int64_t size, int is_offset, int is_added) {
  enum { ROWS = 21 };
  Numbers in = any(is_bf16, ROWS * size, 3), weight = any(is_bf16, size, 1), other = any(is_bf16, ROWS * size, 1);
  Numbers out = unwritten(is_bf16, ROWS * size);
  Op op = {.kind = NORM, .in = 0, .other = is_added ? 1 : -1, .out = 2, .k = size, .eps = 1e-5f, .norm_offset = is_offset};
  op.weight = weight.data;
  run(is_bf16, op, (Step){.num_tokens = ROWS, .buffers = {in.data, other.data, out.data}}, 2);
  for (int64_t row = 0; row < ROWS; row++) {
    double inverse = 1 / sqrt(mean_square_of(in, row * size, size) + 1e-5);
    for (int64_t i = 0; i < size; i++) {
      double x = get(in, row * size + i) * inverse, w = get(weight, i);
      x = is_offset ? x * (1 + w) : as_stored(is_bf16, x) * w;
      if (is_added) x = get(other, row * size + i) + as_stored(is_bf16, x);
      near("a norm", get(out, row * size + i), x, is_bf16 ? 0x1p-6 : 1e-5);
    }
  }
}

static void try_embedding(int is_bf16, int64_t size) {
  int32_t tokens[] = {89, 0, 31, 32, 33, 7};
  Numbers table = any(is_bf16, 90 * size, 1), memory = packed(table, 90, size, 0), out = unwritten(is_bf16, 6 * size);
  Op op = {.kind = EMBED, .out = 0, .n = 90, .k = size, .weight = memory.data, .scale = 1.5f};
  run(is_bf16, op, (Step){.num_tokens = 6, .token_ids = tokens, .buffers = {out.data}}, 2);
  for (int64_t i = 0; i < 6 * size; i++)
    near("an embedding", get(out, i), 1.5 * get(table, tokens[i / size] * size + i % size), is_bf16 ? 0x1p-8 : 1e-7);
}

static void try_rotation(int is_bf16, int64_t size) {
  enum { ROWS = 9 };
  int32_t positions[ROWS], slots[ROWS];
  Numbers frequencies = unwritten(0, size / 2), rotation = unwritten(0, ROWS * size), heads = any(is_bf16, ROWS * 4 * size, 1);
  Numbers before = unwritten(is_bf16, heads.count), keys = unwritten(is_bf16, ROWS * size), values = unwritten(is_bf16, ROWS * size);
  memcpy(before.data, heads.data, heads.count * (is_bf16 ? 2 : 4));
  for (int i = 0; i < ROWS; i++) positions[i] = 1 + i * i * 7, slots[i] = i == 4 ? -1 : ROWS - 1 - i;
  for (int64_t i = 0; i < size / 2; i++) put(frequencies, i, pow(10000, -2.0 * i / size));
  Step step = {.num_tokens = ROWS, .positions = positions, .slots = {slots}, .buffers = {heads.data, rotation.data}};
  run(is_bf16, (Op){.kind = ROTATION, .out = 1, .k = size / 2, .weight = frequencies.data}, step, 1);
  Op op = {.kind = ROTATE, .in = 0, .other = 1, .out = -1, .num_heads = 2, .num_kv_heads = 1, .head_dim = size};
  op.keys = keys.data, op.values = values.data;
  run(is_bf16, op, step, 2);
  for (int64_t row = 0; row < ROWS; row++) {
    for (int64_t at = row * 4 * size; at < (row * 4 + 3) * size; at += size)
      for (int64_t i = 0; i < size / 2; i++) {
        double angle = (float)positions[row] * (float)get(frequencies, i);
        double a = get(before, at + i), b = get(before, at + i + size / 2), tolerance = is_bf16 ? 0x1p-7 : 1e-5;
        near("a rotation", get(heads, at + i), a * cos(angle) - b * sin(angle), tolerance);
        near("a rotation", get(heads, at + i + size / 2), b * cos(angle) + a * sin(angle), tolerance);
      }
    if (slots[row] < 0) continue;
    same_bits("a written key", keys, slots[row] * size, heads, (row * 4 + 2) * size, size);
    same_bits("a written value", values, slots[row] * size, before, (row * 4 + 3) * size, size);
  }
}

static void try_argmax(int64_t size) {
  Numbers logits = any(0, 3 * size, 5);
  int32_t out[2][3];
  put(logits, size - 1, 99), put(logits, size + size / 2, 77), put(logits, 2 * size, NAN);
  run(0, (Op){.kind = ARGMAX, .in = 0, .out = 1, .n = size}, (Step){.num_sampling = 3, .buffers = {logits.data, out}}, 2);
  near("an argmax", out[0][0], size - 1, 0), near("an argmax", out[0][1], size / 2, 0);
  near("finite logits", out[1][0], 1, 0), near("logits with NaN", out[1][2], 0, 0);
}

int main(void) {
  static const int64_t shapes[][2] = {{2, 1}, {2, 3}, {16, 8}, {30, 31}, {32, 576}, {66, 33}, {130, 64}, {96, 577}};
  static const int64_t row_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 25, 40};
  static const Request steps[][4] = {{{0, 17}, {0, 5}, {3, 1}, {200, 1}}, {{17, 8}, {5, 1}, {0, 22}, {0, 1}}, {{700, 1}, {40, 13}, {9, 1}, {130, 70}}};
  static const int heads[][2] = {{1, 1}, {3, 1}, {9, 3}, {8, 2}, {5, 1}, {16, 1}}, sizes[] = {8, 16, 40, 64, 80, 128, 256};
  static const int blocks[] = {1, 3, 16, 256}, windows[] = {0, 1, 5, 22, 100};
  for (int is_bf16 = 0; is_bf16 < 2; is_bf16++) {
    subject = is_bf16 ? "bf16" : "float";
    for (int shape = 0; shape < 8; shape++)
      for (Finish finish = PLAIN; finish <= TO_FLOAT; finish++)
        for (int i = 0; i < 13; i++) try_product(is_bf16, row_counts[i], shapes[shape][0], shapes[shape][1], finish);
    try_product(is_bf16, 300, 70, 641, PLAIN);
    for (int step = 0; step < 3; step++) {
      for (int b = 0; b < 4; b++)
        for (int w = 0; w < 5; w++) try_attention(is_bf16, (Heads){6, 2, 32, blocks[b], windows[w]}, steps[step], 4);
    }
    for (int h = 0; h < 6; h++)
      for (int s = 0; s < 7; s++) try_attention(is_bf16, (Heads){heads[h][0], heads[h][1], sizes[s], 16, 0}, steps[0], 4);
    for (int64_t size = 1; size < 600; size = size * 3 + 4)
      for (int kind = 0; kind < 4; kind++) try_norm(is_bf16, size, kind & 1, kind >> 1), try_embedding(is_bf16, size);
    for (int s = 0; s < 7; s++) try_rotation(is_bf16, sizes[s]);
  }
  for (int64_t size = 3; size < 50000; size = size * 5 + 1) try_argmax(size);
  printf("%ld comparisons, %d lanes\n", num_compared, LANES);
  return 0;
}
