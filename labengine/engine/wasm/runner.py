"""The runner in a page: a step plan becomes one call into WebAssembly."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nsmallest
from math import exp, fsum, log, prod
from typing import Any

from labengine.config import ConfigError
from labengine.core.beams import Likeliest
from labengine.core.connector import BlockKV
from labengine.core.step_plan import ScheduledRequest, StepPlan
from labengine.engine.splitmix import uniform
from labengine.engine.step_limits import StepLimits
from labengine.engine.wasm.program import PageProgram
from labengine.engine.wasm.weights import PageWeights


class Floats:
    """A copy of float32 numbers, with the tensor methods that the lab uses; `tolist()` gives nested lists.

    content: its bytes, in C order.
    """

    dtype = "float32"

    def __init__(self, content: bytes, shape: tuple[int, ...]) -> None:
        assert len(content) == 4 * prod(shape)
        self.content, self.shape = content, shape
        self._view = memoryview(content).cast("f", shape)

    @property
    def nbytes(self) -> int:
        """Number of bytes."""
        return len(self.content)

    def element_size(self) -> int:
        """Return the number of bytes per element."""
        return 4

    def tolist(self) -> list[Any]:
        """Return the numbers as nested lists."""
        return self._view.tolist()

    def __getitem__(self, place: tuple[int, ...]) -> float:
        """Return one number; a place has an index for each dimension."""
        return float(self._view[place])

    def __eq__(self, other: object) -> bool:
        """Return True for the same shape and the same bits."""
        return isinstance(other, Floats) and (self.shape, self.content) == (other.shape, other.content)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Floats({' x '.join(map(str, self.shape))}, float32)"


@dataclass(frozen=True, slots=True)
class PageLogits:
    """The logits of a step, which stay in the kernels' memory until the next step. number: of the step, from 1."""

    number: int


class PageRunner:
    """Computes steps with the page's weights and a separate KV pool. Like ModelRunner, independent of schedulers."""

    def __init__(self, weights: PageWeights, num_blocks: int, block_size: int, limits: StepLimits) -> None:
        """Raises ConfigError if the page has no memory left for the pool."""
        self._weights, self._block_size = weights, block_size
        self._program = PageProgram(weights, num_blocks, block_size, limits.max_num_batched_tokens, limits.max_decodes)
        self._num_steps = 0

    def forward(self, plan: StepPlan) -> PageLogits:
        """Compute the plan's tokens, and write their KV into the plan's slots only."""
        counts, stride, inputs = packed_plan(plan.in_rows.scheduled, self._block_size)
        self._program.run(counts, stride, inputs)
        self._num_steps += 1
        return PageLogits(self._num_steps)

    def sample(self, plan: StepPlan, logits: PageLogits) -> list[int]:
        """Return one token per row of plan.rows. Raises FloatingPointError for NaN logits.

        It is the same token as sampler.sample's: the highest logit, or the token drawn by seed and position.
        """
        assert logits.number == self._num_steps, "a later step has overwritten these logits"
        requests = plan.rows
        if not requests:
            return []
        rows = plan.logits_rows
        tokens, are_finite = ([found[row] for row in rows] for found in self._program.argmax(max(rows) + 1))
        if broken := [request.request_id for request, finite in zip(requests, are_finite, strict=True) if not finite]:
            raise FloatingPointError(f"logits of request {', '.join(map(str, broken))} contain NaN or infinity")
        return [self._token(*one) for one in zip(rows, requests, tokens, strict=True)]

    def likeliest(self, plan: StepPlan, logits: PageLogits, num_tokens: int) -> list[Likeliest]:
        """Return, per beam of plan.beams, its num_tokens likeliest next tokens with their log-probabilities."""
        assert logits.number == self._num_steps, "a later step has overwritten these logits"
        return [_likeliest(self._program.logits(row), num_tokens) for row, _ in plan.beams]

    def copy_block(self, group: int, block_id: int, into_block_id: int) -> None:
        """Copy a block's K and V in all layers to another block. Raises IndexError."""
        self.write_block(group, into_block_id, self.read_block(group, block_id))

    def read_block(self, group: int, block_id: int) -> dict[str, Floats]:
        """Return a copy of a block's K and V in all layers. Raises IndexError."""
        assert group == 0
        content = b"".join(self._weights.memory.read(*place) for place in self._program.block_places(block_id))
        return {"kv": Floats(content, (self._weights.sizes.num_layers, 2, *self._block_shape))}

    def write_block(self, group: int, block_id: int, kv: BlockKV | None) -> None:
        """Write a result of read_block, bit for bit. Raises IndexError, and ValueError for KV that does not fit."""
        assert group == 0
        if kv is None:
            raise ValueError(f"no KV to write to block {block_id}: it comes from a model without weights")
        places, content = self._program.block_places(block_id), bytes(kv["kv"].content)
        if len(content) != sum(size for _, size in places):
            raise ValueError(f"KV of {len(content)} bytes does not fit into block {block_id}")
        at = 0
        for address, size in places:
            self._weights.memory.write(address, content[at : at + size])
            at += size

    def kv(self, block_id: int, layer: int) -> tuple[Floats, Floats]:
        """Return copies of a block's K and V, each [block_size, num_kv_heads, head_dim]. Raises IndexError."""
        places = self._program.block_places(block_id)[2 * layer : 2 * layer + 2]
        keys, values = (Floats(self._weights.memory.read(*place), self._block_shape) for place in places)
        return keys, values

    def release(self) -> None:
        """Free the pool's memory. A second call has no effect."""
        self._program.release()

    @property
    def _block_shape(self) -> tuple[int, int, int]:
        sizes = self._weights.sizes
        return self._block_size, sizes.num_kv_heads, sizes.head_dim

    def _token(self, row: int, request: ScheduledRequest, likeliest: int) -> int:
        sampling = request.sampling
        if sampling.is_greedy:
            return likeliest
        kept = sampling.kept(self._weights.sizes.vocab_size)
        return self._program.draw(row, sampling.temperature, *kept, uniform(request.seed, request.end))


