"""Ways to end a step in the middle: an error at the n-th call or return of core code, Ctrl-C wherever it can strike."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeVar

import labengine
from labengine.core.block_pool import BlockPool
from labengine.core.radix.block_pool import RadixBlockPool
from labengine.core.sglang.prefix_tree import SglangPrefixTree
from labengine.core.step_plan import StepPlan
from labengine.events import Event
from labengine.record.hooks import Hooks, Subscription
from labengine.record.snapshot import Snapshot

ROOT = str(Path(labengine.__file__).parent)
CORE, ENGINE = f"{ROOT}/core/", f"{ROOT}/engine/"


class Disturbance(BaseException):
    """What the tests raise where nothing would. No Exception: those are sometimes caught, a tier's for one."""


class ListenerFailed(Exception):
    """What a listener of the tests raises."""


T = TypeVar("T")

Point = Callable[[FrameType, str], bool]


def core_calls(frame: FrameType, event: str) -> bool:
    """Entering any function of the core, as if a part's own method raised there."""
    return event == "call" and _is_replaceable(frame)


def core_calls_of_a_step(frame: FrameType, event: str) -> bool:
    """The same, less those that take a failed step back: a second error in there has nothing left to undo it."""
    return core_calls(frame, event) and not _is_called_by("_roll_back", frame)


_QUEUES = ("free_queue.py", "waiting_queue.py")
"""They are the state itself: who calls them notes the inverse."""


def core_returns(frame: FrameType, event: str) -> bool:
    """Leaving any function of the core, as if a part called super() and raised then."""
    return event == "return" and _is_replaceable(frame) and not frame.f_code.co_filename.endswith(_QUEUES)


class SignalPoints:
    """Where CPython looks for signals: after an instruction that calls, jumps back or enters a function.

    What a signal raises there belongs to that instruction, and what a trace function raises to the next one: where the
    two have different handlers (the call is the last of a `with` block), no signal is ever raised behind the first.
    """

    _LOOKS = ("CALL", "JUMP_BACKWARD", "RESUME")

    def __init__(self) -> None:
        self._last_instruction: dict[int, tuple[CodeType, int]] = {}

    def __call__(self, frame: FrameType, event: str) -> bool:
        frame.f_trace_opcodes = True
        if event == "return":
            self._last_instruction.pop(id(frame), None)
        if event != "opcode":
            return False
        code, now = frame.f_code, frame.f_lasti
        seen, before = self._last_instruction.get(id(frame), (None, 0))
        self._last_instruction[id(frame)] = code, now
        if seen is not code or not dis.opname[code.co_code[before]].startswith(self._LOOKS):  # ids come again
            return False
        return _handler(code, before) == _handler(code, now)


def _handler(code: CodeType, offset: int) -> int | None:
    """Where an exception goes that is raised by the instruction at an offset."""
    return next((target for start, end, target in _handlers(code) if start <= offset < end), None)


@cache
def _handlers(code: CodeType) -> list[tuple[int, int, int]]:
    entries = dis._parse_exception_table(code)  # type: ignore[attr-defined]
    return [(entry.start, entry.end, entry.target) for entry in entries]


def outside_listeners(point: Point) -> Point:
    """The same points, less those in listeners. A lab's lock holds a Ctrl-C back there; an engine alone does not."""
    return lambda frame, event: point(frame, event) and not _is_called_by("emit", frame)


def _is_replaceable(frame: FrameType) -> bool:
    path, name = frame.f_code.co_filename, frame.f_code.co_name
    is_code = path.startswith(CORE) and not path.endswith(("journal.py", "state.py")) and name != "<genexpr>"
    return is_code and not _is_called_by("_forget_finished", frame)  # the step has happened by then


