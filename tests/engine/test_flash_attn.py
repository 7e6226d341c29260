"""The flash_attn backend against dense attention, with fakes of its two packages; the real ones on a GPU."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from engine import fake_flash_attn
from engine.plan_builder import Dealer, plan_of
from engine.test_attention import HEAD_DIM, HEADS, KV_HEADS, SCALE, group_of, largest_error
from labengine.config import ConfigError
from labengine.engine.attention import AttentionBackend, AttentionSetting
from labengine.engine.attention.flash_attn import FlashAttention, torch_store
from labengine.engine.backend_choice import choose_attention
from labengine.engine.kv_tensors import LayerKV
from labengine.engine.step_tensors import GroupTensors, StepTensors, step_tensors

HALVES = {torch.float16: 5e-3, torch.bfloat16: 2e-2}
CPU = torch.device("cpu")

Install = Callable[..., ModuleType]


class FlashOnCpu(FlashAttention):
    """The backend, with the fake packages, on CPU tensors."""

    @classmethod
    def refusal(cls, setting: AttentionSetting) -> str | None:
        return None


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Replace both packages by one fake, on a GPU that suits it."""

    def put(generation: str, **options: str) -> ModuleType:
        module = fake_flash_attn.fa3() if generation == "FA3" else fake_flash_attn.fa2(**options)
        for name in ("flash_attn", "flash_attn_interface"):
            monkeypatch.setitem(sys.modules, name, module if name == module.__name__ else None)
        on_gpu(monkeypatch, 9 if generation == "FA3" else 8)
        return module

    return put


def on_gpu(monkeypatch: pytest.MonkeyPatch, major: int, minor: int = 0) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (major, minor))


def setting(dtype: torch.dtype = torch.bfloat16, block_size: int = 256, device: str = "cuda") -> AttentionSetting:
    return AttentionSetting(torch.device(device), dtype, HEADS, KV_HEADS, HEAD_DIM, (block_size,))


def on_cpu(block_size: int) -> Callable[[torch.dtype], AttentionBackend]:
    return lambda dtype: FlashOnCpu(setting(dtype, block_size, "cpu"))


SHORT_LENGTHS = [40, 9, 23, 2]
SHORT_STEPS = [[17, 5, 0, 0], [8, 1, 22, 1], [1, 1, 1, 1], [1, 1, 0, 0], [0, 1, 0, 0], [13, 0, 0, 0]]
LONG_LENGTHS = [300, 130, 258]
LONG_STEPS = [[150, 0, 0], [149, 70, 0], [1, 1, 257], [0, 1, 1], [0, 58, 0]]


@pytest.mark.parametrize(("block_size", "dtype"), [(1, torch.bfloat16), (3, torch.float16), (16, torch.bfloat16)])
def test_fa3_takes_any_block_size(install: Install, block_size: int, dtype: torch.dtype) -> None:
    module = install("FA3")
    error = largest_error(on_cpu(block_size), SHORT_STEPS, SHORT_LENGTHS, group_of(block_size), dtype)
    assert error < HALVES[dtype]
    assert set(module.calls) == {"varlen", "decode"}


@pytest.mark.parametrize("window", [None, 40, 200])
@pytest.mark.parametrize("block_size", [64, 256])
def test_fa3_reads_no_nan_where_it_could_copy_full_tiles(install: Install, block_size: int, window: int | None) -> None:
    install("FA3")
    spec = group_of(block_size, window)
    assert largest_error(on_cpu(block_size), LONG_STEPS, LONG_LENGTHS, spec, torch.bfloat16) < 2e-2


@pytest.mark.parametrize("window", [None, 200])
def test_fa3_copies_full_tiles_where_contexts_fill_their_blocks(install: Install, window: int | None) -> None:
    """A prompt's chunks but the last, whose context ends inside a block: behind it slots hold NaN."""
    module, steps = install("FA3"), [[128, 0], [128, 192], [128, 0], [116, 128]]
    assert largest_error(on_cpu(64), steps, [500, 320], group_of(64, window), torch.bfloat16) < 2e-2
    assert module.full_tiles == [True, True, True, False]


