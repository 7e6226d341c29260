"""The plan of one step: the scheduler's complete result, and the runner's only input."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any, NoReturn, cast

from labengine.config import SamplingParams
from labengine.core.block import BlockCopy
from labengine.core.connector import BlockTransfer

Logits = Any
"""Result of a forward pass, passed to `sample` unchanged. Any: a torch tensor, or None without weights."""


class UnsampledError(Exception):
    """A decision needed the value of a token before it was sampled, or looked where such a token may be."""

    def __init__(self, why: str = "a decision asked for a token that has not been sampled yet") -> None:
        super().__init__(why)


class _Unsampled:
    """A token that can only be stored, copied and counted, so that no decision can depend on it unnoticed."""

    __slots__ = ()

    def _refuse(self, *_: Any) -> NoReturn:
        raise UnsampledError

    __index__ = __int__ = __float__ = __hash__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __bool__ = _refuse

    def __repr__(self) -> str:
        return "UNSAMPLED"


UNSAMPLED = cast(int, _Unsampled())
"""The one placeholder; compare with `is`."""


SlotRun = tuple[int, int, int]
"""(block_id, offset, length): consecutive tokens in one block, the first at slot block_id * block_size + offset."""


@dataclass(frozen=True, slots=True)
class ScheduledRequest:
    """One request's share of a step: compute token_ids, at positions start, start + 1, ..., into slot_runs.

    Attention of the token at position p reads positions 0..p of the request (in a window group the last `window` of
    them) through block_tables.

    A state group's run is ((block_id, 0, 1),): the block whose state is read and overwritten. With start == 0 the
    forward pass begins with the zero state, whatever the block holds. Otherwise the block holds the state after `start`
    tokens; if that state was in another block, StepPlan.copies has had it copied. After the forward pass the block
    holds the state after `end` tokens. With drafts there are 1 + num_drafts runs: the first token continues from the
    first block and each draft from the block of the token before it, and each leaves its state in its own block.
    """

    request_id: int
    token_ids: tuple[int, ...]
    start: int
    block_tables: tuple[tuple[int, ...], ...]
    """Per KV-cache group; entry i holds positions [i * block_size, (i + 1) * block_size), or in a state group the state
    after at most (i + 1) * block_size tokens. Null entries are never read."""
    slot_runs: tuple[tuple[SlotRun, ...], ...]
    """Per KV-cache group; their lengths add up to num_tokens, in a state group to 1 + num_drafts. A checkpoint adds one
    more run, in front, to a state group."""
    is_prefill: bool
    samples: bool
    """True if the last scheduled token is the request's last: its logits give the next token."""
    sampling: SamplingParams
    seed: int
    """The request's sampling seed; together with the position it determines each draw."""
    num_drafts: int = 0
    """Number of guesses at the end of token_ids: the step computes them and judges them by its own tokens."""
    checkpoint: int = 0
    """Tokens after which the state groups also leave a state, inside the chunk; 0 for none, as always with drafts."""

    @property
    def is_unfilled(self) -> bool:
        """True while the last token is the placeholder UNSAMPLED."""
        return bool(self.token_ids) and self.token_ids[-1] is UNSAMPLED

    def fill_in(self, token_id: int) -> None:
        """Replace the placeholder with the sampled token. Only while no other object holds the plan."""
        _set_token_ids(self, (*self.token_ids[:-1], token_id))

    @property
    def num_tokens(self) -> int:
        """Tokens computed in this step."""
        return len(self.token_ids)

    @property
    def end(self) -> int:
        """Tokens with KV after this step; also the index of the last token that the step samples."""
        return self.start + len(self.token_ids)

    @property
    def num_known(self) -> int:
        """Tokens of the request up to the end of this step, guesses excluded."""
        return self.start + len(self.token_ids) - self.num_drafts

    def state_ends(self, group: int) -> range | tuple[int, int]:
        """Return, per run of a state group, the number of tokens after which its block holds the state."""
        if self.checkpoint and len(self.slot_runs[group]) == 2:
            return self.checkpoint, self.end
        return range(self.end - len(self.slot_runs[group]) + 1, self.end + 1)

    def rows(self) -> list[ScheduledRequest]:
        """Return the share as decodes of one token each: the request's last token, then its drafts.

        Each decode reads the KV that earlier ones write in the same forward pass. So its logits equal those of a plain
        decode, bit by bit, wherever a row's result does not depend on the batch.
        """
        if not self.num_drafts:
            return [self]
        slots = [
            [(block, offset + i, 1) for block, offset, length in runs for i in range(length)] for runs in self.slot_runs
        ]
        return [
            replace(
                self,
                token_ids=(max(token_id, 0),),  # a placeholder is computed as some token, and never accepted
                start=self.start + number,
                slot_runs=tuple((of_group[number],) for of_group in slots),
                num_drafts=0,
            )
            for number, token_id in enumerate(self.token_ids)
        ]


