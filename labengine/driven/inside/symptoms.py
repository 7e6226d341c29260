"""Plays one workload on an engine, prints its state after each call, and reports what is wrong with it.

The script of a finding consists of the engine's file, this one, and the workload.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

MOST_STEPS = 400


class Symptom(Exception):
    """An error in the engine's state. rule: ref_count, one_entry, tree, plan, read, hit, token, state or end."""

    def __init__(self, message: str, rule: str) -> None:
        super().__init__(message)
        self.rule = rule


def token_at(number: int, position: int) -> int:
    """Return the token that a request samples at a position. number: its seed, or its own number."""
    return (number * 7919 + position * 104729) % 50021


def alike(name: str, position: int) -> int:
    """Return a token that depends on the position alone."""
    return token_at(0, position)


def tokens_of(settings: Mapping[str, Any]) -> Callable[[str, int], int]:
    """Return the function that knows each request's tokens: by its seed, or without "seeds" `alike`."""
    seeds = settings.get("seeds")
    return alike if seeds is None else lambda name, position: token_at(seeds[int(name)], position)


SAMPLED: list[tuple[str, int]] = []
"""Request and position of each token sampled since the newest call."""


def sampling(settings: Mapping[str, Any]) -> Callable[[str, int], int]:
    """Return the function that samples: `tokens_of`, noted in SAMPLED, which a Watching clears."""
    find = tokens_of(settings)

    def sample(name: str, position: int) -> int:
        SAMPLED.append((name, position))
        return find(name, position)

    return sample


STATE = -1
"""The place of a block's state, beside those of its tokens."""


