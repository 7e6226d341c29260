"""The engine against transformers, on real weights in fp32: equal logits, equal tokens, whatever the engine does.

Compared teacher-forced: transformers computes each finished sequence once, in one dense pass; every logits row that the
engine sampled from is held against the row of that pass. Logits within 1e-3; argmax equal unless the best two are
closer.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from labengine import model_path
from labengine.check.invariants import check_invariants
from labengine.config import EngineConfig, GroupSpec, SamplingParams
from labengine.core.editions import EDITIONS, edition
from labengine.engine.engine import Engine
from labengine.engine.model_runner import ModelRunner
from labengine.engine.tokenizer import HuggingFaceTokenizer
from labengine.events import BlockMerged, PrefixHit, RequestPreempted
from labengine.record.hooks import Hooks
from seeds import EVERY_SEED
from teacher_forcing import Spy, num_ties

TOLERANCE = 1e-3
NUM_NEW = 6
LONG = "The library had nine floors, and on each of them somebody was looking for the same book. " * 15
STORY = "Once upon a time, in a village at the edge of the sea, there lived a clockmaker who"
PROMPTS = [
    STORY,
    STORY,
    STORY + " never slept.",
    STORY + " could hear the tide in every clock he made.",
    "The capital of France is",
    "The capital of Italy is",
    "1, 2, 3, 5, 8, 13,",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "Water boils at one hundred degrees",
    "a",
    "Why is the sky blue? Because",
    "Three things are needed to bake bread: flour, water and",
    "<b>bold</b> & <script>alert(1)</script>",
    "Grüße aus Zürich, 你好, здравствуйте!",
    "In the beginning there was the word, and the word was",
    "SELECT name FROM users WHERE id =",
    "My favourite colour is blue. My favourite colour is blue. My favourite colour is",
    "The quick brown fox jumps over the lazy",
    LONG + "She",
    LONG + "He took the stairs",
]


@dataclass(frozen=True)
class Setting:
    """block_size and num_blocks; tokens and requests per step."""

    block_size: int
    num_blocks: int
    max_num_batched_tokens: int
    max_num_seqs: int
    num_prompts: int = len(PROMPTS)


SETTINGS = {
    "blocks-of-3, chunks of 7, batch 16": Setting(3, 600, 7, 16),
    "blocks-of-4, batch 16": Setting(4, 600, 64, 16),
    "blocks-of-4, pool too small, batch 16": Setting(4, 34, 64, 16, 18),
    "blocks-of-16, chunks of 7, batch 1": Setting(16, 64, 7, 1, 6),
    "blocks-of-16, batch 1": Setting(16, 64, 2048, 1),
    "blocks-of-256, batch 16": Setting(256, 40, 2048, 16),
}


RUNS = [
    (name, setting) for name in ("nano-vllm", "nano-vllm+243", "labengine", "labengine-radix") for setting in SETTINGS
]
RUNS += [("vllm", setting) for setting in SETTINGS if "chunks of 7, batch 16" in setting or "too small" in setting]
RUNS += [("nano-vllm-2025-07", setting) for setting in SETTINGS if "256" in setting or "too small" in setting]
RUNS += [(name, "blocks-of-16, batch 1") for name in ("mini-sglang", "mini-sglang+142", "sglang")]
"""(edition, setting): two nano editions and ours in all; the others where they differ, and can (2025-07: no chunks;
mini-sglang: no equal blocks in one step, whose copies it frees under a request)."""


RUNS = [(*run, "cpu") for run in RUNS]
RUNS += [("labengine", setting, "torch") for setting in SETTINGS if "too small" in setting or "256" in setting]
"""And the attention backend: the CPU's kernels, and for the default edition plain torch too."""

