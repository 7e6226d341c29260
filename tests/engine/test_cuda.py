"""On a GPU: logits against transformers, every attention backend, graphs beside eager, and a complete lab.

Tokens are compared as they are only between the same steps: other batches round otherwise (docs/gpu.md), so that runs
of different ones are judged, and tokens held against transformers' logits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.plan_builder import Dealer, plan_of
from engine.reference import Reference, largest_difference, poison, transformers_logits
from labengine import judge
from labengine.config import ConfigError
from labengine.core.step_plan import StepPlan
from labengine.engine.attention import AttentionSetting
from labengine.engine.backend_choice import BACKENDS
from labengine.engine.forward import choice as forward_choice
from labengine.engine.forward.eager import EagerForward
from labengine.engine.forward.graphs import GraphedForward
from labengine.engine.forward.pieces import PiecewiseForward
from labengine.engine.model_runner import ModelRunner
from labengine.engine.pool_size import free_memory
from labengine.engine.step_tensors import StepTensors
from labengine.engine.tokenizer import HuggingFaceTokenizer
from labengine.events import ExternalHit
from labengine.lab import Lab

pytestmark = pytest.mark.gpu

CUDA = torch.device("cuda")
ON_A_GPU = ["torch", "triton", "flash_attn"]


@pytest.fixture(autouse=True)
def exact_float32() -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


def require(attention: str, dtype: torch.dtype, block_size: int) -> None:
    """Skips, with the backend's reason, cases that this GPU or environment does not support."""
    refusal = BACKENDS[attention]().refusal(AttentionSetting(CUDA, dtype, 4, 2, 64, (block_size,)))
    if refusal is not None:
        pytest.skip(f"{attention}: {refusal}")


def random_texts(*lengths: int) -> list[list[int]]:
    return [Random(length).choices(range(101), k=length) for length in lengths]


@pytest.mark.parametrize("attention", ["torch", "triton"])
@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3"])
def test_tiny_models_in_float32(family: str, attention: str, tiny_model: Callable[..., Path], tiny_gemma: Path) -> None:
    require(attention, torch.float32, 16)
    model_dir = tiny_gemma if family == "gemma3" else tiny_model(family)
    texts = random_texts(5, 23, 90, 41)
    expected = [transformers_logits(model_dir)(text) for text in texts]
    for block_size in (3, 16):
        runner = ModelRunner.load(
            model_dir, num_blocks=300, block_size=block_size, device="cuda", dtype="float32", attention=attention
        )
        assert largest_difference(runner, texts, expected, chunk=7, num_decodes=4) < 1e-3


@pytest.mark.parametrize("block_size", [16, 256])
@pytest.mark.parametrize("attention", ON_A_GPU)
@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_backends_agree_in_bfloat16(
    family: str, attention: str, block_size: int, tiny_model: Callable[..., Path], tiny_gemma: Path
) -> None:
    """Against float32 by torch, with NaN in every slot not yet written, chunks, windows and decodes by graph."""
    require(attention, torch.bfloat16, block_size)
    model_dir = tiny_gemma if family == "gemma3" else tiny_model("llama", initializer_range=0.05)
    texts = random_texts(5, 23, 90, 300)
    expected = [transformers_logits(model_dir)(text) for text in texts]
    runner = ModelRunner.load(
        model_dir, num_blocks=200, block_size=block_size, device="cuda", dtype="bfloat16", attention=attention
    )
    scale = max(logits.abs().max().item() for logits in expected)
    assert largest_difference(runner, texts, expected, chunk=130, num_decodes=4) < 0.06 * scale


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-2), ("bfloat16", 1.0)])
@pytest.mark.parametrize("attention", ON_A_GPU)
def test_smollm2(attention: str, dtype: str, tolerance: float, smollm2: Path) -> None:
    """bfloat16 keeps 8 bits of a logit of about 20, through 30 layers: the argmax is what should hold."""
    require(attention, getattr(torch, dtype), 16)
    tokenizer = HuggingFaceTokenizer(smollm2)
    texts = [
        tokenizer.encode(text) for text in ("The capital of France is Paris. The capital of Japan is", "1, 2, 3, 4,")
    ]
    expected = [transformers_logits(smollm2, device="cuda")(text) for text in texts]
    runner = ModelRunner.load(smollm2, num_blocks=64, block_size=16, device="cuda", dtype=dtype, attention=attention)
    assert largest_difference(runner, texts, expected, chunk=7, num_decodes=3) < tolerance


