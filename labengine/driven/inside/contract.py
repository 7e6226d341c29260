"""What a driver file must be: tables of plain requirements, checked on a few requests. See docs/add-a-driver.md."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any

PROMPT, MAX_TOKENS = [7, 8, 9, 10, 11], 2
STATUSES = ("waiting", "running")


def is_text(value: Any) -> bool:
    """Return whether a value is a text that is not empty."""
    return isinstance(value, str) and bool(value)


def is_numbers(value: Any) -> bool:
    """Return whether a value is a list of int."""
    return type(value) is list and all(type(one) is int for one in value)


def is_blocks(value: Any, num_blocks: int) -> bool:
    """Return whether a value is a list of block ids."""
    return is_numbers(value) and all(0 <= one < num_blocks for one in value)


def is_request(value: Any, num_blocks: int) -> bool:
    """Return whether a value is [status, [table]]."""
    if type(value) is not list or len(value) != 2 or value[0] not in STATUSES:
        return False
    return type(value[1]) is list and len(value[1]) == 1 and is_blocks(value[1][0], num_blocks)


def is_node(value: Any, num_blocks: int) -> bool:
    """Return whether a value is [number, parent, locks, block ids]."""
    return type(value) is list and len(value) == 4 and is_numbers(value[:3]) and is_blocks(value[3], num_blocks)


NAMES: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("VERSION", is_text, 'a text, such as "1.0"'),
    ("CORE", callable, "the class itself, without a call"),
    ("PACKAGES", lambda value: type(value) is tuple and all(map(is_text, value)), 'a tuple of names: ("engine",)'),
)
"""Names of a driver file, and what each must be."""

MEMBERS: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("is_idle", lambda value: type(value) is bool, "a property that returns True or False"),
    ("plan", lambda value: value == {}, "{} until the first step, as an attribute or a property"),
    *((name, callable, "a method") for name in ("add", "step", "state", "content_of", "abort", "reset")),
)
"""Members of a new engine."""

STATE: Mapping[str, tuple[Callable[[Any, int], bool], str]] = {
    "requests": (lambda value, _: type(value) is dict and all(map(is_text, value)), "a dict of names, which are texts"),
    "free_queue": (is_blocks, "a list of block ids"),
    "ref_counts": (lambda value, size: is_numbers(value) and len(value) == size, "a list of int, one for each block"),
    "cached": (is_blocks, "a list of block ids"),
    "null_block": (lambda value, size: value is None or is_blocks([value], size), "a block id, or None"),
    "tree": (
        lambda value, size: type(value) is list and all(is_node(one, size) for one in value),
        "a list of [number, parent, locks, block ids]",
    ),
    "holds": (lambda value, _: type(value) is dict, "{name: node}"),
}
"""Parts of a state, and what each must be."""
COUNTED, TREE = ("ref_counts", "cached"), ("tree", "holds")
"""Parts that an engine has without a prefix tree, and with one."""


def broken_promises(driving: Any, settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each requirement that a driver file does not meet; only the first is sure to be true."""
    for name, is_right, wanted in NAMES:
        if name in vars(driving) and not is_right(value := vars(driving)[name]):
            yield f"{name} is {shown(value)}: make it {wanted}"
    for name in getattr(driving, "PACKAGES", ()):
        if name not in sys.modules:
            yield f"PACKAGES has {name!r}, which this file does not import: name the modules that it imports"
    supports = driving.SUPPORTS
    yield from _one_by_one(Probe(driving.CORE, settings), supports)
    if "priority" in supports:
        yield from _by_priority(Probe(driving.CORE, {**settings, "max_num_seqs": 1, "policy": "priority"}))


def _one_by_one(probe: Probe, supports: tuple[str, ...]) -> Iterator[str]:
    """Play requests one after the other, the second like the first."""
    yield from probe.wrong_members(supports)
    yield from probe.looked()
    yield from probe.step_of_none()
    for salt in (None, None, *(("a", "b", "b") if "salt" in supports else ())):
        yield from probe.whole_request(salt)
    if "abort" in supports:
        yield from probe.aborted()
    if "reset" in supports:
        yield from probe.reset()


def _by_priority(probe: Probe) -> Iterator[str]:
    """Add a more urgent request after another one, where one can run at a time."""
    yield from probe.add(None, priority=1)
    yield from probe.add(None, priority=0)
    yield from probe.do("step", ["schedule", "update"])
    if [*probe.engine.plan] != ["1"]:
        yield "with the policy 'priority', a request with priority 0 must be scheduled before one with priority 1"