_NUM_DRAFTS = attrgetter("num_drafts")
_set_token_ids = ScheduledRequest.__dict__["token_ids"].__set__


class _Writable:
    """A writable object with the memory layout of a ScheduledRequest."""

    __slots__ = tuple(part.name for part in fields(ScheduledRequest))


def scheduled_request(
    *,
    request_id: int,
    token_ids: tuple[int, ...],
    start: int,
    block_tables: tuple[tuple[int, ...], ...],
    slot_runs: tuple[tuple[SlotRun, ...], ...],
    is_prefill: bool,
    samples: bool,
    sampling: SamplingParams,
    seed: int,
    num_drafts: int,
) -> ScheduledRequest:
    """Return a ScheduledRequest without a checkpoint, in a sixth of its constructor's time."""
    made: Any = _Writable()
    made.request_id = request_id
    made.token_ids = token_ids
    made.start = start
    made.block_tables = block_tables
    made.slot_runs = slot_runs
    made.is_prefill = is_prefill
    made.samples = samples
    made.sampling = sampling
    made.seed = seed
    made.num_drafts = num_drafts
    made.checkpoint = 0
    made.__class__ = ScheduledRequest
    return made  # type: ignore[no-any-return]  # a cast costs a tenth of this function


@dataclass(frozen=True, slots=True)
class StepPlan:
    """The step's batch, in the order in which the scheduler selected the requests."""

    scheduled: tuple[ScheduledRequest, ...]
    preempted: tuple[int, ...] = ()
    loads: tuple[BlockTransfer, ...] = ()
    """Blocks to fill from the external tier before the forward pass."""
    saves: tuple[BlockTransfer, ...] = ()
    """Blocks that the forward pass fills, to be copied to the external tier afterwards."""
    copies: tuple[BlockCopy, ...] = ()
    """Blocks to copy in this order before anything is loaded or computed: a later copy may overwrite a source."""
    forks: tuple[tuple[int, ScheduledRequest], ...] = ()
    """(id of a scheduled request, request that computes nothing and takes its token from that one's logits)."""
    sampling: tuple[ScheduledRequest, ...] = field(init=False, repr=False, compare=False)
    """The requests that get a token from this step: computed ones in batch order, then those of `forks`."""
    rows: tuple[ScheduledRequest, ...] = field(init=False, repr=False, compare=False)
    """Per sampled token, its request as scheduled up to there. A request of `sampling` has one row, and one more for
    each of its drafts; without drafts, `rows` is `sampling`."""

    def __post_init__(self) -> None:
        sampling = [request for request in self.scheduled if request.samples]
        has_drafts = any(map(_NUM_DRAFTS, sampling))
        if self.forks:
            sampling += [request for _, request in self.forks]
        object.__setattr__(self, "sampling", tuple(sampling))
        rows = tuple(row for request in sampling for row in request.rows()) if has_drafts else self.sampling
        object.__setattr__(self, "rows", rows)

    @property
    def in_rows(self) -> StepPlan:
        """The same step with a separate decode for each draft, as a model computes it."""
        if len(self.rows) == len(self.sampling):
            return self
        return replace(self, scheduled=tuple(row for part in self.scheduled for row in part.rows()))

    @property
    def beams(self) -> list[tuple[int, ScheduledRequest]]:
        """(index in `rows`, beam) of each computed beam whose logits give its continuations."""
        computed = self.rows[: len(self.rows) - len(self.forks)]
        return [(row, part) for row, part in enumerate(computed) if part.sampling.beams > 1]

    @property
    def logits_rows(self) -> list[int]:
        """For each of `rows`, the row of the computed logits."""
        num_computed = len(self.rows) - len(self.forks)
        last = {part.request_id: row for row, part in enumerate(self.rows[:num_computed])}
        return [*range(num_computed), *(last[request_id] for request_id, _ in self.forks)]

    @property
    def num_tokens(self) -> int:
        """Tokens computed in this step, over all requests."""
        return sum(request.num_tokens for request in self.scheduled)

    def written_blocks(self) -> set[int]:
        """Return the ids of all blocks to which the forward pass writes KV."""
        return {block_id for request in self.scheduled for runs in request.slot_runs for block_id, _, _ in runs}
