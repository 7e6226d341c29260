"""A step that is computed before the tokens of the step before are read: it is the same step, and harms no block.

On a CPU: decodes over static tensors with memory of their own, and a runner that says that its device works alone.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

from driving import recorded
from engine.late_gpu import LateGpu, OnTheGpu
from engine.plan_builder import Dealer, plan_of
from labengine.config import EngineConfig, GroupSpec, SamplingParams
from labengine.core.block import Block
from labengine.core.editions import EDITIONS
from labengine.core.step_plan import UNSAMPLED, StepPlan
from labengine.engine.ahead import PAUSE, OverlappedEngine
from labengine.engine.device import ComingBack
from labengine.engine.engine import Engine
from labengine.engine.forward.static_step import StaticStep
from labengine.engine.model_runner import ModelRunner
from labengine.engine.static_runner import StaticRunner
from labengine.engine.step_tensors import NewTokens, StepStaging, StepTensors
from labengine.record.hooks import Hooks

NUM_BLOCKS, BLOCK_SIZE = 24, 4
EOS = frozenset(range(0, 101, 9))
"""Many, so that a random model ends its texts."""


class OnADevice(StaticStep):
    copies_always = True


class Counting(ModelRunner):
    """Counts the steps that it was asked to launch ahead, by what it answered."""

    launched: Counter[bool]

    def launch_ahead(self, plan: StepPlan, before: StepPlan) -> bool:
        assert any(part.is_unfilled for part in plan.scheduled)
        is_launched = super().launch_ahead(plan, before)
        self.launched[is_launched] += 1
        return is_launched


class Launching(Counting, StaticRunner):
    """A runner whose device is the CPU: it is done when `forward` returns, and the host does not ask."""

    static_step = OnADevice
    is_asynchronous = True  # type: ignore[assignment]


class Pair:
    """Two engines on the same model that do the same: one waits for tokens, the other one launches ahead."""

    def __init__(self, model: Path, edition: str = "labengine", device: str = "cpu", **settings: Any) -> None:
        self.engines: list[Any] = []
        self.events = []
        runners = (StaticRunner, Launching) if device == "cpu" else (ModelRunner, Counting)
        num_blocks = 48 if "gemma" in str(model) else NUM_BLOCKS
        size = {"num_blocks": num_blocks, "block_size": BLOCK_SIZE, "max_num_seqs": 6}
        for engine_class, runner_class in zip((Engine, OverlappedEngine), runners, strict=True):
            runner: Any = runner_class.load(model, **size, device=device, dtype="float32")
            runner.launched = Counter()
            hooks = Hooks(strict=True)
            config = EngineConfig(
                **{"num_blocks": num_blocks, "groups": runner.groups, "max_num_seqs": 6, "max_num_batched_tokens": 16,
                   "eos_token_ids": EOS, "keep_finished": None, **settings}
            )  # fmt: skip
            self.events.append(recorded(hooks))
            self.engines.append(engine_class(config, runner, EDITIONS[edition], hooks))
        self.plain, self.ahead = self.engines

    @property
    def launched(self) -> Counter[bool]:
        return self.ahead.runner.launched

    def add(self, prompt: list[int], **sampling: Any) -> None:
        for engine in self.engines:
            engine.add(prompt, SamplingParams(**sampling))

    def both(self, call: Any) -> None:
        assert call(self.plain) == call(self.ahead)
        assert self.events[0] == self.events[1]

    def step(self) -> None:
        self.both(lambda engine: engine.step())

    def run(self) -> None:
        while not self.plain.scheduler.is_idle:
            self.step()

    def look(self) -> None:
        """Compare everything between two steps: what is anticipated is rolled back for it."""
        assert self.plain.snapshot() == self.ahead.snapshot()
        self.require_equal_content()

    def require_equal_content(self) -> None:
        """What can be hit, and what running requests have computed, is the same KV on both sides."""
        held = dict.fromkeys((block.block_id for block in self.blocks if block.keys), BLOCK_SIZE)
        for request in self.plain.scheduler.running:
            for table in request.block_tables:
                for index, block_id in enumerate(table):
                    if block_id >= 0:
                        held[block_id] = min(BLOCK_SIZE, request.num_computed_tokens - index * BLOCK_SIZE)
        for layer in range(self.plain.runner.num_layers):
            for block_id, count in held.items():
                ours, theirs = (torch.stack(engine.runner.kv(block_id, layer))[:, :count] for engine in self.engines)
                assert torch.allclose(ours, theirs, atol=1e-4), f"block {block_id}"

    @property
    def blocks(self) -> list[Block]:
        return self.plain.scheduler.manager.pool.blocks


@pytest.mark.parametrize("edition", ["labengine", "nano-vllm"])
def test_the_same_tokens_and_events(edition: str, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks, requests that come and go, greedy and drawn ones, a pool that preempts; nothing is computed twice."""
    pair = Pair(tiny_llama, edition, eos_token_ids=frozenset())
    computed: list[StepTensors] = []
    forward: Any = type(pair.ahead.runner._forward)
    call = forward.__call__
    monkeypatch.setattr(forward, "__call__", lambda self, step: (computed.append(step), call(self, step))[1])
    for row, (length, max_tokens) in enumerate(((9, 12), (3, 20), (21, 9), (6, 15), (5, 30))):
        prompt = [(11 * row + i) % 101 for i in range(length)]
        pair.add(prompt, max_tokens=max_tokens, temperature=0.8 * (row % 2), ignore_eos=True)
    pair.run()
    assert pair.launched[True] >= 15 and len(computed) == 2 * pair.plain.step_number
    pair.look()


