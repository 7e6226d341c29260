/* Weights of a GGUF (Q4_1, Q8_0) as bf16, rounded to nearest even as sources/gguf_model.py does. */
#pragma once

enum { QUANTS = 32 }; /* of a block, with one scale */

static inline bf16 rounded_to_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

static inline float half_at(const uint8_t *bytes) {
  uint16_t half;
  memcpy(&half, bytes, 2);
  uint32_t sign = (half & 0x8000u) << 16, exponent = half >> 10 & 31, fraction = half & 1023;
  if (exponent == 0) return (sign ? -0x1p-24f : 0x1p-24f) * fraction;
  uint32_t bits = sign | (exponent == 31 ? 0xffu : exponent + 112) << 23 | fraction << 13;
  float wide;
  memcpy(&wide, &bits, 4);
  return wide;
}

/* The row of the result. heads > 0: llama.cpp has the rows of a head in pairs (2i, 2i + 1), the engine in halves
   (i, i + head_dim / 2); see _llama_restored. */
static inline uint32_t row_in_halves(uint32_t row, uint32_t rows, uint32_t heads) {
  if (!heads) return row;
  uint32_t head_dim = rows / heads, in_head = row % head_dim;
  return row - in_head + in_head % 2 * (head_dim / 2) + in_head / 2;
}

/* A block: scale, minimum, and a byte for the numbers i and i + 16. */
static void expand_rows_q4_1(const uint8_t *block, bf16 *to, uint32_t rows, uint32_t k, uint32_t heads) {
  for (uint32_t row = 0; row < rows; row++) {
    bf16 *out = to + (size_t)row_in_halves(row, rows, heads) * k;
    for (uint32_t at = 0; at < k; at += QUANTS, block += 4 + QUANTS / 2) {
      float scale = half_at(block), minimum = half_at(block + 2);
      bf16 values[16];
      for (int quant = 0; quant < 16; quant++) {
        float product = scale * quant; /* rounded by itself: not fused with the sum */
        values[quant] = rounded_to_bf16(product + minimum);
      }
      for (int i = 0; i < QUANTS / 2; i++) {
        out[at + i] = values[block[4 + i] & 15];
        out[at + QUANTS / 2 + i] = values[block[4 + i] >> 4];
      }
    }
  }
}

/* A block: scale, and a signed byte for each number. */
static void expand_rows_q8_0(const uint8_t *block, bf16 *to, uint32_t rows, uint32_t k, uint32_t heads) {
  for (uint32_t row = 0; row < rows; row++) {
    bf16 *out = to + (size_t)row_in_halves(row, rows, heads) * k;
    for (uint32_t at = 0; at < k; at += QUANTS, block += 2 + QUANTS) {
      float scale = half_at(block);
      for (int i = 0; i < QUANTS; i++) out[at + i] = rounded_to_bf16(scale * (int8_t)block[2 + i]);
    }
  }
}
