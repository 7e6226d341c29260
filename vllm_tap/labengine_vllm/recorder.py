"""The unsent rows of one engine, and the state shared by the observers of its methods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from labengine_vllm import kinds
from labengine_vllm.tokens import TokenIds

Row = tuple[Any, ...]

MANY_INPUTS = 256
"""Most inputs sent without a row, because a stuck scheduler is called forever."""


class Owner:
    """The request and the table whose blocks are being freed. index_of: each block's index in the table."""

    __slots__ = ("group", "index_of", "reason", "request_id")

    def __init__(self, request_id: int, group: int, index_of: dict[int, int], reason: str) -> None:
        self.request_id, self.group, self.index_of, self.reason = request_id, group, index_of, reason


class Recorder:
    """Collects rows while `is_listening`. Requests get numbers; their names in vLLM are sent beside the rows.

    `lose` ends listening: from then on the state is unknown until the next keyframe.
    """

    def __init__(self, tokens: TokenIds) -> None:
        self.tokens = tokens
        self.is_listening = False
        self.lost: str | None = None
        self.lost_by = ""
        """The reason that rows are missing since the last one sent, or None."""
        self.lost_in: int | None = None
        """The request whose blocks were being cached when rows began to be missing, or None."""
        self.rows: list[Row] = []
        self.step = 0
        self.ids: dict[str, int] = {}
        self.new_names: dict[int, str] = {}
        """Unsent names of requests."""
        self.inputs: list[tuple[Any, ...]] = []
        """Inputs from outside the scheduler: (rows before it, word, further values), see `note`."""
        self.pins: Counter[int] = Counter()
        """Per block: references outside tables."""
        self.holding: set[str] = set()
        """Finished requests that hold their blocks for a connector."""
        self.loads: dict[str, tuple[int, int]] = {}
        """Per request: its tokens [start, end) that a connector should load."""
        self.loading: dict[str, int] = {}
        """Requests that wait for a load, with the number of computed tokens before it."""
        self.has_loaded: set[str] = set()
        """Requests that have waited for a load since their preemption, and wait like new ones."""
        self.asked: set[bytes] = set()
        """Block hashes used in look-ups of requests since the newest keyframe."""
        self._num_ids = 0
        self._num_rows_at_start: int | None = None
        """Length of `rows` after the open step's StepStarted; -1 once that row was taken; None between steps."""
        self.forget_context()

    def forget_context(self) -> None:
        """Forget the call under way, because it has raised or was not observed."""
        self.owner: Owner | None = None
        self.caching: int | None = None
        self.sampling: tuple[Any, int] | None = None
        self.is_touching = self.is_moving = False
        self.free_reason, self.evict_reason = "finished", "reused"
        self.to_head: Sequence[Any] = ()
        self.to_tail: Sequence[Any] = ()

    def lose(self, why: str, by: str = "") -> None:
        """Stop listening, because of a change that no event can express, or that was not observed.

        by: vLLM's method that made the change, "Class.method"; empty if none did.
        """
        if self.lost is None:
            self.lost, self.lost_by, self.lost_in = why, by, self.caching
        self.is_listening = False
        self.forget_context()

    def note(self, word: str, *values: Any) -> None:
        """Record a call that decides nothing itself, so that a reader can make the same calls on another scheduler.

        schedule, update, reset; abort (request), salt (request, digest), arrival (request, its time, which orders equal
        priorities), unread (a request that must not read the prefix cache), drafts ((request, tokens) each), unusual
        (why no other scheduler can follow). For a reader that begins at the newest keyframe also links (request, its
        hash chain's links in the prefix map) and earlier (step, (request, number of tokens) each): the next update is
        of a step scheduled before; None for an unobserved step.
        """
        if self.is_listening:
            self.inputs.append((len(self.rows), word, *values))

    def stop_listening(self) -> None:
        """Stop listening because there is no audience, and forget unsent rows."""
        self.is_listening = False
        self.rows, self.inputs, self._num_rows_at_start = [], [], None
        self.forget_context()

    # -- steps ---------------------------------------------------------------------------------------------------------

    def open_step(self) -> None:
        """Begin the next step; an open one ends."""
        self.close_step()
        self.step += 1
        self.rows.append((kinds.STEP_STARTED, self.step))
        self._num_rows_at_start = len(self.rows)

    def close_step(self) -> None:
        """End the open step. Drop one without other rows, which only carried ids of finished requests."""
        start, self._num_rows_at_start = self._num_rows_at_start, None
        if start is None:
            return
        if start == len(self.rows):
            self.rows.pop()
            self.step -= 1
            self.inputs = [(min(place, start - 1), *words) for place, *words in self.inputs]
        else:
            self.rows.append((kinds.STEP_ENDED, self.step))

    @property
    def has_open_step(self) -> bool:
        """True between a step's start and its end."""
        return self._num_rows_at_start is not None

    # -- requests ------------------------------------------------------------------------------------------------------

    def id_of(self, name: str) -> int:
        """Return the number of a request; a new one for a new name."""
        number = self.ids.get(name)
        if number is None:
            number = self.ids[name] = self._num_ids
            self.new_names[number] = name
            self._num_ids += 1
        return number

    def forget_request(self, name: str) -> None:
        """Forget a connector's work for a request."""
        self.holding.discard(name)
        self.has_loaded.discard(name)
        self.loads.pop(name, None)
        self.loading.pop(name, None)

    def keep_ids(self, names: Any) -> None:
        """Forget the numbers of all requests but these, and give each of these a number."""
        self.ids = {name: self.id_of(name) for name in names}
        self.new_names = {number: name for name, number in self.ids.items()}

    # -- sending -------------------------------------------------------------------------------------------------------

    def take(self) -> tuple[list[Row], list[tuple[Any, ...]], dict[int, str]]:
        """Return the unsent rows, inputs and names, and forget them.

        An open step without rows is kept back.
        """
        if self._num_rows_at_start == len(self.rows) or not (self.rows or len(self.inputs) >= MANY_INPUTS):
            return [], [], {}
        rows, self.rows = self.rows, []
        names, self.new_names = self.new_names, {}
        inputs, self.inputs = self.inputs, []
        if self._num_rows_at_start is not None:
            self._num_rows_at_start = -1
        return rows, inputs, names

    def start_again(self) -> None:
        """Forget the rows and listen from now on; a keyframe comes next. Inputs of steps without rows are kept."""
        if self.lost is not None:
            self.inputs = []
        self.rows, self._num_rows_at_start, self.lost = [], None, None
        self.forget_context()
        self.is_listening = True