class Contents:
    """Which prefix each slot of the cache was computed for, and each state.

    settings: their groups are [block size, window or None] or [block size, None, "state", checkpoint alignment or
    None]. States with checkpoints, or after drafts, are not followed.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._groups, self._token_at = settings["groups"], tokens_of(settings)
        self._of_tokens = [group for group, spec in enumerate(self._groups) if len(spec) == 2]
        has_drafts = bool(settings.get("speculation"))
        self._of_states = [
            group for group, spec in enumerate(self._groups) if [*spec[2:]] == ["state", None] and not has_drafts
        ]
        self._slots: dict[tuple[int, int], tuple[Any, ...]] = {}
        self._held: set[int] = set()
        """Blocks of tables after the call before."""
        self._begun: set[str] = set()
        """Requests that had blocks then."""
        self._ends: dict[str, int] = {}
        """Per request, the position after the last one ever computed."""

    def missed(self, engine: Any, state: Mapping[str, Any]) -> Iterator[str]:
        """Yield a sentence for each request that begins with fewer tokens than cached for it. Before `compute`.

        Blocks that this step has reallocated do not count. For engines that cache every full block.
        """
        size = self._groups[0][0]
        tables = {name: state["requests"][name][1][0] for name in engine.plan if name in state["requests"]}
        in_use = {block for table in tables.values() for block in table}
        kept = {self._slots[slot]: slot[0] for slot in self._slots if slot[0] not in in_use - self._held}
        for name in tables:
            start, _ = engine.plan[name]
            if start % size or start >= engine.length_of(name) - 1 or name in self._begun:
                continue
            most = (engine.length_of(name) - 1) // size
            found = [kept.get(self._prefix(engine, name, index * size + size - 1)) for index in range(most)]
            length = next((index for index, block in enumerate(found) if block is None), most) * size
            if length > start:
                blocks = found[: length // size]
                yield f"request {name} finds {start} tokens in the cache, but blocks {blocks} hold {length}"

    def note(self, state: Mapping[str, Any]) -> None:
        """Remember the blocks of the tables."""
        self._held = {block for _, tables in state["requests"].values() for table in tables for block in table}
        self._begun = {name for name, (_, tables_of) in state["requests"].items() if any(tables_of)}

    def forget(self, engine: Any, state: Mapping[str, Any]) -> None:
        """Forget the content of blocks that the planned step has reallocated. Called before `compute`."""
        hits, in_use = set[int](), set[int]()
        for name, (_, tables) in state["requests"].items():
            start, _ = engine.plan.get(name, (0, 0))
            for (size, *_), table in zip(self._groups, tables, strict=False):
                in_use.update(table)
                hits.update(table[: start // size])
        fresh = in_use - hits - self._held
        for slot in [slot for slot in self._slots if slot[0] in fresh]:
            del self._slots[slot]

    def misfits(self, engine: Any, state: Mapping[str, Any]) -> Iterator[str]:
        """Yield a sentence for each planned request whose table is too short. Before `compute`."""
        for name, (start, num_tokens) in engine.plan.items():
            tables = state["requests"].get(name, ["", []])[1]
            for group in self._of_tokens[: len(tables)]:
                size, table = self._groups[group][0], tables[group]
                if start + num_tokens > size * len(table):
                    does = f"plan says that request {name} computes positions {start} to {start + num_tokens - 1}"
                    yield f"{does}, but its table has {len(table)} blocks of {size}"

    def unfounded(self) -> Iterator[str]:
        """Yield a sentence for each token sampled before the tokens in front of it were computed."""
        for name, position in SAMPLED:
            if position > (end := self._ends.get(name, 0)):
                yield f"request {name} samples its token at position {position}, but has computed only {end} tokens"

    def compute(self, engine: Any) -> Iterator[str]:
        """Write the slots that the planned step computes; yield a sentence for each token that reads other KV."""
        self._copy(getattr(engine, "copies", ()))
        tables = {name: engine.state()["requests"].get(name, ["", []])[1] for name in engine.plan}
        places = [(name, group, table) for name in engine.plan for group, table in enumerate(tables[name])]
        for name, (start, num_tokens) in engine.plan.items():
            self._ends[name] = max(self._ends.get(name, 0), start + num_tokens if num_tokens else 0)
        yield from self._advance(engine, [place for place in places if place[1] in self._of_states])
        places = [place for place in places if place[1] in self._of_tokens]
        for name, group, table in places:
            start, num_tokens = engine.plan[name]
            for position in range(start, start + num_tokens):
                self._slots[self._slot(group, table, position)] = self._prefix(engine, name, position)
        for name, group, table in places:
            start, num_tokens = engine.plan[name]
            window = self._groups[group][1]
            first = 0 if window is None else max(0, start + 1 - window)
            for position in range(first, start + num_tokens):
                slot = self._slot(group, table, position)
                if self._slots.get(slot) != self._prefix(engine, name, position):
                    place = f"position {position} in block {slot[0]}"
                    yield f"request {name} reads {place}, which holds another prefix's KV"

    def _copy(self, copies: Iterable[tuple[int, int]]) -> None:
        """Copy blocks, as an engine does that shares parts of them: (from, to) each."""
        found = [(slot, to) for source, to in copies for slot in self._slots if slot[0] == source]
        self._slots |= {(to, slot[1]): self._slots[slot] for slot, to in found}

    def _advance(self, engine: Any, places: Sequence[tuple[str, int, Sequence[int]]]) -> Iterator[str]:
        """Write the planned step's states; yield a sentence for each request that continues from another one.

        A step copies the states that it continues from before it computes any.
        """
        for name, group, table in places:
            start, _ = engine.plan[name]
            block = table[(start - 1) // self._groups[group][0]] if start else 0
            if start and self._slots.get((block, STATE)) != self._prefix(engine, name, start - 1):
                yield f"request {name} continues after {start} tokens from block {block}, which has another state"
        for name, group, table in places:
            last = sum(engine.plan[name]) - 1
            self._slots[table[last // self._groups[group][0]], STATE] = self._prefix(engine, name, last)

    def _slot(self, group: int, table: Sequence[int], position: int) -> tuple[int, int]:
        size = self._groups[group][0]
        return table[position // size], position % size

    def _prefix(self, engine: Any, name: str, position: int) -> tuple[Any, ...]:
        content = engine.content_of(name)[: position + 2]
        return (*content, *(self._token_at(name, at) for at in range(len(content) - 1, position + 1)))


def wrong_counts(state: Mapping[str, Any], num_blocks: int) -> Iterator[str]:
    """Yield a sentence for each reference count and queue entry that tables and tree contradict.

    Block 0 is vLLM's null. Engines with a tree count no references.
    """
    held = Counter(block for _, tables in state["requests"].values() for table in tables for block in set(table))
    held.update(state.get("deferred", ()))
    held.update(block for *_, blocks in state.get("tree", ()) for block in blocks)
    queued = Counter(state["free_queue"])
    for block, count in enumerate(state.get("ref_counts", [held[block] for block in range(num_blocks)])):
        if block == state.get("null_block", 0):
            continue
        if count != held[block]:
            yield f"block {block} has ref_count {count}, but {held[block]} hold it"
        if count and queued[block]:
            yield f"block {block} is in use and in the free queue"
        elif not count and queued[block] != 1:
            yield f"block {block} is unused, but in the free queue {queued[block]} times"


def wrong_tree(state: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each block in several nodes, and for each node whose locks are not those of the requests."""
    nodes = {number: (parent, locks, blocks) for number, parent, locks, blocks in state.get("tree", ())}
    for block, number in Counter(block for *_, blocks in nodes.values() for block in blocks).items():
        if number > 1:
            yield f"block {block} is in {number} nodes"
    held = Counter[int]()
    for node in state.get("holds", {}).values():
        while node in nodes:
            held[node] += 1
            node = nodes[node][0]
    for node, (_, locks, _) in nodes.items():
        if locks != held[node]:
            yield f"node {node} has {locks} locks, but {held[node]} requests need it"