def disturb(pair: Pair, random: Random) -> None:
    """Do something to both engines that may roll back what was launched."""
    kind = random.choice(("add", "abort", "look", "reset", "fail", "by hand"))
    if kind == "add":
        shared = [7] * random.choice((0, 4, 8))
        prompt = shared + random.choices(range(101), k=random.randint(1, 12))
        pair.add(prompt, max_tokens=random.randint(1, 20), temperature=random.choice((0.0, 0.9)))
    elif kind == "abort" and pair.plain.requests:
        victim = random.choice([*pair.plain.requests])
        pair.both(lambda engine: engine.abort(victim))
    elif kind == "look":
        pair.look()
    elif kind == "reset":
        pair.both(lambda engine: engine.reset_prefix_cache())
    elif kind == "fail":
        for engine in pair.engines:
            fail_once(engine)
    else:
        pair.both(lambda engine: [*engine.phases()])


def fail_once(engine: Engine) -> None:
    """A step that is interrupted while it waits for its tokens."""

    def interrupted(plan: StepPlan, logits: object) -> list[int]:
        raise KeyboardInterrupt

    engine.runner.sample = interrupted  # type: ignore[method-assign]
    with suppress(KeyboardInterrupt):
        engine.step()
    del engine.runner.sample  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("family", "edition"), [("llama", "labengine"), ("llama", "nano-vllm+243"), ("gemma3", "labengine")]
)
@pytest.mark.parametrize("seed", range(3))
def test_no_block_that_can_be_hit_is_harmed(
    family: str, edition: str, seed: int, tiny_llama: Path, tiny_gemma: Path
) -> None:
    """Whatever is added, aborted, looked at, interrupted or ended by an eos between a launch and its step."""
    pair = disturbed(Pair(tiny_gemma if family == "gemma3" else tiny_llama, edition), seed)
    assert pair.launched[True] > 8


@pytest.mark.gpu
@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_on_a_gpu(family: str, tiny_llama: Path, tiny_gemma: Path) -> None:
    """The same steps run the same kernels: tokens, events and KV are equal."""
    pair = disturbed(Pair(tiny_gemma if family == "gemma3" else tiny_llama, device="cuda"), 0)
    assert pair.launched[True] > 8


def disturbed(pair: Pair, seed: int) -> Pair:
    """Run seventy steps with disturbances, compared again and again."""
    random = Random(seed)
    for _ in range(70):
        if random.random() < 0.4:
            disturb(pair, random)
        pair.ahead._may_launch_at = 0  # type: ignore[attr-defined]
        pair.step()
        if random.random() < 0.3:
            pair.look()
    pair.run()
    pair.look()
    return pair


def decoding(pair: Pair, **sampling: Any) -> None:
    """Two requests that are past their prompts."""
    for prompt in ([1, 2, 3], [4, 5, 6]):
        pair.add(prompt, max_tokens=40, **{"ignore_eos": True, **sampling})
    for _ in range(3):
        pair.step()


def test_a_block_with_cached_content_is_written_when_the_step_is_due(tiny_llama: Path) -> None:
    """A rollback gives the content back."""
    pair = Pair(tiny_llama)
    pair.add([9] * 80, max_tokens=1)
    pair.run()
    assert all(block.keys for block in pair.blocks[:20])
    decoding(pair)
    launched = set()
    for _ in range(20):
        pair.ahead._may_launch_at = 0  # type: ignore[attr-defined]
        before = pair.launched[True]
        pair.step()
        launched.add(pair.launched[True] > before)
        pair.look()
    assert launched == {True, False}


def test_a_block_that_the_step_gives_back_is_written_when_the_next_one_is_due(tiny_llama: Path) -> None:
    """The first request ends, and the second one takes its last block, which holds its KV: interrupted, both go on."""
    pair = Pair(tiny_llama, eos_token_ids=frozenset())
    pair.add([1, 2, 3], max_tokens=4)
    pair.add([4, 5, 6, 7, 8], max_tokens=10)
    for _ in range(3):
        pair.step()
    last_block = pair.plain.requests[0].block_tables[0][-1]
    for engine in pair.engines:
        fail_once(engine)
    pair.look()
    pair.step()
    pair.step()
    assert pair.plain.requests[1].block_tables[0][-1] == last_block, "it is the one that was given back"
    pair.run()
    pair.look()


