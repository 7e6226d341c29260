/* Programs with weights of bf16 and all other numbers of float32: half the memory of a float32 model, and its results
   bit by bit where the weights were rounded to bf16 anyway. Weights of norms are float32. */
#pragma once

static void op_embed_narrow(const Op *op, const Step *step, Team *team, int member) {
  (void)member;
  float *out = step->buffers[op->out];
  for (Rows rows; take_rows(team, step->num_tokens, &rows);)
    for (int64_t row = rows.begin; row < rows.end; row++)
      unpack_row_bf16(op->weight, op->n, op->k, step->token_ids[row], out + row * op->k);
}

/* A panel with many tiles is widened once, by its first tile; one with few is widened as it is read. */
static void op_linear_narrow(const Op *op, const Step *step, Team *team, int member) {
  int64_t rows = op->is_sampling ? step->num_sampling : step->num_tokens, k = op->k, widened = -1;
  Cut cut = cut_product(rows, op->n, k * sizeof(float));
  const float *in = step->buffers[op->in];
  float *room = (float *)step->scratch + member * widened_floats(&cut, k);
  for (Run run = take_run(team, &cut); run.tile < cut.tiles; run = after_tile(run, team, &cut)) {
    Tile tile = nth_tile(&cut, run.tile);
    const bf16 *panel = (const bf16 *)op->weight + tile.panel * panel_size_bf16(k);
    const float *first = in + tile.first_row * k;
    float *kept = tile.panel_tiles >= MIN_TILES_WIDENED ? room : NULL;
    vec sums[MAX_TILE][2];
    if (kept && widened == tile.panel)
      multiply_rows_f32[tile.num_rows](first, kept, NULL, 0, k, sums);
    else
      multiply_rows_in_flight[tile.num_rows](first, panel, NULL, cut.rows < MIN_ROWS_AHEAD_bf16, kept, k, sums);
    if (kept) widened = tile.panel;
    finish_tile_f32(op->finish, place_of_f32(op, step, tile.first_row, tile.panel), tile.num_rows, sums);
  }
}

static void walk_narrow(Team *team, int member, void *argument) {
  const Walk_f32 *walk = argument;
  for (const Op *op = walk->ops; op < walk->ops + walk->num_ops; op++) {
    if (op->kind == EMBED) op_embed_narrow(op, walk->step, team, member);
    else if (op->kind == LINEAR) op_linear_narrow(op, walk->step, team, member);
    else op_functions_f32[op->kind](op, walk->step, team, member);
    barrier(team);
  }
}

static void run_program_narrow(Team *team, const Op *ops, int64_t num_ops, const Step *step) {
  Walk_f32 walk = {ops, num_ops, step, NULL};
  work_together(team, walk_narrow, &walk);
}
