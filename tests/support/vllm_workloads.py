"""Random workloads of single operations on a KV-cache manager, made to meet what goes wrong between groups.

Everything comes from one random.Random, so a seed names a workload. The keys are those of `python -m labengine replay`.
What a set of them must meet is counted in vllm_encounters.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from vllm_layouts import Layout, random_layout

KINDS = ("full", "hybrid")

Op = dict[str, Any]


def op_workload(seed: int, kind: str) -> dict[str, Any]:
    """One workload; kind: one group of full attention, or hybrid, which adds one to three windows."""
    rng = Random(f"{kind} {seed}")
    layout = random_layout(rng, kind)
    script = _Script(rng, layout)
    acts, weights = (_crowd, _ask_for_the_oldest, _come_back), (2, 5, 1 if layout.is_sparse else 3)
    for act in rng.choices(acts, weights, k=rng.randint(3, 5)):
        act(script, rng)
    return {
        "num_blocks": 1 + script.num_blocks,
        "block_size": layout.hash_block_size,
        "groups": [_group(layout, *group) for group in layout.groups],
        "retention_interval": layout.retention_interval,
        "enable_caching": True,
        "max_model_len": 8192,
        "ops": script.ops,
    }


def looking_ahead(workload: dict[str, Any], seed: int) -> dict[str, Any]:
    """The workload with EAGLE, or with slots behind what is allocated."""
    rng = Random(f"ahead {seed}")
    num_ahead = rng.randint(0, 5)
    ops = [op | {"lookahead": num_ahead} if op["op"] == "allocate" else op for op in workload["ops"]]
    return workload | {"ops": ops, "eagle": not num_ahead or rng.random() < 0.7}


def with_states(workload: dict[str, Any], seed: int) -> dict[str, Any]:
    """The workload with a group of states, with groups that are marked for EAGLE, or with both; nothing is loaded."""
    rng = Random(f"states {seed}")
    groups = [dict(group) for group in workload["groups"]]
    if adds_states := rng.random() < 0.7:
        groups.insert(rng.randint(0, len(groups)), {"type": "mamba"})
    has_marks = not adds_states or rng.random() < 0.5
    if has_marks:
        rng.choice(groups)["eagle"] = True
    ops: list[Op] = []
    for op in workload["ops"]:
        if op["op"] == "allocate" and rng.random() < 0.7:
            ops.append({"op": "step"})
        ops.append({key: value for key, value in op.items() if key not in ("external", "delay_cache")})
    num_blocks = workload["num_blocks"] + 12 * adds_states
    return workload | {"groups": groups, "ops": ops, "num_blocks": num_blocks, "eagle": has_marks}


def _group(layout: Layout, size: int, window: int | None) -> dict[str, Any]:
    group: dict[str, Any] = {"type": "swa", "sliding_window": window} if window else {"type": "full"}
    return group if size == layout.hash_block_size else group | {"block_size": size}


class _Script:
    """Writes ops, and remembers which requests live and which of them surely hold no blocks."""

    def __init__(self, rng: Random, layout: Layout) -> None:
        self.rng = rng
        self.layout = layout
        window_steps = -(-layout.largest_window // layout.step_size)
        self.prompt_tokens = (window_steps + rng.randint(2, 6)) * layout.step_size
        self.num_blocks = layout.num_blocks(self.prompt_tokens) + rng.choice((0, 0, 0, 0, 0, 1, 8))
        self.alphabet = rng.choice((2, 3, 50))
        self.ops: list[Op] = []
        self.live: dict[str, list[int]] = {}
        self.without_blocks: set[str] = set()
        self.stems = [self.tokens(self.prompt_tokens) for _ in range(rng.randint(1, 3))]
        self._num_requests = 0

    def tokens(self, num_tokens: int) -> list[int]:
        return [self.rng.randrange(self.alphabet) for _ in range(num_tokens)]

    def add(self, tokens: Sequence[int], salt: str | None = None) -> str:
        name = f"r{self._num_requests}"
        self._num_requests += 1
        op: Op = {"op": "add", "req": name, "tokens": list(tokens)}
        if salt is not None:
            op["salt"] = salt
        self.ops.append(op)
        self.live[name] = list(tokens)
        self.without_blocks.add(name)
        return name

    def allocate(self, name: str, num_tokens: int | None = None, external: int = 0, **more: Any) -> None:
        """A first allocation looks up (nearly always), and alone may bring external tokens."""
        op: Op = {"op": "allocate", "req": name, "n": num_tokens, "lookup": False, **more}
        if name in self.without_blocks:
            op["lookup"] = external > 0 or self.rng.random() < 0.9
            if external:
                op["external"] = external
            self.without_blocks.discard(name)
        self.ops.append(op)

    def append(self, name: str, num_tokens: int) -> None:
        tokens = self.tokens(num_tokens)
        self.live[name] += tokens
        self.ops.append({"op": "append", "req": name, "tokens": tokens})

    def free(self, name: str) -> None:
        self.ops.append({"op": "free", "req": name})
        del self.live[name]
        self.without_blocks.discard(name)

    def preempt(self, name: str) -> None:
        self.ops.append({"op": "preempt", "req": name})
        self.without_blocks.add(name)

    def look_up(self, name: str) -> None:
        self.ops.append({"op": "lookup", "req": name})

    def longest_fitting(self, num_blocks: int) -> int:
        """The longest prompt, in whole steps, that so many blocks hold in all groups."""
        step_size = self.layout.step_size
        return num_blocks // self.layout.num_blocks(step_size) * step_size

    def free_all(self) -> None:
        for name in self.rng.sample(list(self.live), len(self.live)):
            self.free(name)

    def rarely(self) -> None:
        """What may happen at any time: a look-up, a reset, an eviction."""
        chance = self.rng.random()
        if chance < 0.06 and self.live:
            self.look_up(self.rng.choice(list(self.live)))
        elif chance < 0.08:
            self.ops.append({"op": "reset"})
        elif chance < 0.11:
            blocks = sorted({self.rng.randint(0, self.num_blocks) for _ in range(3)})
            self.ops.append({"op": "evict", "blocks": blocks})


def _prompt(script: _Script, longest: int) -> list[int]:
    """A stem, a part of one, or one that goes on otherwise; often ending with a block."""
    rng, stem = script.rng, script.rng.choice(script.stems)
    kept = stem[: rng.randint(1, len(stem))] if rng.random() < 0.6 else stem
    prompt = kept + script.tokens(rng.randint(0, 2 * script.layout.step_size))
    if rng.random() < 0.4:
        step_size = script.layout.step_size
        prompt = prompt[: max(step_size, len(prompt) // step_size * step_size)]
    return prompt[:longest]


def _external(script: _Script, most: int) -> int:
    step_size = script.layout.step_size
    return step_size * script.rng.randint(1, max(1, -(-most // step_size)))


def _crowd(script: _Script, rng: Random) -> None:
    """Several requests at once, in chunks and token by token, more than the pool holds."""
    for _ in range(rng.randint(6, 14)):
        script.rarely()
        waiting = [name for name in script.live if name in script.without_blocks]
        chance = rng.random()
        if not script.live or (chance < 0.3 and len(script.live) < 5):
            salt = rng.choice(("a", "b")) if rng.random() < 0.15 else None
            name = script.add(_prompt(script, script.prompt_tokens), salt)
            external = _external(script, script.prompt_tokens // 2) if rng.random() < 0.2 else 0
            script.allocate(name, _chunk(script), external)
        elif waiting and chance < 0.5:
            external = _external(script, script.prompt_tokens // 2) if rng.random() < 0.3 else 0
            script.allocate(rng.choice(waiting), _chunk(script), external)
        elif chance < 0.82:
            name = rng.choice(list(script.live))
            if rng.random() < 0.7:
                script.append(name, rng.randint(1, script.layout.hash_block_size + 1))
            script.allocate(name, _chunk(script))
        elif chance < 0.9:
            script.preempt(rng.choice(list(script.live)))
        else:
            script.free(rng.choice(list(script.live)))


def _chunk(script: _Script) -> int | None:
    if script.rng.random() < 0.55:
        return None
    return script.rng.choice((1, script.layout.step_size, script.rng.randint(1, script.prompt_tokens)))


def _ask_for_the_oldest(script: _Script, rng: Random) -> None:
    """Cached blocks that no request uses fill the pool; then a request hits the oldest, and brings external tokens."""
    oldest = _fill_with_cached(script, rng)
    script.rarely()
    name = script.add(_going_on(script, oldest))
    if rng.random() < 0.4:
        script.look_up(name)
    script.allocate(name, _few(rng), _external_behind_a_hit(script), **_late(rng))
    _go_on(script, rng, name)


def _fill_with_cached(script: _Script, rng: Random) -> list[int]:
    """Requests come and go until hardly a block is left that was never cached; the first prompt of them."""
    script.free_all()
    layout, room = script.layout, script.num_blocks
    prompts: list[list[int]] = []
    while len(prompts) < 10 and (most := script.longest_fitting(room)):
        num_tokens = most if rng.random() < 0.6 else rng.randint(1, most // layout.step_size) * layout.step_size
        prompt = script.tokens(num_tokens) if prompts else rng.choice(script.stems)[:num_tokens]
        if layout.is_sparse and layout.num_blocks(num_tokens + 1) <= room:
            prompt = prompt + script.tokens(1)  # its last whole step is then found again by longer prompts
        prompts.append(prompt)
        name = script.add(prompt)
        script.allocate(name)
        script.free(name)
        room -= layout.num_cached_blocks(num_tokens)
    if rng.random() < 0.9:
        _hold(script, room)
    return prompts[0]


def _hold(script: _Script, num_blocks: int) -> None:
    """A request keeps up to so many blocks, which were never cached."""
    num_tokens = 0
    while script.layout.num_blocks(num_tokens + 1) <= num_blocks:
        num_tokens += 1
    if num_tokens:
        script.allocate(script.add(script.tokens(num_tokens)))


def _come_back(script: _Script, rng: Random) -> None:
    """A request that fills the pool is preempted, and comes back to its own blocks and to external ones."""
    script.free_all()
    stem = rng.choice(script.stems)
    name = script.add(_going_on(script, stem))
    script.allocate(name, len(stem) - rng.choice((0, 0, 0, 1)) * script.layout.step_size)
    if rng.random() < 0.2:
        script.allocate(name, 1)
    script.preempt(name)
    if rng.random() < 0.2:
        other = script.add(_prompt(script, script.layout.step_size))
        script.allocate(other)
    script.allocate(name, _few(rng), _external_behind_a_hit(script), **_late(rng))
    _go_on(script, rng, name)


def _going_on(script: _Script, prompt: Sequence[int]) -> list[int]:
    """A whole prompt or most of it, and one or two steps of other tokens behind it."""
    step_size = script.layout.step_size
    kept = len(prompt) // step_size - script.rng.choice((0, 0, 0, 0, 0, 0, 1, 2))
    return [*prompt[: max(1, kept) * step_size], *script.tokens(script.rng.randint(step_size + 1, 3 * step_size))]


def _external_behind_a_hit(script: _Script) -> int:
    """Mostly so few that something of the hit stays in every window."""
    layout = script.layout
    steps = min((window - 2 for _, window in layout.groups if window), default=0) // layout.step_size
    return layout.step_size * script.rng.choice((max(1, steps), max(1, steps), max(1, steps), max(1, steps - 1), 1, 2))


def _few(rng: Random) -> int | None:
    return rng.choice((1, 1, 1, None))


def _late(rng: Random) -> dict[str, bool]:
    """As for loads that arrive in a later step: the blocks are registered by the next allocation."""
    return {"delay_cache": True} if rng.random() < 0.25 else {}


def _go_on(script: _Script, rng: Random, name: str) -> None:
    """The rest of the prompt, some tokens of an answer, and the end; then another request with the same beginning."""
    script.allocate(name)
    for _ in range(rng.randint(0, 3)):
        script.append(name, rng.randint(1, script.layout.step_size))
        script.allocate(name)
    tokens = script.live[name]
    if rng.random() < 0.6:
        script.free(name)
    if rng.random() < 0.6:
        follower = script.add([*tokens, *script.tokens(rng.randint(0, 3))])
        script.allocate(follower, _few(rng))