def test_after_a_launch_for_nothing_steps_are_launched_when_they_are_due(tiny_llama: Path) -> None:
    pair = Pair(tiny_llama, num_blocks=NUM_BLOCKS)
    decoding(pair)
    assert pair.launched[True] == 3
    pair.look()
    for _ in range(PAUSE - 1):
        pair.step()
    assert pair.launched[True] == 3
    pair.step()
    assert pair.launched[True] == 4


def test_a_row_with_top_p_is_read_before_the_next_launch(tiny_llama: Path) -> None:
    """Its logits may be needed once more."""
    pair = Pair(tiny_llama)
    decoding(pair, temperature=0.9, top_k=9, top_p=0.5)
    assert pair.launched[True] == 0


class Overriding(Launching):
    def step_tensors(self, plan: StepPlan) -> StepTensors:
        assert all(token is not UNSAMPLED for part in plan.scheduled for token in part.token_ids)
        return super().step_tensors(plan)


class Sampling(Launching):
    def sample(self, plan: StepPlan, logits: Tensor) -> list[int]:
        return super().sample(plan, -logits)


@pytest.mark.parametrize("runner", [Overriding, Sampling])
def test_a_runner_of_ones_own_sees_complete_plans(runner: type[Launching], tiny_llama: Path) -> None:
    mine = runner.load(tiny_llama, num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, max_num_seqs=6, device="cpu")
    mine.launched = Counter()
    config = EngineConfig(NUM_BLOCKS, mine.groups, max_num_seqs=6)
    engine = OverlappedEngine(config, mine, EDITIONS["labengine"], Hooks())
    engine.add([1, 2, 3], SamplingParams(max_tokens=9))
    while engine.step():
        pass
    assert mine.launched[True] == 0 and mine.launched[False] > 5


def test_a_launch_that_fails_is_tried_again_when_the_step_is_due(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair(tiny_llama)
    decoding(pair)

    def full(plan: StepPlan, before: StepPlan) -> bool:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(pair.ahead.runner, "launch_ahead", full, raising=False)
    pair.run()
    assert pair.plain.snapshot() == pair.ahead.snapshot()


def test_a_runner_that_was_asked_for_another_step_meanwhile_computes_the_launched_one_anew(tiny_llama: Path) -> None:
    pair = Pair(tiny_llama)
    decoding(pair)
    assert pair.ahead._ahead.is_launched  # type: ignore[attr-defined]
    for engine in pair.engines:
        engine.runner.forward(plan_of(Dealer(4, 4).request([1, 2, 3]).take(3, samples=False)))
    pair.step()
    assert pair.plain.snapshot() == pair.ahead.snapshot()


# -- the tokens of the step before -------------------------------------------------------------------------------------


def test_late_tokens_are_put_where_they_belong(tiny_llama: Path) -> None:
    """The same requests decode on; some of them, in another order; one behind a chunk; and one known token."""
    dealer = Dealer(60, 4)
    requests = [dealer.request([row] * 12) for row in range(4)]
    before = plan_of(*(request.take(3) for request in requests))
    tokens = torch.tensor([70, 71, 72, 73])
    for order in ([0, 1, 2, 3], [0, 1], [3, 1, 2]):
        parts = [requests[row].take(1) for row in order]
        for part in parts:
            part.fill_in(UNSAMPLED)
        step = staged(StepPlan(tuple(parts)), before, tokens)
        assert step.token_ids.tolist() == [70 + row for row in order]
    chunk, known, late = dealer.request([5] * 9).take(4), requests[0].take(1), requests[2].take(1)
    late.fill_in(UNSAMPLED)
    step = staged(StepPlan((chunk, known, late)), before, tokens)
    assert step.token_ids.tolist() == [5, 5, 5, 5, 0, 72]


def staged(plan: StepPlan, before: StepPlan, tokens: Tensor) -> StepTensors:
    return StepStaging([GroupSpec(4)], torch.device("cpu")).step_tensors(plan, NewTokens(before, tokens))


def test_tokens_are_waited_for_and_what_is_launched_behind_them_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = LateGpu(monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(Tensor, "copy_", lambda *_, **__: pytest.fail("a copy of numbers that are on the host"))
        assert ComingBack(torch.tensor([[5, 6], [1, 1]])).awaited().tolist() == [[5, 6], [1, 1]]
    first, second = (ComingBack(torch.tensor([row]).as_subclass(OnTheGpu)) for row in ([5, 6], [7, 8]))
    assert len(gpu.queue) == 2
    assert first.awaited().tolist() == [[5, 6]]
    assert len(gpu.queue) == 1
    assert second.awaited().tolist() == [[7, 8]]
