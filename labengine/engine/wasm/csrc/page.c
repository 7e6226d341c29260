/* The CPU kernels for a web page: WebAssembly with 128-bit vectors and one thread. The exports take 32-bit numbers,
   which JavaScript has; memory is malloc's, as the team's is. */
#include "labengine.c"
#include "narrow.h"
#include "expand.h"
#include "draw.h"

#define EXPORT(name) __attribute__((export_name(#name)))

EXPORT(take_memory) void *take_memory(uint32_t bytes) { return aligned_new(bytes); }
EXPORT(give_memory) void give_memory(void *memory) { aligned_free(memory); }

/* -- weights -- */

EXPORT(packed_bytes) uint32_t packed_bytes(uint32_t n, uint32_t k) { return packed_size_bf16(n, k) * sizeof(bf16); }
EXPORT(pack_rows) void pack_rows(const bf16 *rows, bf16 *packed, uint32_t n, uint32_t k, int is_gated) {
  pack_bf16(rows, packed, n, k, is_gated);
}
EXPORT(expand_q4_1) void expand_q4_1(const uint8_t *from, bf16 *to, uint32_t rows, uint32_t k, uint32_t heads) {
  expand_rows_q4_1(from, to, rows, k, heads);
}
EXPORT(expand_q8_0) void expand_q8_0(const uint8_t *from, bf16 *to, uint32_t rows, uint32_t k, uint32_t heads) {
  expand_rows_q8_0(from, to, rows, k, heads);
}
EXPORT(round_floats) void round_floats(const float *from, float *to, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) to[i] = wide_bf16(rounded_to_bf16(from[i]));
}

/* -- a step -- */

/* The numbers that native/layout.py compares with its own. */
EXPORT(layout_numbers) const int64_t *layout_numbers(void) { return labengine_layout; }
EXPORT(num_layout_numbers) uint32_t num_layout_numbers(void) { return labengine_layout_count; }

static Team *the_team(void) {
  static Team *team;
  return team ? team : (team = team_new(1));
}

EXPORT(scratch_needed) uint32_t scratch_needed(const Op *ops, uint32_t num_ops, const Step *step) {
  return scratch_bytes(ops, num_ops, step, 1);
}
EXPORT(run_step) void run_step(const Op *ops, uint32_t num_ops, const Step *step) {
  run_program_narrow(the_team(), ops, num_ops, step);
}
EXPORT(draw_token) int32_t draw_token(const float *logits, uint32_t size, double temperature, uint32_t top_k,
                                      double top_p, double target) {
  return draw(logits, size, temperature, top_k, top_p, target);
}