SAMPLE = {
    ("nano-vllm", "blocks-of-16, chunks of 7, batch 1", "cpu"): 4,
    ("nano-vllm+243", "blocks-of-4, batch 16", "cpu"): 10,
    ("nano-vllm-2025-07", "blocks-of-256, batch 16", "cpu"): len(PROMPTS),
    ("vllm", "blocks-of-4, pool too small, batch 16", "cpu"): 18,
    ("labengine-radix", "blocks-of-4, batch 16", "cpu"): 10,
    ("mini-sglang", "blocks-of-16, batch 1", "cpu"): 6,
    ("mini-sglang+142", "blocks-of-16, batch 1", "cpu"): 6,
    ("sglang", "blocks-of-16, batch 1", "cpu"): 6,
    ("labengine", "blocks-of-3, chunks of 7, batch 16", "cpu"): 10,
    ("labengine", "blocks-of-16, batch 1", "cpu"): 6,
    ("labengine", "blocks-of-4, pool too small, batch 16", "torch"): 18,
}
"""What runs at every change, and on how many prompts: each edition, setting, backend and prompt once.

All pairs run in the sweep, each on all prompts of its setting.
"""

JOURNEYS = {run for run in SAMPLE if "pool too small" in run[1]}


def marks_of(run: tuple[str, str, str]) -> list[pytest.MarkDecorator]:
    """Return whether a run is a sweep, or one of each backend that is made at every change whatever it costs."""
    return [pytest.mark.journey] if run in JOURNEYS else [] if run in SAMPLE else [pytest.mark.sweep]


@pytest.mark.parametrize("runs", [RUNS, SAMPLE], ids=["all", "sample"])
def test_every_edition_setting_and_backend_is_among_the_runs(runs: Collection[tuple[str, str, str]]) -> None:
    editions, settings, backends = map(set, zip(*runs, strict=True))
    assert (editions, settings, backends) == (set(EDITIONS), set(SETTINGS), {"cpu", "torch"})
    assert set(runs) <= set(RUNS)


@pytest.fixture(scope="module")
def token_ids() -> list[list[int]]:
    tokenizer = HuggingFaceTokenizer(model_path("smollm2"))
    return [tokenizer.encode(prompt) for prompt in PROMPTS]


@pytest.fixture(scope="module")
def reference() -> Any:
    """By transformers; each sequence is computed once."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(model_path("smollm2"), dtype=torch.float32).eval()
    known: dict[tuple[int, ...], torch.Tensor] = {}

    def logits(ids: list[int], positions: list[int]) -> torch.Tensor:
        if tuple(ids) not in known:
            with torch.inference_mode():
                known[tuple(ids)] = model(torch.tensor([ids])).logits[0]
        return known[tuple(ids)]

    return logits


@pytest.mark.parametrize(
    ("edition_name", "setting", "attention"),
    [pytest.param(*run, marks=marks_of(run), id=", ".join(run)) for run in RUNS],
)
def test_every_logits_row_equals_transformers(edition_name, setting, attention, token_ids, reference):
    s = SETTINGS[setting]
    runner = ModelRunner.load(
        model_path("smollm2"),
        num_blocks=s.num_blocks,
        block_size=s.block_size,
        dtype="float32",
        device="cpu",
        attention=attention,
    )
    spy = Spy(runner)
    config = EngineConfig(s.num_blocks, (GroupSpec(s.block_size),), s.max_num_seqs, s.max_num_batched_tokens)
    hooks, seen = Hooks(strict=True), []
    hooks.subscribe(seen.append, PrefixHit, RequestPreempted, BlockMerged)
    engine = Engine(config, spy, edition(edition_name), hooks)
    prompts = token_ids[: s.num_prompts if EVERY_SEED else SAMPLE[edition_name, setting, attention]]
    for ids in prompts[: len(prompts) // 2]:
        engine.add(ids, SamplingParams(max_tokens=NUM_NEW, ignore_eos=True))
    while engine.step():
        assert check_invariants(engine.snapshot()) == []
        if len(engine.requests) < len(prompts):
            engine.add(prompts[len(engine.requests)], SamplingParams(max_tokens=NUM_NEW, ignore_eos=True))

    hits = sum(event.num_tokens for event in seen if isinstance(event, PrefixHit))
    preemptions = sum(isinstance(event, RequestPreempted) for event in seen)
    assert hits > 0, "the setting was meant to meet prefix hits"
    if "too small" in setting:
        assert preemptions > 0, "the setting was meant to meet preemption"
    assert all(request.num_generated_tokens == NUM_NEW for request in engine.requests.values())
    ties = num_ties(engine, spy, reference, TOLERANCE)
    print(
        f"\n{edition_name}, {setting}: {len(spy.rows)} rows, {hits} tokens hit, {preemptions} preemptions, {ties} ties"
    )
