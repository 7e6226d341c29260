"""Wrong changes all over the computing code, by file: name, how the place reads, and how it reads wrong."""

from __future__ import annotations

from engine.mutations.mutants import changes

STAGING = changes(
    "step_tensors.py",
    "test_step_tensors.py",
    ("the row behind the last is sampled", "[end - 1 for end,", "[min(end, ends[-1] - 1) for end,"),
    ("contexts lack the chunk", "tuple(map(add, starts, query_lens))", "tuple(starts)"),
    (
        "a table is checked to its last whole block",
        "end = -(-request.end // block_size)",
        "end = request.end // block_size",
    ),
    ("a table of equal length counts as written", "table != rows[row]:", "len(table) != len(rows[row]):"),
    ("a grown array keeps what it forgot", "self._rows, self._has_null = [], []\n", "pass\n"),
    ("offsets in blocks are forgotten", "block_id * block_size + offset for", "block_id * block_size for"),
    ("runs count as decodes if one does", "if lengths.count(1) == len(lengths)", "if 1 in lengths"),
)
LAST_COPY = changes(
    "staged_memory.py",
    "test_step_tensors.py",
    ("the last copy is not waited for", "        self._finished.synchronize()\n", ""),
    (
        "an interrupted step's copy is not noted",
        "        try:\n            yield\n        finally:\n            self._finished",
        "        if True:\n            yield\n            self._finished",
    ),
)
STATIC = changes(
    "forward/static_step.py",
    "test_static_step.py",
    ("rows are changed while they are copied", "nullcontext() if self._last_copy is None else", "nullcontext() or"),
    ("a graph reads the host's rows", "_first_rows(self._recorded, size)", "_first_rows(self._step, size)"),
    (
        "the tables of the last row stay behind",
        "num_rows * self._table_starts[-1]\n            self",
        "0\n            self",
    ),
    ("the whole memory is sent", "        self._send(max(before, now))", "        self._send(self.max_num_seqs)"),
    ("rows begin anywhere", "-(-width // STRIDE) * STRIDE for", "width for"),
    ("the host waits for the copy", "[:end], non_blocking=True)", "[:end])"),
    ("rows of the step before are not padded", "if now < before:", "if now < before - 1:"),
)
GRAPH_STAGING = changes(
    "forward/choice.py",
    "test_static_step.py",
    ("decodes are staged on the device", "if all(request.num_tokens == 1", "if all(request.num_tokens == 0"),
    ("a step that no graph holds stays on the host", "if self._takes(step):", "if True:"),
)
DEVICE = changes(
    "device.py",
    "test_device.py",
    ("a GPU keeps no number", 'if device.type != "cuda" or device.index is not None:', "if True:"),
    ("whatever the model, a T4 computes in float16", "    if fits_float16:\n", "    if True:\n"),
)
FLOAT16 = changes(
    "model_files/config_file.py",
    "test_device.py",
    ("all models fit float16", "fits_float16=family.fits_float16", "fits_float16=True"),
    ("no model fits float16", "fits_float16=family.fits_float16", "fits_float16=False"),
)
LAUNCHES = changes(
    "model_runner.py",
    "test_device.py",
    (
        "steps launch on the thread's device",
        "interrupts_allowed(), self._device_made_current(), AdviceWhenFull(self.kv_tensors):\n"
        "            logits = _row_per_token(plan, self._forward(",
        "interrupts_allowed(), AdviceWhenFull(self.kv_tensors):\n"
        "            logits = _row_per_token(plan, self._forward(",
    ),
)
TRIAL = changes(
    "model_runner.py",
    "test_pool_size.py",
    ("sampling is not measured", "runner.sample(plan, runner.forward(plan))", "runner.forward(plan)"),
    (
        "graphs are not measured",
        "made.append(runner := cls._on(weights, pool, limits, reasons))",
        "made.append(runner := cls._on(weights, pool, StepLimits(1, 1, 2), reasons))",
    ),
    ("contexts end with a trial's pool", "pool.groups, 2 * pool.num_blocks)", "pool.groups, pool.num_blocks)"),
)
TRIAL_PLANS = changes(
    "trial_memory.py",
    "test_pool_size.py",
    ("the largest chunk is not measured", "        _plan(groups, [min(num_tokens, longest)], longest),\n", ""),
    ("contexts begin with their chunk", "(0,) * length, context - length, tables", "(0,) * length, 0, tables"),
    ("what is beside torch does not count", "by_torch + max(0, _beside_torch(device) - beside)", "by_torch"),
    ("sampling is greedy", "True, True, WITH_TOP_P, number", "True, True, SamplingParams(), number"),
)
TILES = changes(
    "attention/triton.py",
    "test_triton_tiles.py",
    (
        "tiles are copied while the host waits",
        "sent(torch.from_numpy(tiles), group.slots.device)",
        "torch.from_numpy(tiles).to(group.slots.device)",
    ),
)
WINDOW = changes(
    "step_tensors.py",
    "test_attention.py",
    ("a window reads one token more", "start - window + 1)", "start - window)"),
)
GATHER = changes(
    "attention/torch_gather.py",
    "test_attention.py",
    (
        "the mask's window is one wider",
        "positions.unsqueeze(1) > query_positions - group.window",
        "positions.unsqueeze(1) >= query_positions - group.window",
    ),
    (
        "a query sees the token behind it",
        "mask = positions.unsqueeze(1) <= query_positions",
        "mask = positions.unsqueeze(1) <= query_positions + 1",
    ),
    ("the scale is torch's own", "attn_mask=mask.unsqueeze(1), scale=scale", "attn_mask=mask.unsqueeze(1)"),
    (
        "what lies behind the last query is read",
        "positions < starts + num_queries",
        "positions < starts + num_queries + 1",
    ),
    (
        "heads are grouped the other way",
        "group, num_queries, head_dim).permute(0, 3, 1, 2, 4)",
        "group, num_queries, head_dim).permute(0, 3, 2, 1, 4)",
    ),
)
ATTENTION = changes(
    "native/csrc/attention_decode.h",
    "native/test_attention.py",
    (
        "a joined part counts in full",
        "*all.total = *all.total * rescale + *part.total * weight;",
        "*all.total = *all.total * rescale + *part.total;",
    ),
    (
        "a part's totals are not scaled down",
        "reading.total[head] = reading.total[head] * rescale[head] + sum;",
        "reading.total[head] += sum;",
    ),
    (
        "a part ends one key early",
        "smaller_int(first + size, position + 1)",
        "smaller_int(first + size - 1, position + 1)",
    ),
    (
        "what lies behind the last key is weighed",
        "for (int head = 0; count < all.end && head < heads; head++) mask(",
        "for (int head = 0; count < 0 && head < heads; head++) mask(",
    ),
    (
        "keys of a vector change places",
        "places[first + k * STEPS] + i, bytes",
        "places[first * KEYS_AT_ONCE + k] + i, bytes",
    ),
)
SOFTMAX = changes(
    "native/csrc/softmax.h",
    "native/test_attention.py",
    ("masked scores are zero", "words nothing = (words)splat(-INFINITY);", "words nothing = (words)splat(0);"),
    ("the maximum so far is forgotten", "vec largest = splat(maximum[row]);", "vec largest = splat(LOWEST_SCORE);"),
)
ROWWISE = changes(
    "native/csrc/rowwise.h",
    "native/test_rowwise.py",
    ("epsilon is forgotten", "NAME(mean_square)(in, size) + op->eps", "NAME(mean_square)(in, size)"),
    (
        "values are kept in the key's place",
        "memcpy((REAL *)op->values + slot * size, keys + size",
        "memcpy((REAL *)op->values + slot * size, keys",
    ),
    ("padding is written to slot 0", "if (slot < 0) return;", "if (slot < 0) slot = 0;"),
    (
        "keys are normed as queries are",
        "op->num_kv_heads, op->weight2, rotation",
        "op->num_kv_heads, op->weight2 ? op->weight : NULL, rotation",
    ),
)
LINEAR = changes(
    "native/csrc/linear_finish.h",
    "native/test_linear.py",
    ("gelu's factor is off by a thousandth", "0.044715f", "0.0448f"),
    ("the gate is not rounded", "vec gate = NAME(rounded)(sums[0]),", "vec gate = sums[0],"),
    ("a sum is not rounded before it is added", "+ NAME(rounded)(x);", "+ x;"),
)
ARGMAX = changes(
    "native/csrc/argmax.h",
    "native/test_program.py",
    (
        "the first token wins where the tail has the best",
        "highest_logit = logits[i] > highest_logit ? logits[i] : highest_logit;",
        "",
    ),
    ("NaN in the tail is not seen", "has_nan |= logits[i] != logits[i];", ""),
)
SAMPLER = changes(
    "sampler.py",
    "test_sampler.py",
    ("a token of weight 0 may be drawn", "ends <= targets * totals", "ends < targets * totals"),
    ("top-k keeps one more", "masked_fill_(ranks >= top_k, 0.0)", "masked_fill_(ranks > top_k, 0.0)"),
    ("top-p drops the token that reaches p", "(sums - kept >= top_p * totals)", "(sums >= top_p * totals)"),
    (
        "equal logits keep the higher ids",
        "torch.arange(last, -1, -1, device=values.device)\n    return last - ",
        "torch.arange(0, last + 1, device=values.device)\n    return ",
    ),
    ("minus infinity among the logits is an error", "logits.amax(dim=-1).isfinite()", "logits.isfinite().all(dim=-1)"),
)
AHEAD = changes(
    "ahead.py",
    "test_launch_ahead.py",
    ("a launch ahead writes to any block", "if pool.num_losses > num_losses and not", "if False and not"),
    ("a launch for nothing has no pause", "self._may_launch_at = self.step_number + PAUSE", "pass"),
)
LAUNCHED = changes(
    "model_runner.py",
    "test_launch_ahead.py",
    ("a step is launched ahead over logits that top-p may need", " or sampled.batch.has_top_p:", ":"),
    (
        "a step_tensors of one's own gets placeholders",
        " or type(self).step_tensors is not ModelRunner.step_tensors:",
        ":",
    ),
)
LATE_TOKENS = changes(
    "step_tensors.py",
    "test_launch_ahead.py",
    ("late tokens are in the order of rows", "index_select(0, columns)", "index_select(0, columns.sort().values)"),
)
RANDOM_NUMBERS = changes(
    "splitmix.py",
    "test_sampler.py",
    (
        "positions are not mixed in",
        "splitmix64(splitmix64(seed & _MASK) + position)",
        "splitmix64(splitmix64(seed & _MASK) + position // 2)",
    ),
)
ROPE = changes(
    "rope.py",
    "test_rope.py",
    (
        "a linear rope is stretched the other way",
        "return frequencies / self.factor\n        if",
        "return frequencies * self.factor\n        if",
    ),
    ("llama3's blend is not clamped", "keep.clamp(0.0, 1.0)", "keep"),
    ("the sine's sign is wrong", "second * self.cos + first * self.sin", "second * self.cos - first * self.sin"),
)
KV = changes(
    "kv_tensors.py",
    "test_kv_tensors.py",
    ("groups do not share tensors", "self.layer_groups[:layer].count(group)", "layer"),
    (
        "a block is given away, not copied",
        "return kv.keys[block_id].clone(), kv.values[block_id].clone()",
        "return kv.keys[block_id], kv.values[block_id]",
    ),
    ("another dtype is taken", "or tensor.dtype != view.dtype", ""),
    ("keys are written twice", '"values": self.layer(layer).values', '"values": self.layer(layer).keys'),
)
SINGLE = (
    *STAGING,
    *LAST_COPY,
    *STATIC,
    *GRAPH_STAGING,
    *DEVICE,
    *FLOAT16,
    *LAUNCHES,
    *TRIAL,
    *TRIAL_PLANS,
    *TILES,
    *WINDOW,
    *GATHER,
    *ATTENTION,
    *SOFTMAX,
    *ROWWISE,
    *LINEAR,
    *ARGMAX,
    *SAMPLER,
    *AHEAD,
    *LAUNCHED,
    *LATE_TOKENS,
    *RANDOM_NUMBERS,
    *ROPE,
    *KV,
)