def _is_called_by(name: str, frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_name != name:
        frame = frame.f_back
    return frame is not None


class Countdown:
    """Counts the points that a traced call passes; at the n-th it acts, once. Lines are points only if asked for."""

    def __init__(
        self,
        point: Point,
        n: int | None = None,
        act: Callable[[], None] | None = None,
        *,
        at_lines: bool = False,
        root: str | tuple[str, ...] = ROOT,
    ) -> None:
        """root: the folder whose code is traced, or several."""
        self.num_passed = 0
        self.acted_at = ""
        """File and line of the point at which it acted; "" before."""
        self._at_lines, self._root = at_lines, root
        self._point, self._n, self._act = point, n, act

    def run(self, call: Callable[[], T]) -> T:
        """Call under trace."""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            return call()
        finally:
            sys.settrace(before)

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(self._root) and "contextlib" not in frame.f_code.co_filename:
            return None
        frame.f_trace_lines = self._at_lines  # tracing them takes most of the time
        if self._point(frame, event):
            self.num_passed += 1
            if self._act is not None and self.num_passed - 1 == self._n:
                sys.settrace(None)  # it acts once: what follows runs at full speed
                self.acted_at = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                self._act()
        return self._trace


def raise_disturbance() -> None:
    """An error from nowhere."""
    raise Disturbance


def raise_at_event(hooks: Hooks, n: int, error: type[Exception] = ListenerFailed) -> Subscription:
    """Subscribe a listener that raises at the n-th event from now on."""
    left = n

    def listen(event: Event) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise error

    return hooks.subscribe(listen)


def forgetting(snapshot: Snapshot, plan: StepPlan, pool: BlockPool) -> Snapshot:
    """The snapshot, less the cached content of the blocks that the plan writes to or loads into.

    In a prefix tree, whatever continues them is forgotten too, and free.
    """
    written = _written(plan)
    if isinstance(pool, RadixBlockPool):
        snapshot, removed = _without_nodes(snapshot, written, pool)
        written |= removed
    blocks = tuple(
        replace(block, grouped_hashes=(), token_ids=()) if block.block_id in written else block
        for block in snapshot.blocks
    )
    left = {key: tuple(i for i in ids if i not in written) for key, ids in snapshot.prefix_map.items()}
    prefix_map = {key: ids for key, ids in left.items() if ids}
    cached_free = tuple(key for key in snapshot.cached_free if key in prefix_map)
    return replace(snapshot, blocks=blocks, prefix_map=prefix_map, cached_free=cached_free)


def _without_nodes(snapshot: Snapshot, written: set[int], pool: RadixBlockPool) -> tuple[Snapshot, set[int]]:
    """Return the snapshot without the nodes from each written block on, and the blocks that were in them.

    SGLang's tree makes both halves of a node that it splits the youngest; its pages are freed to the queue's head.
    """
    nodes, removed, queue = {node.node_id: node for node in snapshot.tree}, set[int](), snapshot.free_queue
    blocks = list(snapshot.blocks)
    for block_id in sorted(written):
        if (first := next((node for node in nodes.values() if block_id in node.block_ids), None)) is None:
            continue
        below = [first.node_id]
        for node_id in below:
            below.extend(node.node_id for node in nodes.values() if node.parent_id == node_id)
        kept = first.block_ids[: first.block_ids.index(block_id)]
        if kept and isinstance(pool.tree, SglangPrefixTree):
            nodes[first.node_id] = nodes.pop(first.node_id)
        for node_id in reversed(below):
            gone = nodes[node_id].block_ids[len(kept) if node_id == first.node_id else 0 :]
            nodes[node_id] = replace(nodes[node_id], block_ids=kept if node_id == first.node_id else ())
            removed |= {*gone}
            for i in gone:
                blocks[i] = replace(blocks[i], ref_count=blocks[i].ref_count - 1)
            freed = tuple(i for i in gone if not blocks[i].ref_count)
            queue = freed + queue if pool.freed_go_to == "head" else queue + freed
    pins = {block_id: number for block_id, number in snapshot.pins.items() if block_id not in removed}
    tree = tuple(node for node in nodes.values() if node.block_ids)
    return replace(snapshot, tree=tree, blocks=tuple(blocks), pins=pins, free_queue=queue), removed


def unnumbered(snapshot: Snapshot) -> Snapshot:
    """The snapshot with its nodes named by their first blocks: a rollback may split one, whose head gets a new id."""
    names = {node.node_id: 1 + node.block_ids[0] for node in snapshot.tree}
    tree = (replace(n, node_id=names[n.node_id], parent_id=names.get(n.parent_id, 0)) for n in snapshot.tree)
    return replace(snapshot, tree=(*tree,))


def overwritten_victims(before: Snapshot, plan: StepPlan) -> list[int]:
    """Requests whose next token attends to a block that the plan took from them, and gave to others to write to."""
    own = {block_id for i in before.requests for block_id in _written_in_place(i, plan, before)}
    foreign = _written(plan) - own
    return [i for i in sorted(before.requests) if foreign & _attended_to(before, i)]


def _attended_to(snapshot: Snapshot, request_id: int) -> set[int]:
    request, blocks = snapshot.requests[request_id], set[int]()
    for group, table in zip(snapshot.groups, request.block_tables, strict=True):
        first = 0 if group.window is None else max(0, request.num_computed_tokens - group.window + 1)
        blocks.update(table[first // group.block_size :])
    return blocks


def _written_in_place(request_id: int, plan: StepPlan, before: Snapshot) -> set[int]:
    """Blocks that a request writes for the group in which it held them before."""
    parts = [part for part in plan.scheduled if part.request_id == request_id]
    tables = before.requests[request_id].block_tables
    runs = [(table, run) for part in parts for table, runs in zip(tables, part.slot_runs, strict=True) for run in runs]
    return {block_id for table, (block_id, _, _) in runs if block_id in table}


def _written(plan: StepPlan) -> set[int]:
    blocks = {block_id for request in plan.scheduled for runs in request.slot_runs for block_id, _, _ in runs}
    return blocks | {load.block_id for load in plan.loads} | {copy.into_block_id for copy in plan.copies}
