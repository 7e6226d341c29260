"""The order of a recording's events: steps follow each other, and requests exist when an event names them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from labengine import events as ev
from labengine.record.files.codec import KINDS
from labengine.record.fold import Fold

Row = Sequence[Any]  # an event as JSON values

SLACK = 4096
"""Tokens by which an event may exceed its request's: a faulty part may emit such events, and views still draw them."""


@dataclass(slots=True)
class _Before:
    """Values before the open step, for those that it has changed."""

    tokens: dict[int, int] = field(default_factory=dict)
    skipped: dict[tuple[int, int], bool] = field(default_factory=dict)


class SequenceCheck:
    """Follows a recording row by row from its first state. Raises ValueError for a row that is impossible there.

    It keeps only the step and the number of tokens of each request. It does not check whether blocks are where the
    events say, because recordings of faulty parts must open too.
    """

    def __init__(self, state: Fold) -> None:
        self.step = state.step
        self.tokens = {request_id: len(request.token_ids) for request_id, request in state.requests.items()}
        self._prompts = {request_id: request.num_prompt_tokens for request_id, request in state.requests.items()}
        self._sizes = [group.block_size for group in state.groups]
        self._keeps_states = [group.keeps_states for group in state.groups]
        self._has_engine = bool(state.groups)
        self.is_open = False
        """True between a step's start and its end."""
        self._skipped: set[tuple[int, int]] = set()
        """(request, group) whose table has begun with null entries: allowed once, but often for states."""
        self._before_step: _Before | None = None

    def follow(self, rows: Sequence[Row]) -> None:
        """Follow rows whose columns have been checked."""
        acts = _ACTS
        for row in rows:
            if (act := acts[row[0]]) is not None:
                act(self, row)

    def matches(self, state: Fold) -> bool:
        """Return True for a state with this step, and with the same groups, requests and numbers of tokens."""
        tokens = {request_id: len(request.token_ids) for request_id, request in state.requests.items()}
        sizes = [group.block_size for group in state.groups]
        return (state.step, tokens, sizes) == (self.step, self.tokens, self._sizes)

    # -- the engine and its steps --------------------------------------------------------------------------------------

    def _engine(self, row: Row) -> None:
        if self._has_engine or self.step or self.tokens:
            raise ValueError("an engine starts in the middle of the recording")
        _, num_blocks, groups, _, null_block = row
        if not groups or null_block >= num_blocks:
            raise ValueError("an engine needs at least one group, and a null block inside the pool")
        self._has_engine, self._sizes = True, [size for _, size, _ in groups]
        self._keeps_states = [kind == "state" for kind, _, _ in groups]

    def _start(self, row: Row) -> None:
        if not self._has_engine or self.is_open or row[1] != self.step + 1:
            raise ValueError(f"step {row[1]} begins during step {self.step}, or not right after it")
        self.step, self.is_open, self._before_step = row[1], True, _Before()

    def _end(self, row: Row) -> None:
        if not self.is_open or row[1] != self.step:
            raise ValueError(f"step {row[1]} ends, but the newest is {self.step}")
        self.is_open = False

    def _fail(self, row: Row) -> None:
        if self._before_step is None or row[1] != self.step:
            raise ValueError(f"step {row[1]} fails or is rolled back, but the newest is {self.step}")

    def _roll_back(self, row: Row) -> None:
        self._fail(row)
        assert self._before_step is not None
        self.tokens.update(self._before_step.tokens)
        for key, was_skipped in self._before_step.skipped.items():
            (self._skipped.add if was_skipped else self._skipped.discard)(key)
        self.step, self.is_open, self._before_step = self.step - 1, False, None

    # -- requests ------------------------------------------------------------------------------------------------------

    def _add(self, row: Row) -> None:
        if not self._has_engine or self.is_open or row[1] in self.tokens:
            raise ValueError(f"request {row[1]} is added twice or in the middle of a step")
        if row[4] > len(row[2]):
            raise ValueError(f"request {row[1]} has generated more tokens than it has")
        self.tokens[row[1]], self._before_step = len(row[2]), None
        self._prompts[row[1]] = len(row[2]) - row[4]

    def _forget(self, row: Row) -> None:
        self._named(row[1])
        if self.is_open:
            raise ValueError(f"request {row[1]} is forgotten in the middle of a step")
        del self.tokens[row[1]], self._prompts[row[1]]
        self._before_step = None

    def _sample(self, row: Row) -> None:
        _, request_id, _, position = row
        known = self._named(request_id)
        if position != known:
            raise ValueError(f"request {request_id} has {known} tokens, but token {position} was sampled")
        if self._before_step is not None:
            self._before_step.tokens.setdefault(request_id, known)
        self.tokens[request_id] = known + 1

    def _reach(self, request_id: int, end: int) -> None:
        if end > self._named(request_id) + SLACK:
            raise ValueError(f"request {request_id} has {self.tokens[request_id]} tokens, but an event refers to {end}")

    def _named(self, request_id: int) -> int:
        tokens = self.tokens.get(request_id)
        if tokens is None:
            raise ValueError(f"no request {request_id}")
        return tokens

    def _hit(self, row: Row) -> None:
        self._reach(row[1], row[2])
        if len(row[3]) > len(self._sizes):
            raise ValueError("a hit names more groups than there are")

    def _fork(self, row: Row) -> None:
        self._reach(row[1], row[3])
        if len(row[4]) > len(self._sizes):
            raise ValueError("a fork names more groups than there are")

    def _replace_beam(self, row: Row) -> None:
        known = self._named(row[1])
        if self._before_step is not None:
            self._before_step.tokens.setdefault(row[1], known)
        self.tokens[row[1]] = self._prompts[row[1]] + len(row[2])
        self._release(row)

    def _external(self, row: Row) -> None:
        self._reach(row[1], row[2])

    def _schedule(self, row: Row) -> None:
        self._reach(row[1], row[2] + row[3])

    def _compute(self, row: Row) -> None:
        self._reach(row[1], row[2])

    def _write(self, row: Row) -> None:
        _, request_id, group, start, runs = row
        self._reach(request_id, start + sum(length for _, _, length in runs))
        if any(offset + length > self._sizes[group] for _, offset, length in runs):
            raise ValueError("a run of slots extends beyond its block")

    # -- entries of tables ---------------------------------------------------------------------------------------------

    def _at(self, request_id: int, group: int, index: int) -> None:
        self._reach(request_id, index * self._sizes[group])

    def _transfer(self, row: Row) -> None:
        for group, index, _, _ in row[2]:
            self._at(row[1], group, index)

    def _skip(self, row: Row) -> None:
        _, request_id, group, num_blocks = row
        self._at(request_id, group, num_blocks)
        if (request_id, group) in self._skipped and not self._keeps_states[group]:
            raise ValueError(f"the table of request {request_id} begins twice")
        self._note_skip((request_id, group), True)

    def _release(self, row: Row) -> None:
        self._named(row[1])
        for group in range(len(self._sizes)):
            self._note_skip((row[1], group), False)

    def _fail_load(self, row: Row) -> None:
        if row[1] in self.tokens:  # its blocks may be freed, and its table then starts over
            self._release(row)

    def _defer(self, row: Row) -> None:
        self._named(row[1])
        self._note_skip((row[1], row[2]), False)

    def _note_skip(self, key: tuple[int, int], is_skipped: bool) -> None:
        if self._before_step is not None:
            self._before_step.skipped.setdefault(key, key in self._skipped)
        (self._skipped.add if is_skipped else self._skipped.discard)(key)