def test_steps_that_sample_nothing_do_not_overtake_each_other(tiny_llama: Path) -> None:
    """Such steps are not waited for: the next one must not write where the last one's copies still read."""
    pools = []
    for delay in (0, 500_000_000):
        runner = ModelRunner.load(tiny_llama, num_blocks=64, block_size=4, device="cuda", dtype="float32")
        request = Dealer(64, 4).request(random_texts(120)[0])
        for _ in range(4):
            torch.cuda._sleep(delay)  # the device is busy, and the copies stand in line
            runner.forward(plan_of(request.take(30, samples=False)))
        pools.append(torch.stack([runner.kv_tensors.layer(layer).keys for layer in range(3)]))
    assert torch.equal(*pools)


# -- graphs -----------------------------------------------------------------------------------------------------------


def runners(
    model_dir: Path, attention: str, dtype: str, monkeypatch: pytest.MonkeyPatch, block_size: int = 16
) -> tuple[ModelRunner, ModelRunner]:
    """The same model by graphs and without."""
    require(attention, getattr(torch, dtype), block_size)

    def load() -> ModelRunner:
        return ModelRunner.load(
            model_dir, num_blocks=96, block_size=block_size, max_num_seqs=6, device="cuda", dtype=dtype,
            attention=attention,
        )  # fmt: skip

    graphed = load()
    with monkeypatch.context() as patch:
        patch.setattr(forward_choice, "refusal", lambda device, backend: "switched off")
        eager = load()
    assert isinstance(graphed._forward, GraphedForward) and isinstance(eager._forward, EagerForward)
    pieces = graphed._forward._others
    assert isinstance(pieces, PiecewiseForward) and graphed._forward._recordings and pieces._recordings, (
        graphed.describe()["forward"]
    )
    return graphed, eager


