"""Prompts and mixed steps as recorded pieces: the ops between two layers' attentions are one graph each.

    [ embedding, layer 0 up to its KV ]  attend  [ rest of layer 0, layer 1 up to its KV ]  attend  ...  [ rest, norm ]

Everything but attention works row by row, so a graph depends only on the number of rows. The step's tokens fill the
first rows of the smallest size that holds them, and the rows after them are padding, which writes no KV (slot -1).
Attention depends on lengths and contexts, which the backends take from the host (tiles, the longest query), and gets
the step's own tensors, without padding.

A complete graph would save attention's launches too. But its grids and flash-attn's `max_seqlen_q` would have to fit
the worst step, so each size would compute empty tiles for all requests; and a graph for every division into chunks and
decodes is out of the question. Regional torch.compile fuses no more than our kernels, takes a minute to compile, and
leaves its guards and launches on the host.

A step of many tokens keeps the GPU busy longer than the host needs to launch it module by module, so it does not need a
graph (see longest_piece).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import cast

import torch
from torch import Tensor

from labengine.config import GroupSpec
from labengine.engine.attention import StepAttention
from labengine.engine.forward.eager import EagerForward
from labengine.engine.forward.graphs import RecordedForward, Recorder, first_line
from labengine.engine.forward.static_step import NOWHERE
from labengine.engine.layers import DecoderLayer, LayerStep
from labengine.engine.model import PagedModel
from labengine.engine.rope import Rotations
from labengine.engine.step_tensors import GroupTensors, StepTensors

MAX_TOKENS = 2048
"""Maximum number of rows of a size, because of the memory for its activations."""
WEIGHT_TOKENS = 5e10
"""A layer's weights times tokens at which a GPU computes as long as the host launches. An H100 multiplies and adds
about 2e14 numbers per second, and a layer takes the host 0.25 ms. Slower GPUs are busy longer."""


def longest_piece(model: PagedModel, max_num_batched_tokens: int) -> int:
    """Return the most tokens for which recorded pieces save time: 2,048 for layers of 16 M weights, 229 for 218 M."""
    num_weights = sum(parameter.numel() for parameter in model.layers[0].parameters())
    return max(1, min(max_num_batched_tokens, MAX_TOKENS, int(WEIGHT_TOKENS / num_weights)))


def piece_sizes(max_tokens: int) -> list[int]:
    """Return 32, 64, 96, 128, then powers of 2 and the numbers halfway between them, and max_tokens itself.

    From 65 tokens on, at most a third of a graph's rows are padding. Each size has one graph more than layers: 28
    layers need 348 graphs for 2,048 tokens.
    """
    sizes, size = [], 32
    while size < max_tokens:
        sizes.append(size)
        size += max(32, 1 << (size.bit_length() - 2))
    return [*sizes, max_tokens]


class StaticRows:
    """Token ids, positions and slots of up to max_tokens rows, on the device: the pieces' inputs from the step."""

    def __init__(self, groups: Sequence[GroupSpec], max_tokens: int, device: torch.device) -> None:
        self._groups = groups
        self._numbers = torch.zeros(2 + len(groups), max_tokens, dtype=torch.int32, device=device)
        self._slots = self._numbers[2:]
        self._slots.fill_(NOWHERE)
        self._counts = torch.arange(max_tokens + 1, dtype=torch.int32, device=device)
        self._num_filled = 0

    def rows(self, size: int) -> StepTensors:
        """Return the first rows as decodes without a context, whose attention writes KV and does not attend."""
        token_ids, positions, *slots = self._numbers[:, :size]
        return StepTensors(
            token_ids=token_ids,
            positions=positions,
            query_lens=(1,) * size,
            context_lens=(1,) * size,
            query_starts=self._counts[: size + 1],
            contexts=torch.zeros_like(token_ids),
            sample_rows=self._counts[:0],
            groups=tuple(
                GroupTensors(spec.block_size, spec.window, its_slots, torch.zeros_like(its_slots).unsqueeze(1))
                for spec, its_slots in zip(self._groups, slots, strict=True)
            ),
        )

    def load(self, step: StepTensors) -> None:
        """Copy a step into the first rows; remaining rows of the previous step become padding."""
        before, now = self._num_filled, step.num_tokens
        self._num_filled = max(before, now)  # after an interrupt no filled row may count as padding
        sources = [step.token_ids, step.positions, *(group.slots for group in step.groups)]
        torch._foreach_copy_(list(self._numbers[:, :now]), sources)
        if now < before:
            self._slots[:, now:before].fill_(NOWHERE)
        self._num_filled = now


@dataclass(frozen=True, slots=True)
class Carried:
    """The tensors that a piece passes to the next one, besides queries."""

    stream: Tensor
    rotations: Rotations