_BY_NAME: dict[str, Callable[[SequenceCheck, Row], None]] = {
    "EngineStarted": SequenceCheck._engine,
    "StepStarted": SequenceCheck._start,
    "StepEnded": SequenceCheck._end,
    "StepFailed": SequenceCheck._fail,
    "StepRolledBack": SequenceCheck._roll_back,
    "RequestAdded": SequenceCheck._add,
    "PrefixHit": SequenceCheck._hit,
    "RequestForked": SequenceCheck._fork,
    "BeamReplaced": SequenceCheck._replace_beam,
    "RequestScheduled": SequenceCheck._schedule,
    "RequestPreempted": SequenceCheck._release,
    "RequestFinished": SequenceCheck._release,
    "RequestReleased": SequenceCheck._release,
    "LoadFailed": SequenceCheck._fail_load,
    "RequestForgotten": SequenceCheck._forget,
    "ExternalHit": SequenceCheck._external,
    "BlocksSkipped": SequenceCheck._skip,
    "FreeDeferred": SequenceCheck._defer,
    "SlotsWritten": SequenceCheck._write,
    "TokensComputed": SequenceCheck._compute,
    "TokenSampled": SequenceCheck._sample,
}
"""For the other kinds, only what follows from their fields is checked. LoadFailed may name a forgotten request."""


def _from_fields(kind: type[ev.Event], names: Sequence[str]) -> Callable[[SequenceCheck, Row], None] | None:
    """Return the check that a kind's fields imply: the request exists, and its table may have such entries."""
    if "transfers" in names:
        return SequenceCheck._transfer
    if not ev.paths(kind, "request"):
        return None
    request, *entry = (1 + names.index(name) for name in ("request_id", "group", "index") if name in names)
    if not ev.paths(kind, "entry", "named entry"):
        return lambda check, row: check._reach(row[request], 0)
    group, index = entry
    return lambda check, row: check._at(row[request], row[group], row[index])


_ACTS = [
    _BY_NAME.get(name) or _from_fields(kind, names) for kind, (name, *names) in zip(ev.EVENT_KINDS, KINDS, strict=True)
]
