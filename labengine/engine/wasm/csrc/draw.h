/* Draws a token as sampler.draw does, in doubles: temperature, then top-k, then top-p; the tokens that are left are laid
   end to end, each as long as its probability, in order of ids, or likeliest first in a cut row. */
#pragma once

static inline double weight_of(float logit, float highest, double temperature) {
  return exp((double)(logit - highest) / temperature);
}

/* Order of _in_order in sampler.py: the highest logit first, of equals the lower id. As integers, negative floats are in
   reverse order. */
static inline uint64_t sort_key(float logit, uint32_t id, uint32_t size) {
  float value = logit + 0.0f; /* minus zero equals zero */
  int32_t bits;
  memcpy(&bits, &value, 4);
  uint32_t ordered = (uint32_t)(bits ^ (bits >> 31 & 0x7fffffff)) ^ 0x80000000u;
  return (uint64_t)ordered << 32 | (size - 1 - id);
}
static inline uint32_t id_of(uint64_t key, uint32_t size) { return size - 1 - (uint32_t)key; }

static int by_key_descending(const void *one, const void *other) {
  uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
  return (a < b) - (a > b);
}

static int32_t draw_of_all(const float *logits, uint32_t size, float highest, double temperature, double target) {
  double total = 0, sum = 0;
  for (uint32_t id = 0; id < size; id++) total += weight_of(logits[id], highest, temperature);
  for (uint32_t id = 0; id < size; id++) {
    sum += weight_of(logits[id], highest, temperature);
    if (sum > target * total || sum >= total) return id;
  }
  return size - 1;
}

/* Number of the likeliest tokens that are left; `weights` gets theirs. */
static uint32_t cut(const uint64_t *keys, const float *logits, uint32_t size, double temperature, uint32_t top_k,
                    double top_p, double *weights) {
  float highest = logits[id_of(keys[0], size)];
  double total = 0, sum = 0;
  uint32_t count = top_k && top_k < size ? top_k : size, kept = 0;
  for (uint32_t rank = 0; rank < count; rank++) {
    weights[rank] = weight_of(logits[id_of(keys[rank], size)], highest, temperature);
    if (count < size) total += weights[rank];
  }
  if (count == size) /* in order of ids, as for a row that is not cut */
    for (uint32_t id = 0; id < size; id++) total += weight_of(logits[id], highest, temperature);
  for (; kept < count && (kept == 0 || top_p >= 1 || sum < top_p * total); kept++) sum += weights[kept];
  return kept;
}

static int32_t draw_of_likeliest(const float *logits, uint32_t size, double temperature, uint32_t top_k, double top_p,
                                 double target, uint64_t *keys, double *weights) {
  double total = 0, sum = 0;
  for (uint32_t id = 0; id < size; id++) keys[id] = sort_key(logits[id], id, size);
  qsort(keys, size, sizeof *keys, by_key_descending);
  uint32_t count = cut(keys, logits, size, temperature, top_k, top_p, weights);
  for (uint32_t rank = 0; rank < count; rank++) total += weights[rank];
  for (uint32_t rank = 0; rank < count; rank++) {
    sum += weights[rank];
    if (sum > target * total || sum >= total) return id_of(keys[rank], size);
  }
  return id_of(keys[0], size);
}

/* top_k 0 and top_p 1 cut nothing. Returns -1 where there is no memory to put the tokens in order. */
static int32_t draw(const float *logits, uint32_t size, double temperature, uint32_t top_k, double top_p, double target) {
  if ((top_k == 0 || top_k >= size) && top_p >= 1) {
    float highest = logits[0];
    for (uint32_t id = 1; id < size; id++) highest = logits[id] > highest ? logits[id] : highest;
    return draw_of_all(logits, size, highest, temperature, target);
  }
  uint64_t *keys = malloc(size * (sizeof(uint64_t) + sizeof(double)));
  if (!keys) return -1;
  int32_t token = draw_of_likeliest(logits, size, temperature, top_k, top_p, target, keys, (double *)(keys + size));
  free(keys);
  return token;
}
