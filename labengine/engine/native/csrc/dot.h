/* The innermost step of every matrix product, for both dtypes. A lane multiplies one grain at a time: a float,
   or two bf16 that are neighbours along the summed dimension. */
#pragma once
#include "vec.h"

enum { GRAIN_f32 = 1, GRAIN_bf16 = 2 };
typedef vec grains_f32;
typedef words grains_bf16;

/* Copy one grain to all lanes. */
static inline vec spread_f32(const float *grain) { return splat(*grain); }
static inline words spread_bf16(const bf16 *grain) {
  uint32_t both;
  memcpy(&both, grain, 4);
  return both - (words){};
}

/* Copy the rest of a grain at the end of the summed dimension: missing numbers count as zero and are not read. */
static inline vec spread_last_f32(const float *grain) { return splat(*grain); }
static inline words spread_last_bf16(const bf16 *grain) { return (uint32_t)*grain - (words){}; }

/* sum + a * b, per lane. */
static inline vec dot_f32(vec sum, vec a, vec b) { return sum + a * b; }
static inline vec dot_bf16(vec sum, words a, words b) {
#if defined(__AVX512BF16__) && defined(__AVX512F__)
  return (vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#else
  sum += (vec)(a << 16) * (vec)(b << 16);
  return sum + (vec)(a & 0xffff0000) * (vec)(b & 0xffff0000);
#endif
}
