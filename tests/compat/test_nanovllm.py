"""Scripts written for nano-vLLM run with nothing changed but their import."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from first_layers import write_first_layers
from labengine import model_path
from labengine.compat.nanovllm import LLM, SamplingParams
from labengine.config import ConfigError

SCRIPT = Path(__file__).with_name("nanovllm_script.py").read_text(encoding="utf-8")
IMPORT = "from nanovllm import LLM, SamplingParams"


def run_script() -> list[dict[str, Any]]:
    """The script with its import changed, and nothing else."""
    assert SCRIPT.count(IMPORT) == 1 and SCRIPT.count("nanovllm") == 1
    names: dict[str, Any] = {"__name__": "script"}
    exec(SCRIPT.replace(IMPORT, "from labengine.compat.nanovllm import LLM, SamplingParams"), names)
    steps: list[dict[str, Any]] = names["main"]()
    return steps


@pytest.fixture
def first_layers(tmp_path: Path) -> Path:
    return write_first_layers(tmp_path)


@pytest.mark.parametrize("is_complete", [False, pytest.param(True, marks=pytest.mark.sweep)])
@pytest.mark.parametrize(("edition", "used", "ref_count"), [("nano-vllm", 8, 1), ("nano-vllm+243", 5, 2)])
def test_the_script_of_pull_request_243(
    monkeypatch: pytest.MonkeyPatch, edition: str, used: int, ref_count: int, is_complete: bool, first_layers: Path
) -> None:
    monkeypatch.setenv("MODEL_PATH", str(model_path("smollm2") if is_complete else first_layers))
    assert LLM.edition == "nano-vllm"
    monkeypatch.setattr(LLM, "edition", edition)
    prefill, *decodes = run_script()
    assert prefill == {
        "used": used,
        "hashes": 3,
        "duplicates": 3 if edition == "nano-vllm" else 0,
        "ref_counts": [ref_count] * 3,
        "free": 32 - used,
        "num_tokens": 1602,
        "finished": [],
    }
    assert [step["used"] for step in decodes] == [used, 0]
    assert [step["num_tokens"] for step in decodes] == [-2, -2]
    assert decodes[-1]["finished"] == [3, 3]


@pytest.fixture
def llm() -> Iterator[LLM]:
    made = LLM("simulated", kvcache_block_size=4, num_kvcache_blocks=12)
    yield made
    made.exit()


def test_generate_gives_texts_and_tokens_in_order(llm: LLM) -> None:
    longer, shorter = SamplingParams(max_tokens=5, ignore_eos=True), SamplingParams(max_tokens=2, ignore_eos=True)
    outputs = llm.generate(["one two three", [1, 2, 3]], [longer, shorter], use_tqdm=False)
    assert [len(output["token_ids"]) for output in outputs] == [5, 2]
    assert all(output["text"] for output in outputs)
    assert llm.is_finished() and llm.scheduler.is_finished()
    again = llm.generate(["one two three"], longer, use_tqdm=False)
    assert len(again) == 1


def test_generate_draws_a_bar_when_asked(llm: LLM, capsys: pytest.CaptureFixture[str]) -> None:
    llm.generate([[1, 2, 3]], SamplingParams(max_tokens=2))
    assert "Generating: 100%" in capsys.readouterr().err


def test_the_block_manager_follows_the_lab(llm: LLM) -> None:
    manager = llm.scheduler.block_manager
    assert (len(manager.free_block_ids), manager.used_block_ids, manager.hash_to_block_id) == (12, set(), {})
    llm.add_request(list(range(9)), SamplingParams(max_tokens=4))
    assert not llm.is_finished()
    llm.step()
    assert manager.used_block_ids == {0, 1, 2} and list(manager.free_block_ids) == list(range(3, 12))
    first, last = manager.blocks[0], manager.blocks[2]
    assert first.token_ids == [0, 1, 2, 3] and manager.hash_to_block_id[first.hash] == 0
    assert (last.hash, last.token_ids, last.ref_count) == (-1, [], 1)
    llm.generate([], SamplingParams(), use_tqdm=False)
    assert manager.used_block_ids == set() and manager.hash_to_block_id[first.hash] == 0


def test_a_step_of_decodes_counts_down(llm: LLM) -> None:
    llm.add_request([1, 2, 3], SamplingParams(max_tokens=2))
    assert llm.step() == ([], 3)
    [(request_id, token_ids)], num_tokens = llm.step()
    assert (request_id, len(token_ids), num_tokens) == (0, 2, -1)
    assert llm.step() == ([], 0)


def test_the_edition_can_be_named() -> None:
    llm = LLM("simulated", edition="nano-vllm+243", kvcache_block_size=4)
    assert llm.lab.parts.name == "nano-vllm+243"
    llm.exit()


def test_what_it_cannot_do_is_refused() -> None:
    with pytest.raises(ConfigError, match="one device"):
        LLM("simulated", tensor_parallel_size=2)
    with pytest.raises(TypeError, match="did you mean 'max_num_seqs'"):
        LLM("simulated", max_num_seq=2)
    with pytest.raises(ConfigError, match=r"got .nano-vllm\+244"):
        LLM("simulated", edition="nano-vllm+244")