class Probe:
    """One engine, whose every call is checked."""

    def __init__(self, make_engine: Any, settings: Mapping[str, Any]) -> None:
        self._size, self._num_blocks = settings["groups"][0][0], settings["num_blocks"]
        self.engine = make_engine(settings, self._token_at)
        self.engine.after_call = self._look
        self._contents: dict[str, list[Any]] = {}
        """Per request, what content_of must return."""
        self._open: list[str] = []
        """Requests that have not ended."""
        self._looks: list[tuple[str, Any, Any]] = []
        """Per call of the newest operation: its word, the state after it, and a copy of that state."""
        self._sampled: list[tuple[str, int]] = []
        self._returned: Any = None

    def _token_at(self, name: str, position: int) -> int:
        self._sampled.append((name, position))
        return 20 + position

    def _look(self, call: str) -> None:
        state = self.engine.state()
        self._looks.append((call, state, deepcopy(state)))

    def wrong_members(self, supports: tuple[str, ...]) -> Iterator[str]:
        """Yield what is wrong with the engine's members."""
        for name, is_right, wanted in MEMBERS:
            if name in ("abort", "reset") and name not in supports:
                continue
            if not hasattr(self.engine, name):
                yield f"CORE has no {name}: make it {wanted}"
            elif not is_right(value := getattr(self.engine, name)):
                yield f"{name} is {shown(value)}: make it {wanted}"
        more: dict[str, int] = {"priority": 0} if "priority" in supports else {}
        try:
            inspect.signature(self.engine.add).bind("0", PROMPT, MAX_TOKENS, None, **more)
        except TypeError as error:
            yield f"add has {error}: declare add(name, prompt, max_tokens, salt=None{', priority=0' if more else ''})"

    # -- operations ----------------------------------------------------------------------------------------------------

    def do(self, what: str, calls: list[str] | None, *values: Any, **options: Any) -> Iterator[str]:
        """Call a method; yield what is wrong with its calls (None: any are right), its states, and the engine then."""
        self._looks, self._sampled = [], []
        self._returned = getattr(self.engine, what)(*values, **options)
        called = [call for call, *_ in self._looks]
        if calls is not None and called != calls:
            yield f"{what}() reports the calls {called} to after_call: make them {calls}"
        for _, state, copy in self._looks:
            yield from wrong_state(copy, self._num_blocks)
            if state != copy:
                yield "state() returns a list that the engine changes later: return copies"
        yield from self.looked(f" after {what}()")

    def looked(self, when: str = " at first") -> Iterator[str]:
        """Yield what is wrong between two operations."""
        state, is_idle = self.engine.state(), self.engine.is_idle
        yield from wrong_state(state, self._num_blocks)
        if {*state["requests"]} != {*self._open}:
            names = [*state["requests"]]
            yield f"state()['requests'] has {names}{when}: it must have those that have not ended, {self._open}"
        if is_idle is bool(self._open):
            yield f"is_idle is {is_idle}{when}: it must be True exactly while state() has no request"
        if not self._open and any(state.get("ref_counts", ())):
            yield f"blocks still have references{when}: {state['ref_counts']}, although no request waits or runs"
        for name, content in self._contents.items():
            if (told := self.engine.content_of(name)) != content:
                yield f"content_of({name!r}) is {shown(told)}: make it {content}, the salt (or None) and the prompt"

    def step_of_none(self) -> Iterator[str]:
        """Take a step of an idle engine."""
        yield from self.do("step", [])
        if self._returned is not False:
            yield f"step() of an idle engine returns {shown(self._returned)}: make it False"

    def add(self, salt: str | None, **options: Any) -> Iterator[str]:
        """Add a request."""
        name = str(len(self._contents))
        self._contents[name] = [salt, *PROMPT]
        self._open.append(name)
        yield from self.do("add", ["add"], name, list(PROMPT), MAX_TOKENS, salt, **options)

    def whole_request(self, salt: str | None) -> Iterator[str]:
        """Add a request, and take steps to its end."""
        before = self.engine.state()
        yield from self.add(salt)
        name = self._open[-1]
        for end in range(len(PROMPT), len(PROMPT) + MAX_TOKENS):
            if end == len(PROMPT) + MAX_TOKENS - 1:
                self._open.clear()
            yield from self.do("step", ["schedule", "update"])
            yield from self._wrong_step(name, end)
            if end == len(PROMPT):
                yield from self._wrong_start(name, before)

    def aborted(self) -> Iterator[str]:
        """Abort a running request, and once more after it has ended."""
        yield from self.add(None)
        yield from self.do("step", ["schedule", "update"])
        name = self._open.pop()
        yield from self.do("abort", ["abort"], name)
        for unknown in (name, "unknown"):
            yield from self.do("abort", None, unknown)

    def reset(self) -> Iterator[str]:
        """Forget what is cached."""
        yield from self.do("reset", ["reset"])
        if self.engine.state().get("cached"):
            yield "blocks are still cached after reset(): forget them"

    # -- judging -------------------------------------------------------------------------------------------------------

    def _wrong_step(self, name: str, end: int) -> Iterator[str]:
        """Yield what is wrong with a step that computes a request up to a position."""
        plan, starts = self.engine.plan, range(end) if end == len(PROMPT) else (end - 1,)
        if not is_plan(plan, name) or plan[name][0] not in starts or sum(plan[name]) != end:
            wanted = "make it {name: (first position, how many)} of this step alone"
            yield f"plan is {shown(plan)} after a step up to position {end - 1} of request {name}: {wanted}"
        if self._sampled != [(name, end)]:
            asked = ", ".join(f"token_at{one}" for one in self._sampled) or "no token_at"
            yield f"the step calls {asked}: make it token_at({name!r}, {end}); the prompt's first token is at 0"
        if self._returned is not True:
            yield f"step() returns {shown(self._returned)}: return True after a step, and False if nothing is scheduled"

    def _wrong_start(self, name: str, before: Mapping[str, Any]) -> Iterator[str]:
        """Yield what is wrong with the blocks of a request's first step. before: the state before it was added."""
        table, start = self._looks[0][2]["requests"][name][1][0], self.engine.plan[name][0]
        found, fresh = table[: start // self._size], table[start // self._size :]
        if self._size * len(table) < len(PROMPT):
            yield f"{len(PROMPT)} tokens have a table of {len(table)} blocks of {self._size}: use settings['groups']"
        if unknown := [*{*found} - {*before.get("cached", found)}]:
            yield f"request {name} finds blocks {unknown} in the cache: state()['cached'] must have them before"
        if found and self._contents[name][0] != self._contents.get(str(int(name) - 1), [None])[0]:
            yield f"request {name} finds blocks of another salt: the salt must be part of a block's content"
        queue = [block for block in before["free_queue"] if block not in found][: len(fresh)]
        if "ref_counts" in before and {*fresh} != {*queue}:
            wanted = "put the next block to be given away first"
            yield f"request {name} gets blocks {fresh}, but state()['free_queue'] began with {queue}: {wanted}"


def is_plan(plan: Any, name: str) -> bool:
    """Return whether a plan is of one request."""
    return type(plan) is dict and [*plan] == [name] and is_numbers([*plan[name]]) and len(plan[name]) == 2


def wrong_state(state: Any, num_blocks: int) -> Iterator[str]:
    """Yield what is wrong with a state's parts."""
    if type(state) is not dict:
        yield f"state() returns {shown(state)}: make it a dict"
        return
    for part in ("requests", "free_queue", "null_block", *(TREE if "tree" in state else COUNTED)):
        is_right, wanted = STATE[part]
        if part not in state:
            yield f"state() has no {part!r}: make it {wanted}"
        elif not is_right(state[part], num_blocks):
            yield f"state()[{part!r}] is {shown(state[part])}: make it {wanted}"
    for name, request in state["requests"].items():
        if not is_request(request, num_blocks):
            wanted = '[status, [table]], "waiting" or "running" and a list of block ids in a list'
            yield f"state()['requests'][{name!r}] is {shown(request)}: make it {wanted}"
    tables = [tables[0] for _, tables in state["requests"].values()]
    if state["null_block"] in {block for blocks in (state["free_queue"], *tables) for block in blocks}:
        yield f"block {state['null_block']} is the null_block, but is given away: make it None if every block is"


def shown(value: Any) -> str:
    """Return a plain value as Python, and of another one its type."""
    if isinstance(value, (dict, list, tuple, str, int, type(None))):
        text = repr(value)
        return text if len(text) <= 200 else f"{text[:200]}..."
    return f"of type {type(value).__name__}"