def _likeliest(logits: Sequence[float], num_tokens: int) -> Likeliest:
    """Return the likeliest tokens and their log-probabilities; among equally likely ones the lower id comes first."""
    ids = nsmallest(num_tokens, range(len(logits)), key=lambda token_id: (-logits[token_id], token_id))
    largest = logits[ids[0]]
    total = largest + log(fsum(exp(logit - largest) for logit in logits))
    return tuple((token_id, logits[token_id] - total) for token_id in ids)


def packed_plan(
    scheduled: Sequence[ScheduledRequest], block_size: int
) -> tuple[tuple[int, int, int], int, tuple[array[int], ...]]:
    """Return a step's counts of tokens, requests and sampling rows, the length of its block tables, and its inputs.

    The inputs are PageProgram.run's. Tables are as long as the longest request needs. Raises ValueError if a table or a
    run is too short, and ConfigError for several groups.
    """
    ids, positions, slots, starts, contexts, tables, rows = (array("i") for _ in range(7))
    stride = max(-(-request.end // block_size) for request in scheduled)
    starts.append(0)
    for request in scheduled:
        if len(request.block_tables) != 1:
            raise ConfigError("a page can only run models with one KV-cache group")
        ids.extend(request.token_ids)
        positions.extend(range(request.start, request.end))
        for block_id, offset, length in request.slot_runs[0]:
            first = block_id * block_size + offset
            slots.extend(range(first, first + length))
        starts.append(len(ids))
        contexts.append(request.end)
        table = request.block_tables[0][: -(-request.end // block_size)]
        if len(slots) != len(ids) or len(table) * block_size < request.end:
            raise ValueError(f"request {request.request_id} has a block table or slot runs that are too short")
        tables.extend((*table, *[0] * (stride - len(table))))
        if request.samples:
            rows.append(len(ids) - 1)
    counts = len(ids), len(scheduled), len(rows)
    return counts, stride, (ids, positions, slots, starts, contexts, tables, rows)
