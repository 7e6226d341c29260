"""How attention is cut up for Triton's kernels: no Triton needed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from engine.late_gpu import LateGpu, OnTheGpu
from engine.plan_builder import Dealer, plan_of
from labengine.config import GroupSpec
from labengine.engine.attention import AttentionSetting
from labengine.engine.attention.triton import Launch, TritonAttention, TritonStep
from labengine.engine.attention.triton_tiles import Gpu, decode_shape, num_spans, prefill_shape, query_tiles
from labengine.engine.step_tensors import StepTensors, step_tensors

CPU = torch.device("cpu")
H100 = Gpu((9, 0), 132)
QWEN = AttentionSetting(torch.device("cuda"), torch.bfloat16, 16, 8, 128, (16,))


def test_tiles_cover_every_query_once_the_heaviest_first() -> None:
    tiles = query_tiles([5, 1, 9], [25, 4, 9], requests=[0, 2], queries=4, window=None)
    assert tiles.tolist() == [[0, 4], [0, 0], [2, 8], [2, 4], [2, 0]]


def test_with_a_window_all_tiles_but_the_first_weigh_the_same() -> None:
    tiles = query_tiles([12], [12], requests=[0], queries=4, window=3)
    assert tiles.tolist() == [[0, 4], [0, 8], [0, 0]]


def test_the_list_of_tiles_is_sent_without_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device still computes the step before: a copy from memory that is not pinned would wait for that."""
    dealer = Dealer(400, 4)
    chunks, decode = [dealer.request([7] * 200) for _ in range(2)], dealer.request([7])
    mixed = step_tensors(plan_of(*(request.take(200) for request in (*chunks, decode))), [GroupSpec(4)], CPU)
    decodes = step_tensors(plan_of(dealer.request([7]).take(1)), [GroupSpec(4)], CPU)
    gpu, backend = LateGpu(monkeypatch), TritonAttention(replace(QWEN, device=CPU), H100)
    launches = prepared(backend, mixed)
    assert len(gpu.queue) == 2, "one for the prompts' tiles, and one for the decodes'"
    gpu.finish()
    queries = backend.prefill_shape.queries(2)
    expected = [
        query_tiles(mixed.query_lens, mixed.context_lens, *each, None) for each in (([0, 1], queries), ([2], 1))
    ]
    assert [launch.tiles.tolist() for launch in launches if launch.tiles is not None] == [
        tiles.tolist() for tiles in expected
    ]
    (launch,) = prepared(backend, decodes)
    assert launch.tiles is None and not gpu.queue


def prepared(backend: TritonAttention, step: StepTensors) -> list[Launch]:
    """The launches for a step on the stand-in."""
    (group,) = step.groups
    attention = backend.prepare(step, replace(group, slots=group.slots.as_subclass(OnTheGpu)))
    assert isinstance(attention, TritonStep)
    return attention._launches


@pytest.mark.parametrize(("capability", "kib"), [((8, 0), 164), ((8, 9), 100), ((9, 0), 228), ((12, 0), 100)])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_three_decodes_share_an_sms_memory(capability: tuple[int, int], kib: int, head_dim: int) -> None:
    """Keys and values of all stages but one; what ptxas says of the kernels is in test_triton_compiles.py."""
    shape = decode_shape(Gpu(capability, 100), replace(QWEN, head_dim=head_dim))
    copies = 2 * (shape.num_stages - 1) * shape.keys * head_dim * QWEN.dtype.itemsize
    assert 16 * 1024 <= copies <= kib * 1024 // shape.per_sm - 10 * 1024


def test_many_tiles_are_not_cut() -> None:
    assert num_spans(H100, decode_shape(H100, QWEN), 256 * 8, 562) == 1


def test_few_tiles_fill_the_gpu() -> None:
    shape = decode_shape(H100, QWEN)
    spans = num_spans(H100, shape, 8, 8192)
    assert H100.num_sms <= 8 * spans <= H100.num_sms * shape.per_sm


@pytest.mark.parametrize(("longest", "expected"), [(1, 1), (256, 1), (257, 2), (1024, 4)])
def test_a_span_is_worth_its_program(longest: int, expected: int) -> None:
    assert num_spans(H100, decode_shape(H100, QWEN), 8, longest) == expected


@pytest.mark.parametrize("group", [1, 3, 7, 16, 48, 200])
def test_a_tile_holds_at_least_one_query_of_all_heads(group: int) -> None:
    setting = AttentionSetting(torch.device("cuda"), torch.bfloat16, group, 1, 128, (16,))
    decode, prefill = decode_shape(H100, setting), prefill_shape(H100, setting)
    assert decode.rows >= group
    assert group <= prefill.queries(group) * group <= prefill.rows