@pytest.mark.parametrize(("version", "decodes_by"), [("2.8.3", "kvcache"), ("2.8.3.post2", "kvcache"), ("2.8.4", "")])
@pytest.mark.parametrize("window", [None, 40, 200])
def test_fa2_with_blocks_of_256(install: Install, version: str, decodes_by: str, window: int | None) -> None:
    """From 2.8.4 on its decode waits for the device: then decodes go the way of the prompts."""
    module = install("FA2", version=version)
    error = largest_error(on_cpu(256), LONG_STEPS, LONG_LENGTHS, group_of(256, window), torch.bfloat16)
    assert error < 2e-2
    assert any(decodes_by and decodes_by in call for call in module.calls) == bool(decodes_by)


@pytest.mark.parametrize("window", [1, 5, 8, 22])
def test_windows(install: Install, window: int) -> None:
    install("FA3")
    spec = group_of(4, window)
    assert largest_error(on_cpu(4), SHORT_STEPS, SHORT_LENGTHS, spec, torch.bfloat16) < 2e-2


def test_the_fake_fails_where_the_real_ones_do(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the backend's two precautions it gives NaN, or follows a table's garbage."""
    from labengine.engine.attention import flash_attn_kernels

    install("FA3")
    with monkeypatch.context() as patch, pytest.raises(AssertionError, match="isfinite"):
        patch.setattr(flash_attn_kernels, "SMALLEST_TILE", 10**6)
        largest_error(on_cpu(64), LONG_STEPS, LONG_LENGTHS, group_of(64), torch.bfloat16)
    monkeypatch.setattr(flash_attn_kernels, "window_only", lambda step, group: (group.block_tables, step.contexts))
    with pytest.raises(AssertionError, match="illegal memory access"):
        largest_error(on_cpu(4), SHORT_STEPS, SHORT_LENGTHS, group_of(4, 8), torch.bfloat16)


def padded_step(num_rows: int, num_real: int, window: int | None) -> tuple[StepTensors, LayerKV]:
    """Decodes in blocks of 256, then rows of padding; a pool of NaN but for what the contexts hold."""
    pool = torch.full((2, 4, 256, KV_HEADS, HEAD_DIM), torch.nan, dtype=torch.bfloat16)
    contexts = torch.tensor([300 if row < num_real else 0 for row in range(num_rows)], dtype=torch.int32)
    tables = torch.full((num_rows, 5), 10**9, dtype=torch.int32)
    tables[:num_real, :2] = torch.tensor([1, 2])
    pool[:, 1], pool[:, 2, :43] = torch.randn(2, 256, KV_HEADS, HEAD_DIM), torch.randn(2, 43, KV_HEADS, HEAD_DIM)
    slots = torch.tensor([2 * 256 + 43 if row < num_real else -1 for row in range(num_rows)], dtype=torch.int32)
    rows = torch.arange(num_rows + 1, dtype=torch.int32)
    step = StepTensors(
        rows[:-1], rows[:-1], (1,) * num_rows, (5 * 256,) * num_rows, rows, contexts, rows[:-1],
        (GroupTensors(256, window, slots, tables),),
    )  # fmt: skip
    return step, LayerKV(pool[0], pool[1])


@pytest.mark.parametrize("window", [None, 100])
@pytest.mark.parametrize(("generation", "version"), [("FA3", ""), ("FA2", "2.8.3"), ("FA2", "2.8.4")])
def test_padding_writes_nowhere_and_attends_to_zeros(
    install: Install, generation: str, version: str, window: int | None
) -> None:
    install(generation, **({"version": version} if version else {}))
    step, cache = padded_step(4, 1, window)
    before = cache.keys.clone(), cache.values.clone()
    attention = FlashOnCpu(setting(device="cpu")).prepare(step, step.groups[0])
    attention.write(*torch.randn(2, 4, KV_HEADS, HEAD_DIM).to(torch.bfloat16), cache)
    out = attention.attend(torch.randn(4, HEADS, HEAD_DIM).to(torch.bfloat16), cache, SCALE)
    assert out[0].isfinite().all() and out[0].abs().sum() > 0
    assert not out[1:].any()
    for pool, was in zip((cache.keys, cache.values), before, strict=True):
        same = torch.where(pool.isnan(), was.isnan(), pool == was).all(-1).all(-1)
        assert (~same).nonzero().tolist() == [[2, 43]]


def test_fa3_takes_a_decodes_lengths_on_the_host_for_bounds(install: Install) -> None:
    """As many heads as need a tile; the bound, five blocks, says nothing about where the context ends."""
    module = install("FA3")
    step, cache = padded_step(2, 1, None)
    asked = AttentionSetting(CPU, torch.bfloat16, 256 * KV_HEADS, KV_HEADS, HEAD_DIM, (256,))
    cache.keys[2, 43:44], cache.values[2, 43:44] = 0.0, 0.0
    out = (
        FlashOnCpu(asked)
        .prepare(step, step.groups[0])
        .attend(torch.randn(2, 256 * KV_HEADS, HEAD_DIM).to(torch.bfloat16), cache, SCALE)
    )
    assert out.isfinite().all() and module.full_tiles == [False]


def test_a_store_of_padding_alone_changes_nothing() -> None:
    pool = torch.full((2, 2, 4, KV_HEADS, HEAD_DIM), torch.nan)
    pool[:, 0, 0] = 7.0
    torch_store(torch.randn(3, KV_HEADS, HEAD_DIM), torch.randn(3, KV_HEADS, HEAD_DIM), LayerKV(pool[0], pool[1]),
                torch.full((3,), -1, dtype=torch.int32))  # fmt: skip
    assert (pool[:, 0, 0] == 7.0).all() and pool.flatten(1, 2)[:, 1:].isnan().all()


@pytest.mark.parametrize("window", [None, 100])
@pytest.mark.parametrize("generation", ["FA3", "FA2"])
def test_nothing_is_read_back_from_the_device(install: Install, generation: str, window: int | None) -> None:
    """Tensors without data: reading a value raises an error. A decode that reads none can be recorded as a graph."""
    module = install(generation)

    def no_values(q: Tensor, *args: object, **kwargs: object) -> Tensor:
        return torch.empty_like(q)

    module.flash_attn_with_kvcache = module.flash_attn_varlen_func = no_values  # type: ignore[attr-defined]
    backend = FlashOnCpu(setting(device="cpu"))
    step, cache = padded_step(4, 2, window)
    with FakeTensorMode(allow_non_fake_inputs=False) as mode:
        group = step.groups[0]
        fake = [mode.from_tensor(t) for t in (group.slots, group.block_tables, step.contexts, step.query_starts)]
        keys, values, queries = (torch.empty(4, heads, HEAD_DIM) for heads in (KV_HEADS, KV_HEADS, HEADS))
        cache = LayerKV(mode.from_tensor(cache.keys), mode.from_tensor(cache.values))
        asked = StepTensors(
            fake[0], fake[0], step.query_lens, step.context_lens, fake[3], fake[2], fake[0],
            (GroupTensors(256, window, fake[0], fake[1]),),
        )  # fmt: skip
        attention = backend.prepare(asked, asked.groups[0])
        attention.write(keys.bfloat16(), values.bfloat16(), cache)
        assert attention.attend(queries.bfloat16(), cache, SCALE).shape == queries.shape


def test_a_view_of_a_wider_tensor_will_do(install: Install) -> None:
    """Queries, keys and values as slices of one qkv matrix."""
    install("FA3")
    dealer = Dealer(8, 4)
    plan = plan_of(dealer.request([0] * 6).take(6), dealer.request([0] * 3).take(3))
    step = step_tensors(plan, [group_of(4)], CPU)
    heads = torch.randn(9, HEADS + 2 * KV_HEADS, HEAD_DIM).to(torch.bfloat16)
    outs = []
    for queries, keys, values in (heads.split((HEADS, KV_HEADS, KV_HEADS), dim=1),
                                  (t.clone() for t in heads.split((HEADS, KV_HEADS, KV_HEADS), dim=1))):  # fmt: skip
        pool = torch.full((2, 8, 4, KV_HEADS, HEAD_DIM), torch.nan, dtype=torch.bfloat16)
        attention = FlashOnCpu(setting(block_size=4, device="cpu")).prepare(step, step.groups[0])
        attention.write(keys, values, cache := LayerKV(pool[0], pool[1]))
        outs.append(attention.attend(queries, cache, SCALE))
    assert torch.equal(*outs)


# -- who is refused, and why ------------------------------------------------------------------------------------------


def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("flash_attn", "flash_attn_interface"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize(
    ("capability", "asked", "reason"),
    [
        (9, setting(device="cpu"), "GPU.* cpu"),
        (9, setting(torch.float32), "float16 or bfloat16, not in float32"),
        (7, setting(), r"FA3 .*sm_90.* sm_70; FA2 .*sm_80"),
        (8, setting(block_size=16), r"FA3 .*; FA2 .* 256 tokens.* 16"),
        (8, setting(), r"FA3 .*sm_90.*; FA2 \(flash_attn\) is not installed"),
        (9, setting(block_size=16), r"FA3 \(flash_attn_interface\) is not installed; FA2 .* 256"),
    ],
)
def test_refusals(monkeypatch: pytest.MonkeyPatch, capability: int, asked: AttentionSetting, reason: str) -> None:
    absent(monkeypatch)
    on_gpu(monkeypatch, capability)
    with pytest.raises(ConfigError, match=f"attention='flash_attn' .*{reason}"):
        choose_attention("flash_attn", asked)
    with pytest.raises(RuntimeError, match="flash_attn"):
        FlashAttention(asked)


def test_kernels_for_another_torch_are_reported_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that is there and breaks says how."""
    from labengine.engine.attention import flash_attn_kernels

    def broken(name: str) -> ModuleType:
        raise ImportError("undefined symbol: _ZN3c10")

    on_gpu(monkeypatch, 8)
    monkeypatch.setattr(flash_attn_kernels, "import_module", broken)
    refusal = FlashAttention.refusal(setting())
    assert refusal is not None and "FA2 (flash_attn) cannot be loaded: undefined symbol: _ZN3c10" in refusal


def test_a_package_without_the_functions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """flash-attn-4 alone leaves an empty flash_attn to import; a later FA3 may move what it has."""
    on_gpu(monkeypatch, 9)
    for name in ("flash_attn", "flash_attn_interface"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    refusal = FlashAttention.refusal(setting())
    assert refusal == (
        "FA3 (flash_attn_interface) has no flash_attn_with_kvcache; "
        "FA2 (flash_attn) has no flash_attn_with_kvcache and no flash_attn_varlen_func"
    )


def test_the_newest_generation_is_taken(monkeypatch: pytest.MonkeyPatch, install: Install) -> None:
    install("FA3")
    monkeypatch.setitem(sys.modules, "flash_attn", fake_flash_attn.fa2())
    assert FlashOnCpu(setting(device="cpu")).generation == "FA3"
    on_gpu(monkeypatch, 8, 9)
    assert FlashOnCpu(setting(device="cpu")).generation == "FA2"


def test_versions_are_read_as_numbers() -> None:
    from labengine.engine.attention.flash_attn_kernels import _waits_for_longest_context

    versions = {"2.8.3": False, "2.8.3.post2": False, "2.8.4": True, "2.10.0": True, "2.7.4": False, "odd": False}
    for version, waits in versions.items():
        assert _waits_for_longest_context(SimpleNamespace(__version__=version)) is waits  # type: ignore[arg-type]