@pytest.mark.parametrize(
    ("attention", "dtype", "block_size"),
    [
        ("triton", "float32", 16),
        ("triton", "bfloat16", 16),
        ("triton", "bfloat16", 256),
        ("flash_attn", "bfloat16", 16),
        ("flash_attn", "bfloat16", 256),
    ],
)
@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_graphs_give_what_eager_gives(
    family: str,
    attention: str,
    dtype: str,
    block_size: int,
    tiny_model: Callable[..., Path],
    tiny_gemma: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Batches that shrink and grow again, with NaN in every slot not yet written: logits and the whole pool agree.

    Prompts, and chunks with decodes, run through pieces; decodes alone through complete graphs.
    """
    model_dir = tiny_gemma if family == "gemma3" else tiny_model("llama")
    both = runners(model_dir, attention, dtype, monkeypatch, block_size)
    results = []
    for runner in both:
        poison(runner, range(96))
        dealer = Dealer(96, runner.groups)
        *requests, late = [dealer.request(text) for text in random_texts(30, 41, 7, 19, 12, 150)]
        logits = [runner.forward(plan_of(request.take(len(request.token_ids) - 6))).clone() for request in requests]
        for chunk in (33, 60, 57):  # the larger one leaves rows behind
            plan = plan_of(late.take(chunk), *(request.take(1) for request in requests[2:4]))
            logits.append(runner.forward(plan).clone())
        batches = (requests, requests[:2], requests[:1], requests[1:4], requests)
        logits += [runner.forward(plan_of(*(r.take(1) for r in batch))).clone() for batch in batches]
        assert all(step.isfinite().all() for step in logits)
        pool = torch.stack([torch.stack((kv.keys, kv.values)) for kv in map(runner.kv_tensors.layer, range(3))])
        results.append((torch.cat(logits), pool.isnan(), pool.nan_to_num()))
    (ours, our_gaps, our_pool), (theirs, their_gaps, their_pool) = results
    tolerance = 1e-3 if dtype == "float32" else 0.05 * theirs.abs().max().item()
    assert (ours - theirs).abs().max() <= tolerance
    assert torch.equal(our_gaps, their_gaps), "other slots were written"
    assert (our_pool - their_pool).abs().max() <= 0.1 * their_pool.abs().max()


def test_graphs_are_described_and_released(smollm2: Path) -> None:
    require("triton", torch.bfloat16, 16)
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    runner = ModelRunner.load(smollm2, num_blocks=64, block_size=16, device="cuda", attention="triton")
    assert runner.describe()["forward"].startswith("CUDA graphs for decodes of 1, 2, 4, 8 and 16 requests")
    runner.release()
    assert torch.cuda.memory_allocated() - before < 2**24


def test_a_backend_that_asks_the_host_runs_eagerly(smollm2: Path) -> None:
    runner = ModelRunner.load(smollm2, num_blocks=64, block_size=16, device="cuda", attention="torch")
    assert runner.describe()["forward"].startswith("eager")


# -- the whole lab ----------------------------------------------------------------------------------------------------

PROMPTS = ["Once upon a time", "The capital of France is", "1, 2, 3, 4,", "A cat and a dog", "Rain in the night"]
LONG_PROMPT = "Once upon a time there was a machine that kept every word it had read in small blocks. " * 2


@pytest.mark.parametrize("attention", ON_A_GPU)
def test_a_lab_answers_as_transformers_does(attention: str, smollm2: Path) -> None:
    """Greedy, float32 where the backend can, batched, with prefix hits on the second round."""
    dtype = "bfloat16" if attention == "flash_attn" else "float32"
    require(attention, getattr(torch, dtype), 16)
    with Lab("smollm2", num_blocks=128, device="cuda", dtype=dtype, attention=attention) as lab:
        first, second = (lab.generate(PROMPTS, max_tokens=24) for _ in range(2))
        for one, other in zip(first, second, strict=True):
            assert_same_content((lab, one.request_id), (lab, other.request_id))
        assert lab.violations == [] and lab.check() == []
        if dtype == "float32":
            reference = transformers_logits(smollm2, device="cuda")
            for prompt, output in zip(PROMPTS, first, strict=True):
                assert shortfall(reference, lab.encode(prompt), output.token_ids) < NEAR_TIE


def assert_same_content(one: tuple[Lab, int], other: tuple[Lab, int]) -> None:
    """The runs differ by no more than rounding, and so do their tokens."""
    verdict = judge(one, other)
    assert verdict.kind in ("equal", "other rounding"), verdict.message


NEAR_TIE = 2e-2
"""Twice what a logit may differ by from transformers' in float32: of two logits as close, either may win."""


def shortfall(reference: Reference, prompt: Sequence[int], tokens: Sequence[int]) -> float:
    """How far below the reference's highest logit the tokens' are, at most; 0 where each is its argmax."""
    rows = reference([*prompt, *tokens])[len(prompt) - 1 : -1]
    sampled = rows.gather(1, torch.tensor(tokens, device=rows.device).unsqueeze(1)).squeeze(1)
    return (rows.amax(1) - sampled).max().item()


def test_preemption_and_sampling_by_graphs_and_without() -> None:
    """A pool too small for all: requests are preempted and computed again, and draw the same tokens again."""
    require("triton", torch.float32, 4)
    with ExitStack() as labs:
        runs = []
        for graphs in (True, False):
            lab = labs.enter_context(
                Lab("smollm2", num_blocks=24, block_size=4, device="cuda", dtype="float32", attention="triton",
                    cuda_graphs=graphs)
            )  # fmt: skip
            assert ("CUDA graphs for" in lab.status()["forward"]) is graphs
            outputs = lab.generate(PROMPTS, max_tokens=20, temperature=0.8, top_p=0.9)
            runs.append([(lab, output.request_id) for output in outputs])
            assert lab.violations == []
        for one, other in zip(*runs, strict=True):
            assert_same_content(one, other)


@pytest.fixture
def ran() -> Iterator[Callable[..., Lab]]:
    """Make a lab on the GPU, and run the first prompt in it, among others."""
    with ExitStack() as labs:

        def make(dtype: str, num_requests: int = 1, **settings: Any) -> Lab:
            lab = labs.enter_context(Lab("smollm2", num_blocks=64, device="cuda", dtype=dtype, **settings))
            lab.session.violation_warnings.is_silent = True
            for prompt in (LONG_PROMPT, *PROMPTS)[:num_requests]:
                lab.add(prompt, max_tokens=24)
            lab.run()
            return lab

        yield make


class LatePositions(ModelRunner):
    """Rotates queries and keys to later positions: the plan is right, the keys are not those of the tokens."""

    def step_tensors(self, plan: StepPlan) -> StepTensors:
        step = super().step_tensors(plan)
        return replace(step, positions=step.positions + 50)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_judge_separates_rounding_from_content(dtype: str, ran: Callable[..., Lab]) -> None:
    """Other batches, chunks and module by module are rounding; keys of other positions are not."""
    alone = ran(dtype)
    same = judge(alone, ran(dtype))
    assert same.kind == "equal" and same.figures is not None and same.figures.is_bitwise_equal
    for other in (ran(dtype, 6), ran(dtype, max_num_batched_tokens=16), ran(dtype, cuda_graphs=False)):
        verdict = judge(alone, other)
        assert verdict.kind in ("equal", "other rounding"), verdict.message
        figures = verdict.figures
        assert figures is not None and max(layer.relative for layer in figures.layers) < figures.limit / 2
    wrong = judge(alone, ran(dtype, runner=LatePositions))
    assert wrong.kind == "wrong content" and "the second run is not" in wrong.message


def test_a_hybrid_model_on_a_gpu() -> None:
    from labengine import model_path

    require("triton", torch.float32, 16)
    reference = transformers_logits(model_path("gemma3-270m"), device="cuda")
    with Lab("gemma3-270m", num_blocks=400, device="cuda", dtype="float32") as lab:
        prompt = Random(0).choices(range(1000), k=600)  # longer than the window
        (output,) = lab.generate([prompt], max_tokens=8)
        assert shortfall(reference, prompt, output.token_ids) < NEAR_TIE
        assert lab.violations == []


def test_recording_and_looking_change_nothing() -> None:
    outputs = []
    for record in (False, True):
        with Lab("smollm2", num_blocks=64, device="cuda", record=record) as lab:
            outputs.append([o.token_ids for o in lab.generate(PROMPTS[:2], max_tokens=12)])
            assert (lab.timeline is not None) is record
            if record:
                assert lab.fold() is not None and lab.kv(0, 0)[0].device.type in ("cuda", "cpu")
    assert outputs[0] == outputs[1]


def test_stepping_back_to_a_graphs_step_after_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle of a decode: the step is rolled back, and taken again gives what it would have given."""
    with Lab("smollm2", num_blocks=64, device="cuda") as lab:
        expected = lab.generate(PROMPTS[:3], max_tokens=10)
        lab.reset()
        ids = [lab.add(prompt, max_tokens=10) for prompt in PROMPTS[:3]]
        for _ in range(3):
            lab.step()
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(lab.session.model.runner, "sample", _interrupt)
            lab.step()
        lab.run()
        assert [lab.output(i).token_ids for i in ids] == [o.token_ids for o in expected]


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_tier_outside_keeps_what_a_gpu_computed(tmp_path: Path, smollm2: Path) -> None:
    """The second lab computes the end of the prompt only."""
    hits: list[ExternalHit] = []
    reference = transformers_logits(smollm2, device="cuda")
    for _ in range(2):
        with Lab("smollm2", num_blocks=64, device="cuda", external=tmp_path, dtype="float32") as lab:
            lab.hooks.subscribe(hits.append, ExternalHit)
            prompt = lab.encode("Once upon a time there was a machine. " * 10)
            (output,) = lab.generate([prompt], max_tokens=6)
            assert shortfall(reference, prompt, output.token_ids) < NEAR_TIE
    assert len(hits) == 1 and hits[0].num_tokens >= 64


def test_the_gpu_is_the_default(smollm2: Path) -> None:
    lines = ModelRunner.load(smollm2, num_blocks=8, block_size=16).describe()
    assert lines["device"].startswith("cuda")
    assert lines["dtype"].startswith("bfloat16")
    assert lines["attention"].startswith(("flash_attn", "triton"))
    assert lines["forward"].startswith("CUDA graphs")


def test_auto_takes_half_of_the_gpu_and_can_be_forked() -> None:
    with Lab("smollm2", num_blocks="auto", device="cuda") as lab:
        free, total = torch.cuda.mem_get_info()
        assert lab.config.num_blocks * 16 > 100_000
        assert 0.4 * total < free < 0.7 * total
        expected = lab.generate(["Hello"], max_tokens=4)[0].token_ids
        with lab.fork(0) as fork:
            assert fork.config.num_blocks == lab.config.num_blocks
            assert fork.generate(["Hello"], max_tokens=4)[0].token_ids == expected


def test_auto_leaves_room_for_the_largest_step() -> None:
    """16,384 tokens at once, and 256 requests with all the settings of sampling."""
    limits = {"max_num_seqs": 256, "max_num_batched_tokens": 16_384}
    with Lab("smollm2", num_blocks="auto", device="cuda", check=False, record=False, **limits) as lab:
        for row in range(256):
            lab.add(token_ids=[row] * 64, max_tokens=4, temperature=1.0, top_p=0.9, seed=row)
        lab.run()
        assert len(lab.output(255).token_ids) >= 1


def test_auto_again_takes_as_much_as_the_first_time() -> None:
    """What a closed lab had is free, for the next lab and for other processes."""
    sizes = []
    for _ in range(2):
        with Lab("smollm2", num_blocks="auto", device="cuda") as lab:
            sizes.append(lab.config.num_blocks)
            lab.close()  # and a second time by `with`
        assert torch.cuda.memory_reserved() < 2**30
    assert sizes[1] > 0.97 * sizes[0]


def test_memory_that_torch_caches_is_free() -> None:
    """A tensor that is gone but still reserved must not make a pool too large."""
    torch.cuda.empty_cache()
    before = free_memory(CUDA)
    tensor = torch.empty(before // 2, dtype=torch.uint8, device=CUDA)
    assert free_memory(CUDA) < 0.6 * before
    del tensor
    assert torch.cuda.mem_get_info()[0] < 0.6 * before
    assert free_memory(CUDA) > 0.95 * before


def test_a_model_on_another_gpu_than_the_current_one() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("takes two GPUs")
    answers = []
    for device in ("cuda:0", "cuda:1"):
        with Lab("smollm2", num_blocks=64, device=device, dtype="float32") as lab:
            answers.append([o.token_ids for o in lab.generate(PROMPTS[:3], max_tokens=8)])
            assert torch.cuda.current_device() == 0
    assert answers[0] == answers[1]


def test_a_pool_for_a_larger_gpu_is_refused(smollm2: Path) -> None:
    with pytest.raises(ConfigError, match="GiB for the KV pool, but cuda"):
        ModelRunner.load(smollm2, num_blocks=10**7, block_size=16, device="cuda")


def test_an_impossible_backend_is_refused(smollm2: Path) -> None:
    with pytest.raises(ConfigError, match=r"flash_attn.*float16 or bfloat16, not in float32"):
        ModelRunner.load(smollm2, num_blocks=8, block_size=256, device="cuda", dtype="float32", attention="flash_attn")
    with pytest.raises(ConfigError, match=r"attention='cpu' .* CPU"):
        ModelRunner.load(smollm2, num_blocks=8, block_size=16, device="cuda", attention="cpu")


@pytest.mark.parametrize("edition", ["nano-vllm", "nano-vllm+243"])
def test_a_script_for_nano_vllm_at_blocks_of_256(edition: str, smollm2: Path) -> None:
    """The equal prompts of pull request 243, 801 tokens each, through flash-attn: 8 blocks, or 5 with the merge."""
    from labengine.compat.nanovllm import LLM, SamplingParams

    require("flash_attn", torch.bfloat16, 256)
    llm = LLM(smollm2, edition=edition, num_kvcache_blocks=32)
    try:
        assert llm.lab.status()["attention"].startswith("flash_attn")
        prompt = llm.tokenizer.encode("This is a concurrent cache test prompt. " * 100)
        for _ in range(2):
            llm.add_request(prompt, SamplingParams(temperature=1.0, max_tokens=3, ignore_eos=True))
        llm.step()
        used = len(llm.scheduler.block_manager.used_block_ids)
        assert SimpleNamespace(prompt=len(prompt), used=used) == SimpleNamespace(
            prompt=801, used=5 if edition.endswith("243") else 8
        )
        while not llm.is_finished():
            llm.step()
    finally:
        llm.exit()
