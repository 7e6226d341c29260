"""A StepPlan as tensors, for the model and the attention backends. staging.py fills them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor


@dataclass(frozen=True, slots=True)
class GroupTensors:
    """The slots and block tables of the batch's tokens in one KV-cache group.

    window: tokens that a token attends to, itself included; None for all before it.
    slots: int32 [num_tokens]; the slot of each token's KV, block_id * block_size + offset. A slot below 0 is padding:
    it is not written.
    block_tables: int32 [num_requests, at least the most blocks]; entries that hold none of the positions that the
    step's tokens attend to are undefined.
    """

    block_size: int
    window: int | None
    slots: Tensor
    block_tables: Tensor


@dataclass(frozen=True, slots=True)
class StepTensors:
    """The step's batch: its requests' tokens one after the other, in the plan's order. All tensors are int32.

    Tensors live on the device and are overwritten by the next step; tuples and numbers stay on the host.

    token_ids, positions: [num_tokens].
    query_lens: tokens computed in this step, per request; context_lens: tokens that have KV after it.
    query_starts: [num_requests + 1]; request r has the rows query_starts[r] to query_starts[r + 1].
    contexts: [num_requests], context_lens on the device. 0 is padding: it reads nothing, and attends to zeros.
    sample_rows: [num_sampling]; the rows whose logits are needed.
    groups: one per KV-cache group.
    """

    token_ids: Tensor
    positions: Tensor
    query_lens: tuple[int, ...]
    context_lens: tuple[int, ...]
    query_starts: Tensor
    contexts: Tensor
    sample_rows: Tensor
    groups: tuple[GroupTensors, ...]

    @property
    def num_tokens(self) -> int:
        """Rows of the batch."""
        return self.token_ids.shape[0]

    @property
    def num_requests(self) -> int:
        """Requests of the batch, padding included."""
        return len(self.query_lens)

    @property
    def is_decode(self) -> bool:
        """True if every request computes one token: row r is request r."""
        return self.num_tokens == self.num_requests


def first_read(start: int, window: int | None) -> int:
    """Return the first position that a token at `start` attends to."""
    return 0 if window is None else max(0, start - window + 1)


def row_ranges(step: StepTensors) -> list[tuple[int, int]]:
    """Return the rows of each request, on the host."""
    ends = [0]
    for length in step.query_lens:
        ends.append(ends[-1] + length)
    return list(pairwise(ends))
