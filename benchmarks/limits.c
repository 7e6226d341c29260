/* What a core can do at best: reading memory, and multiplying numbers that never leave its registers.
   One call is one thread's part; limits.py calls from several threads at once. */
#include <stdint.h>

#if defined(__AVX512F__)
enum { WIDTH = 64 };
#elif defined(__AVX__)
enum { WIDTH = 32 };
#else
enum { WIDTH = 16 };
#endif
enum { LANES = WIDTH / 4, ACCUMULATORS = 12 };

typedef float Floats __attribute__((vector_size(WIDTH)));
typedef uint64_t Words __attribute__((vector_size(WIDTH), aligned(8)));

/* Reads num_bytes once, in streams side by side; the sum keeps the compiler from leaving it out. */
uint64_t read_memory(const char *memory, int64_t num_bytes, int64_t num_streams) {
  Words sums[8] = {0};
  int64_t part = num_bytes / num_streams;
  for (int64_t at = 0; at + 8 * WIDTH <= part; at += 8 * WIDTH)
    for (int64_t stream = 0; stream < num_streams; stream++) {
      const char *here = memory + stream * part + at;
      for (int i = 0; i < 8; i++) {
        __builtin_prefetch(here + i * WIDTH + 1024);
        sums[i] += *(const Words *)(here + i * WIDTH);
      }
    }
  uint64_t sum = 0;
  for (int i = 0; i < 8; i++)
    for (int lane = 0; lane < WIDTH / 8; lane++) sum += sums[i][lane];
  return sum;
}

static float total(const Floats *sums) {
  float sum = 0;
  for (int i = 0; i < ACCUMULATORS; i++)
    for (int lane = 0; lane < LANES; lane++) sum += sums[i][lane];
  return sum;
}

/* Fused multiply-adds in fp32; one round is flops_per_round_f32() operations. */
float multiply_f32(int64_t rounds, float factor) {
  Floats sums[ACCUMULATORS], factors, addends;
  for (int lane = 0; lane < LANES; lane++) factors[lane] = factor, addends[lane] = factor / 2;
  for (int i = 0; i < ACCUMULATORS; i++) sums[i] = factors + (float)i;
  for (int64_t round = 0; round < rounds; round++)
    for (int i = 0; i < ACCUMULATORS; i++) sums[i] = sums[i] * factors + addends;
  return total(sums);
}

int64_t flops_per_round_f32(void) { return 2 * LANES * ACCUMULATORS; }

/* Products of pairs of bf16, accumulated in fp32. 0 operations a round: this processor has no such instruction. */
#if defined(__AVX512BF16__)
#include <immintrin.h>
float multiply_bf16(int64_t rounds, float factor) {
  __m512 sums[ACCUMULATORS];
  __m512bh factors = _mm512_cvtne2ps_pbh(_mm512_set1_ps(factor), _mm512_set1_ps(-factor));
  for (int i = 0; i < ACCUMULATORS; i++) sums[i] = _mm512_set1_ps(i);
  for (int64_t round = 0; round < rounds; round++)
    for (int i = 0; i < ACCUMULATORS; i++) sums[i] = _mm512_dpbf16_ps(sums[i], factors, factors);
  return total((const Floats *)sums);
}
int64_t flops_per_round_bf16(void) { return 2 * 2 * LANES * ACCUMULATORS; }
#else
float multiply_bf16(int64_t rounds, float factor) { return rounds * factor; }
int64_t flops_per_round_bf16(void) { return 0; }
#endif
