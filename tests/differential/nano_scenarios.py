"""Scenarios about nano-vLLM, run on nano-vLLM's own scheduler and block manager at the commits that they are about.

The model is left out. What its runner would write and read follows from the plan by the rules of
`ModelRunner.prepare_prefill` and `prepare_decode`: a prompt's slots by its block table, a decode's slot in the table's
last block. The fixes of open pull requests are written here from their descriptions.
"""

from __future__ import annotations

import subprocess
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import signature
from io import BytesIO
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from differential.nano_upstream import Sampling, Upstream, hash_and_merge_blocks

Rows = dict[str, dict[str, int]]

REPORTED = "bb823b3"
"""Commit of the edition nano-vllm: the newest one of the snapshot that was read."""


@contextmanager
def upstream_at(clone: Path, commit: str) -> Iterator[Upstream]:
    """The modules of a commit of a clone of nano-vLLM."""
    archive = subprocess.run(["git", "-C", str(clone), "archive", commit, "nanovllm"], capture_output=True, check=True)
    with TemporaryDirectory() as folder:
        with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
            files.extractall(folder, filter="data")
        yield Upstream(Path(folder))


class Engine:
    """One scheduler. Per request: tokens found, and the positions that its newest step was to compute."""

    def __init__(self, modules: Upstream, num_blocks: int = 12, block_size: int = 4, budget: int = 16384) -> None:
        self._modules, self._size = modules, block_size
        modules.sequence.Sequence.block_size = block_size
        limits = {"max_num_seqs": 512, "max_num_batched_tokens": budget, "eos": -1}
        config = SimpleNamespace(**limits, kvcache_block_size=block_size, num_kvcache_blocks=num_blocks)
        self.scheduler = modules.scheduler.Scheduler(config)
        self.manager = self.scheduler.block_manager
        self.requests: list[Any] = []
        self.found: dict[int, int] = {}
        self.computed: dict[int, range] = {}
        self.slots: dict[int, list[int]] = {}
        """Per request and position, the slot that it was written to."""
        self._kv: dict[int, tuple[int, ...]] = {}
        """Per slot, the tokens up to and with the one whose KV it holds."""
        self._misread: set[int] = set()
        self.peak = self.num_computed = 0

    def add(self, prompt: Sequence[int], max_tokens: int) -> None:
        """Queue a request."""
        self.requests.append(self._modules.sequence.Sequence(list(prompt), Sampling(max_tokens)))
        self.scheduler.add(self.requests[-1])

    def step(self) -> None:
        """Schedule, note what is written and read, and book a token for each request."""
        batch, is_prefill = self.scheduler.schedule()
        self.peak = max(self.peak, self.num_used)
        ranges = [self._range(one, is_prefill) for one in batch]
        for one, positions in zip(batch, ranges, strict=True):
            self._plan(one, positions, is_prefill)
        for one, positions in zip(batch, ranges, strict=True):
            self._read(one, positions.stop)
        arguments = (batch, [7 + len(one) for one in batch], is_prefill)
        num_taken = len(signature(self.scheduler.postprocess).parameters)
        self.scheduler.postprocess(*arguments[:num_taken])

    def _range(self, sequence: Any, is_prefill: bool) -> range:
        if not is_prefill:
            return range(len(sequence) - 1, len(sequence))
        start = sequence.num_cached_tokens
        num_tokens = getattr(sequence, "num_scheduled_tokens", len(sequence) - start)
        return range(start, start + num_tokens)

    def _plan(self, sequence: Any, positions: range, is_prefill: bool) -> None:
        number = self.requests.index(sequence)
        if number not in self.computed:
            self.found[number] = positions.start
        self.computed[number] = positions
        self.num_computed += len(positions)
        table = sequence.block_table
        slots = self.slots.setdefault(number, [])
        for position in positions:
            block = table[position // self._size] if is_prefill else table[-1]
            slot = block * self._size + position % self._size
            slots.append(slot)
            self._kv[slot] = tuple(sequence.token_ids[: position + 1])

    def _read(self, sequence: Any, end: int) -> None:
        table = sequence.block_table
        for position in range(end):
            slot = table[position // self._size] * self._size + position % self._size
            if self._kv.get(slot) != tuple(sequence.token_ids[: position + 1]):
                self._misread.add(self.requests.index(sequence))

    @property
    def num_misread(self) -> int:
        """Requests that read a slot which held something else."""
        return len(self._misread)

    @property
    def num_used(self) -> int:
        """Blocks in use."""
        return len(self.manager.used_block_ids)

    def sharing(self) -> dict[str, int]:
        """Blocks in use, their different hashes, those that the map does not lead to, and the peak."""
        used = [block for block in self.manager.blocks if block.ref_count and block.hash != -1]
        lost = [block for block in used if self.manager.hash_to_block_id.get(block.hash) != block.block_id]
        return {
            "used blocks": self.num_used,
            "unique hashes": len({block.hash for block in used}),
            "lost blocks": len(lost),
            "peak while computing": self.peak,
        }


def late_merge(engine: Engine) -> None:
    """Merge blocks as pull request 243 describes it."""
    manager = engine.manager
    manager.hash_blocks = lambda sequence: hash_and_merge_blocks(manager, sequence)


def append_when_full(engine: Engine) -> None:
    """Hash the block that a length fills, and append the next one, as pull request 71 describes it."""
    manager, size = engine.manager, engine.manager.block_size

    def may_append(sequence: Any) -> None:
        last = manager.blocks[sequence.block_table[-1]]
        if len(sequence) % size:
            assert last.hash == -1
            return
        tokens = sequence.block(sequence.num_blocks - 1)
        before = manager.blocks[sequence.block_table[-2]].hash if len(sequence.block_table) > 1 else -1
        last.update(manager.compute_hash(tokens, before), tokens)
        manager.hash_to_block_id[last.hash] = last.block_id
        new = manager.free_block_ids[0]
        manager._allocate_block(new)
        sequence.block_table.append(new)

    manager.can_append = lambda sequence: len(manager.free_block_ids) >= (len(sequence) % size == 0)
    manager.may_append = may_append


def six_bit_hashes(engine: Engine) -> None:
    """Hash to six bits, so that collisions can be seen."""
    compute_hash = type(engine.manager).compute_hash
    engine.manager.compute_hash = lambda tokens, before=-1: compute_hash(tokens, before) & 63


# -- one function per scenario: the figures of the columns that upstream has -------------------------------------------


def duplicate_blocks(clone: Path) -> Rows:
    """Issue 219: two equal prompts in one step."""
    rows = {}
    for name, fix in {"nano-vllm": None, "nano-vllm+243": late_merge}.items():
        with upstream_at(clone, REPORTED) as modules:
            engine = Engine(modules)
            if fix:
                fix(engine)
            for max_tokens in (8, 2):
                engine.add(range(14), max_tokens)
            engine.step()
            rows[name] = engine.sharing()
    return rows


def own_tokens(clone: Path) -> Rows:
    """Pull request 243: equal tokens after different ones, under the same hash."""
    with upstream_at(clone, REPORTED) as modules:
        engine = Engine(modules)
        six_bit_hashes(engine)
        late_merge(engine)
        for prompt in _colliding_prompts(engine.manager.compute_hash):
            engine.add(prompt, 4)
        engine.step()
        tables = [one.block_table for one in engine.requests]
        num_merged = len({*tables[0]} & {*tables[1]})
        engine.step()
        return {"nano-vllm+243": {"merged blocks": num_merged, "wrong reads": engine.num_misread}}


def _colliding_prompts(compute_hash: Callable[..., int]) -> list[list[int]]:
    """Two prompts of nine tokens: four different ones, four equal ones with the same hash, and one more."""
    common = [7] * 4
    for pair in combinations([[token] * 4 for token in range(10, 60)], 2):
        parents = [compute_hash(first) for first in pair]
        if parents[0] != parents[1] and len({compute_hash(common, parent) for parent in parents}) == 1:
            return [[*first, *common, 1] for first in pair]
    raise AssertionError("no collision")


def hit_in_flight(clone: Path) -> Rows:
    """Issue 208: two equal prompts of nine tokens in one step."""
    rows = {}
    for name, commit in {"nano-vllm, April 2026": "44a51af", "nano-vllm": REPORTED}.items():
        with upstream_at(clone, commit) as modules:
            engine = Engine(modules)
            for _ in range(2):
                engine.add(range(1, 10), 2)
            for _ in range(2):
                engine.step()
            rows[name] = {
                "tokens that B finds": engine.found[1],
                "requests that misread": engine.num_misread,
                "tokens computed": engine.num_computed,
            }
    return rows


def stale_count(clone: Path) -> Rows:
    """Pull request 207: B begins with A's block."""
    rows = {}
    for name, commit in {"count first": "5df8493", "look up first": "44a51af"}.items():
        with upstream_at(clone, commit) as modules:
            engine = Engine(modules, num_blocks=8)
            engine.add(range(5), 1)
            engine.step()
            engine.add([*range(4), *range(1000, 1005)], 2)
            num_failed = 0
            try:
                engine.step()
            except IndexError:
                num_failed = 1
            computed = engine.computed[1]
            rows[name] = {
                "tokens of the prompt": 9,
                "first position computed": computed.start,
                "end of the computed positions": computed.stop,
                "steps ended by an error": num_failed,
            }
    return rows


def chain_restart(clone: Path) -> Rows:
    """Commit f64d821: X|z, X|Y|z and Y|z in turn."""
    rows = {}
    for commit in ("f64d821", "9fa256a"):
        with upstream_at(clone, commit) as modules:
            engine = Engine(modules)
            x, y, z = [1] * 4, [2] * 4, [3]
            for prompt in (x + z, x + y + z, y + z):
                engine.add(prompt, 1)
                engine.step()
            rows[commit] = {
                "tokens that X|Y|z finds": engine.found[1],
                "tokens that Y|z finds": engine.found[2],
                "requests that misread": engine.num_misread,
            }
    return rows


def full_hit(clone: Path) -> Rows:
    """Issue 114: a prompt of two blocks, sent a second time while the first one decodes."""
    rows = {}
    for name, commit in {"full hit": "2f21442", "last block": REPORTED}.items():
        with upstream_at(clone, commit) as modules:
            engine = Engine(modules, num_blocks=8)
            for _ in range(2):
                engine.add(range(1, 9), 4)
                engine.step()
            rows[name] = {"tokens found": engine.found[1], "tokens computed": len(engine.computed[1])}
    return rows


def off_by_one(clone: Path) -> Rows:
    """Pull request 71: a request grows from 3 to 12 tokens."""
    rows = {}
    for name, change in {"PR 71": append_when_full, "original": None}.items():
        with upstream_at(clone, "38baf0b") as modules:
            engine = Engine(modules, num_blocks=16)
            if change:
                change(engine)
            engine.add(range(3), 32)
            for _ in range(10):
                engine.step()
            slots = engine.slots[0]
            rows[name] = {
                "positions written": len(slots),
                "in a wrong slot": sum(slot != position for position, slot in enumerate(slots)),
                "own slots never written": sum(position not in slots for position in range(len(slots))),
            }
    return rows


RUNS: Mapping[str, Callable[[Path], Rows]] = {
    "nano-vllm-114": full_hit,
    "nano-vllm-207": stale_count,
    "nano-vllm-208": hit_in_flight,
    "nano-vllm-219": duplicate_blocks,
    "nano-vllm-243": own_tokens,
    "nano-vllm-71": off_by_one,
    "nano-vllm-f64d821": chain_restart,
}
"""Per scenario, what gives its rows from a clone."""

COMMITS: Mapping[str, str] = {
    "nano-vllm-114": f"2f21442 and {REPORTED}",
    "nano-vllm-207": "5df8493 and 44a51af",
    "nano-vllm-208": f"44a51af and {REPORTED}",
    "nano-vllm-219": REPORTED,
    "nano-vllm-243": REPORTED,
    "nano-vllm-71": "38baf0b",
    "nano-vllm-f64d821": "f64d821 and 9fa256a",
}
"""Per scenario, the commits that run."""