def shared_blocks(state: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each block that is in a table twice, or in the tables of several KV-cache groups."""
    null = state.get("null_block", 0)
    tables = [(name, group, table) for name, (_, of) in state["requests"].items() for group, table in enumerate(of)]
    for name, _, table in tables:
        for block, number in Counter(table).items():
            if number > 1 and block != null:
                yield f"block {block} appears {number} times in the table of request {name}"
    places = {(block, group) for _, group, table in tables for block in table}
    for block, number in Counter(block for block, _ in places).items():
        if number > 1 and block != null:
            yield f"block {block} is in the tables of {number} KV-cache groups"


def forgotten(engine: Any) -> Iterator[str]:
    """Yield a sentence if an idle engine has requests."""
    if requests := engine.state()["requests"]:
        yield f"the engine is idle, although some requests have not ended: {requests}"


class Watching:
    """Checks an engine's state after each call. Raises Symptom. settings: determine the checks besides the counts."""

    def __init__(self, engine: Any, settings: Mapping[str, Any]) -> None:
        self._engine, self._contents = engine, Contents(settings)
        self._follows_content = not settings["transfers"]  # the content that a connector loads is unknown
        self._caches_all, self._num_blocks = settings["caches_all"], settings["num_blocks"]
        engine.after_call = self.look
        SAMPLED.clear()
        self.states: list[dict[str, Any]] = []
        """The state after each call."""

    def look(self, call: str) -> None:
        """Keep the state, and check it."""
        engine, contents, state = self._engine, self._contents, self._engine.state()
        self.states.append(state)
        refuse("one_entry", shared_blocks(state))
        refuse("ref_count", wrong_counts(state, self._num_blocks))
        refuse("tree", wrong_tree(state))
        if self._follows_content:
            refuse("token", contents.unfounded())
        SAMPLED.clear()
        if call == "schedule" and self._follows_content:
            refuse("plan", contents.misfits(engine, state))
            missed = [*contents.missed(engine, state)] if self._caches_all else []
            contents.forget(engine, state)
            refuse("read", contents.compute(engine))
            refuse("hit", missed)
        contents.note(state)


class Following:
    """Keeps each call of an engine, its state after it, and the newest plan; first the state before all calls."""

    def __init__(self, engine: Any) -> None:
        self.states: list[tuple[str, dict[str, Any], dict[str, tuple[int, int]]]] = [("start", engine.state(), {})]
        engine.after_call = lambda call: self.states.append((call, engine.state(), dict(engine.plan)))


def refuse(rule: str, sentences: Iterable[str]) -> None:
    """Raise Symptom if there is a sentence."""
    if found := [*sentences]:
        raise Symptom("; ".join(found[:3]), rule)


def play(
    engine: Any, settings: Mapping[str, Any], operations: Sequence[Sequence[Any]], expected: Sequence[Any]
) -> None:
    """Do the operations, then steps to the end. Raises Symptom, or the engine's exceptions.

    expected: the design's state after each call, or empty.
    """
    watching = Watching(engine, settings)

    def look(call: str) -> None:
        number = len(watching.states) + 1
        print(f"call {number}, {call}: {engine.state()}")
        watching.look(call)
        if expected:
            state = watching.states[-1]
            refuse("state", differences(state, expected[number - 1] if number <= len(expected) else {"requests": {}}))

    engine.after_call = look
    do = actions(engine)
    for what, *values in operations:
        print(f"- {what} {', '.join(map(repr, values))}")
        do[what](*values)
    for _ in range(MOST_STEPS):
        if engine.is_idle:
            return refuse("end", forgotten(engine))
        engine.step()
    raise Symptom(f"after {MOST_STEPS} more steps some requests have not ended: {engine.state()['requests']}", "end")


def actions(engine: Any) -> dict[str, Callable[..., object]]:
    """Return the call for each operation; requests are named by their number."""
    num_added = iter(range(1 << 30))

    def add(
        prompt: Sequence[int], max_tokens: int, salt: str | None = None, more: Mapping[str, Any] | None = None
    ) -> None:
        engine.add(str(next(num_added)), prompt, max_tokens, salt, **(more or {}))

    return {
        "add": add,
        "step": lambda: engine.step(),
        "draft": lambda drafts: engine.draft(drafts),
        "abort": lambda number: engine.abort(str(number)),
        "reset": lambda: engine.reset(),
    }


def differences(state: Mapping[str, Any], expected: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each part of the state that differs from the design."""
    for part, value in expected.items():
        if state[part] != value:
            yield f"{part} is {state[part]} but should be {value}"
