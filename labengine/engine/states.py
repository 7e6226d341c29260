"""The states that a step reads and overwrites: one block per request and state group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from labengine.engine.step_tensors import GroupTensors, StepTensors, row_ranges


@dataclass(frozen=True, slots=True)
class Chunks:
    """Chunks of a step with the same number of tokens, computed together, such as all decodes.

    rows: int64 [n * t], their rows in the step; None if they are all rows, in order. num_chunks: n. sources, blocks:
    int64 [n], the blocks of their requests' states before and after them; the same block except for drafts and
    checkpoints. is_first: bool [n]; True for a chunk that begins its request.
    """

    rows: Tensor | None
    num_chunks: int
    sources: Tensor
    blocks: Tensor
    is_first: Tensor

    def gathered(self, hidden: Tensor) -> Tensor:
        """Return the chunks' rows of [num_tokens, ...] as [n, t, ...]."""
        rows = hidden if self.rows is None else hidden[self.rows]
        return torch.unflatten(rows, 0, (self.num_chunks, -1))


class StepStates:
    """The chunks of one step in one state group, for all its layers. keeps: do not overwrite any state."""

    def __init__(self, chunks: list[Chunks], *, keeps: bool = False) -> None:
        self.chunks = chunks
        self.keeps = keeps

    @classmethod
    def looked_at(cls, block_id: int, position: int, device: torch.device) -> StepStates:
        """Return the one token at `position`. The state before it is in block_id, which is not changed."""
        blocks, is_first = torch.tensor([block_id], device=device), torch.tensor([position == 0], device=device)
        return cls([Chunks(None, 1, blocks, blocks, is_first)], keeps=True)

    @classmethod
    def prepared(cls, step: StepTensors, group: GroupTensors) -> StepStates:
        """Group the step's chunks by length. Drafts come after earlier tokens, from whose states they continue."""
        requests_of_length: dict[tuple[int, int], list[int]] = defaultdict(list)
        for request, length in enumerate(step.query_lens):
            requests_of_length[group.depths[request] if group.depths else 0, length].append(request)
        ranges, device = row_ranges(step), group.slots.device
        starts = [context - length for context, length in zip(step.context_lens, step.query_lens, strict=True)]
        is_first = torch.tensor([start == 0 for start in starts], device=device)
        covers_step = len(requests_of_length) == 1
        chunks = []
        for depth, length in sorted(requests_of_length):
            requests = requests_of_length[depth, length]
            rows = None if covers_step else [row for request in requests for row in range(*ranges[request])]
            chosen = torch.tensor(requests, device=device)
            blocks = group.slots[chosen].long()
            sources = blocks
            if depth:
                sources = group.slots[chosen - 1].long()
            elif group.sources:
                sources = torch.tensor([group.sources[request] for request in requests], device=device)
            chunks.append(
                Chunks(
                    None if rows is None else torch.tensor(rows, device=device),
                    len(requests),
                    sources,
                    blocks,
                    is_first[chosen],
                )
            )
        return cls(chunks)


class LayerStates:
    """One layer's states in one step."""

    def __init__(self, step: StepStates, tensors: Mapping[str, Tensor]) -> None:
        """tensors: the layer's share of the pool by name, each [num_blocks, ...]."""
        self._step = step
        self._tensors = tensors

    def chunks(self) -> Iterator[Chunks]:
        """Yield the step's chunks, by length."""
        yield from self._step.chunks

    def read(self, name: str, chunks: Chunks) -> Tensor:
        """Return copies of the states before the chunks, [n, ...]; zeros for first chunks, regardless of the blocks."""
        states = self._tensors[name][chunks.sources]
        return states.masked_fill_(chunks.is_first.view(-1, *[1] * (states.dim() - 1)), 0.0)

    def write(self, name: str, chunks: Chunks, states: Tensor) -> None:
        """Write the states after the chunks into their blocks; change no other block."""
        if self._step.keeps:
            return
        tensor = self._tensors[name]
        tensor.index_copy_(0, chunks.blocks, states.to(tensor.dtype))

    def joined(self, outs: list[Tensor]) -> Tensor:
        """Return the chunks' outputs, each [n, t, size], as the step's rows [num_tokens, size]."""
        chunks = self._step.chunks
        if chunks[0].rows is None:
            return outs[0].flatten(0, 1)
        num_tokens = sum(out.shape[0] * out.shape[1] for out in outs)
        joined = outs[0].new_empty(num_tokens, outs[0].shape[-1])
        for part, out in zip(chunks, outs, strict=True):
            assert part.rows is not None
            joined[part.rows] = out.flatten(0, 1)
        return joined