class PiecewiseForward:
    """Runs steps of up to max_tokens through pieces, and others, or all steps if recording failed, through `eager`."""

    def __init__(
        self, eager: EagerForward, groups: Sequence[GroupSpec], max_tokens: int, recorder: Recorder
    ) -> None:  # fmt: skip
        """Record all sizes, the largest first, so that its memory serves the smaller ones."""
        self._eager = eager
        self._model, config = eager.model, eager.model.config
        device, dtype = eager.kv.device, self._model.norm.weight.dtype
        self._static: StaticRows | None = StaticRows(groups, max_tokens, device)
        heads = max_tokens, config.num_heads, config.head_dim
        # Static, because the host uses them between the graphs; one of each serves all layers and sizes.
        self._queries = torch.zeros(heads, dtype=dtype, device=device)
        self._attended = torch.zeros(heads, dtype=dtype, device=device)
        self._hidden = torch.zeros(max_tokens, config.hidden_size, dtype=dtype, device=device)
        self._caches = [eager.kv.layer(index) for index in range(config.num_layers)]
        self._sizes = piece_sizes(max_tokens)
        self._recordings: dict[int, list[RecordedForward]] = {}
        started = perf_counter()
        try:
            for size in reversed(self._sizes):
                self._recordings[size] = self._record(recorder, self._static.rows(size))
        except RuntimeError as error:
            self._drop()
            self._words = f"no {recorder.title} for other steps: {first_line(error)}"
        else:
            self._words = (
                f"{recorder.title} between attentions for other steps of up to {max_tokens} tokens "
                f"({len(self._sizes)} sizes), in {perf_counter() - started:.1f} s"
            )

    @torch.inference_mode()
    def __call__(self, step: StepTensors) -> Tensor:
        """Compute a step; see Forward."""
        if not self.takes(step):
            return self._eager(step)
        assert self._static is not None
        self._static.load(step)
        num_tokens = step.num_tokens
        prepared = [self._eager.backend.prepare(step, group) for group in step.groups]
        *pieces, last = self._recordings[self._sizes[bisect_left(self._sizes, num_tokens)]]
        queries, attended = self._queries[:num_tokens], self._attended[:num_tokens]
        scale = self._model.config.attention_scale
        for piece, cache, group in zip(pieces, self._caches, self._eager.kv.layer_groups, strict=True):
            piece()
            prepared[group].attend_into(attended, queries, cache, scale)
        last()
        return self._model.logits(self._hidden[step.sample_rows])

    def takes(self, step: StepTensors) -> bool:
        """Return True for a step that is replayed; others run module by module."""
        return bool(self._recordings) and step.num_tokens <= self._sizes[-1]

    def argmax(self, logits: Tensor) -> None:
        """Return None: the sampler computes it."""

    def describe(self) -> dict[str, str]:
        """Return the recorded sizes, or why there are none, and the eager forward's lines."""
        lines = self._eager.describe()
        return {**lines, "forward": f"{self._words}; {lines['forward']}"}

    def release(self) -> None:
        """Release the graphs first: they hold addresses of the other memory. Twice is harmless."""
        self._drop()
        self._eager.release()

    def _drop(self) -> None:
        self._recordings = {}
        self._static, self._caches = None, []
        self._queries = self._attended = self._hidden = torch.empty(0)

    # -- recording -----------------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def _record(self, recorder: Recorder, rows: StepTensors) -> list[RecordedForward]:
        """Record the pieces of one size: one per layer, and the last one."""
        writes = [self._eager.backend.prepare(rows, group) for group in rows.groups]
        num_layers = len(self._caches)
        carried: list[Carried | None] = [None] * (num_layers + 1)
        recordings = []
        for index in range(num_layers + 1):
            piece = self._last_piece if index == num_layers else self._piece
            recordings.append(recorder.record(partial(piece, index, rows, writes, carried)))
            carried[index] = None  # so that the next pieces' tensors can take its memory
        return recordings

    def _piece(
        self, index: int, rows: StepTensors, writes: Sequence[StepAttention], carried: list[Carried | None]
    ) -> Tensor:
        """Finish the previous layer, if any, and compute this layer's queries and KV."""
        before, part = carried[index], None
        if before is None:
            stream, rotations = self._model.embedding(rows.token_ids), self._eager.rotations(rows.positions)
        else:
            rotations = before.rotations
            stream, part = self._finished(index - 1, rows.num_tokens, before, writes)
        layer, layer_step = self._layer(index), self._layer_step(index, rotations, writes)
        normed, stream = self._eager.ops.add_norm(stream, part, layer.attention_norm)
        queries = layer.attention.queries(normed, layer_step)
        carried[index + 1] = Carried(stream, rotations)
        return self._queries[: rows.num_tokens].copy_(queries)

    def _last_piece(
        self, index: int, rows: StepTensors, writes: Sequence[StepAttention], carried: list[Carried | None]
    ) -> Tensor:
        """Finish the last layer, and normalize."""
        before = carried[index]
        assert before is not None, "a model has layers"
        stream, part = self._finished(index - 1, rows.num_tokens, before, writes)
        normed, _ = self._eager.ops.add_norm(stream, part, self._model.norm)
        return self._hidden[: rows.num_tokens].copy_(normed)

    def _finished(
        self, index: int, size: int, before: Carried, writes: Sequence[StepAttention]
    ) -> tuple[Tensor, Tensor]:
        """Return the stream after a layer whose attention has run, and the part still to be added to it."""
        layer = self._layer(index)
        attended = layer.attention.out(self._attended[:size].flatten(1))
        stream, part = layer.after_attention(before.stream, attended, self._layer_step(index, before.rotations, writes))
        return stream, part

    def _layer(self, index: int) -> DecoderLayer:
        return cast(DecoderLayer, self._model.layers[index])

    def _layer_step(self, index: int, rotations: Rotations, writes: Sequence[StepAttention]) -> LayerStep:
        rotation = rotations[self._model.config.rope_of(index)]
        return LayerStep(rotation, self._caches[index], writes[self._eager.kv.layer_groups[index]], self._eager.ops)
