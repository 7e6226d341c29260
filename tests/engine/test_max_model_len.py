"""max_model_len: how long a request may become; static tables and a pool of "auto" are no larger than that needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from labengine import ConfigError, Lab
from labengine.compat.nanovllm import LLM
from labengine.engine.forward.graphs import GraphedForward
from labengine.engine.static_runner import StaticRunner

SUPPORTED = 512
"""Positions of the tiny model."""


def lab_of(directory: Path, max_model_len: int | None, **settings: Any) -> Lab:
    return Lab(directory, device="cpu", block_size=4, max_num_seqs=3, max_model_len=max_model_len, **settings)


def test_a_longer_request_is_refused_before_anything_changes(tiny_llama: Path) -> None:
    with lab_of(tiny_llama, 20, num_blocks=16) as lab:
        before = lab.snapshot()
        with pytest.raises(ConfigError, match=r"17 tokens with max_tokens=4 .* 20 positions"):
            lab.add(token_ids=range(17), max_tokens=4)
        assert lab.snapshot() == before
        lab.add(token_ids=range(16), max_tokens=4, ignore_eos=True)
        lab.run()
        assert len(lab.snapshot().requests[0].token_ids) == 20
        assert lab.status()["max_model_len"] == f"20 of {SUPPORTED} positions (requested)"


def test_auto_is_what_such_requests_can_use(tiny_llama: Path) -> None:
    with lab_of(tiny_llama, 20, num_blocks="auto") as short, lab_of(tiny_llama, None, num_blocks="auto") as full:
        assert short.config.num_blocks == 3 * 5 and full.config.num_blocks == 3 * SUPPORTED // 4
        assert "max_model_len" not in full.status()


def test_more_than_the_model_supports_is_refused(tiny_llama: Path) -> None:
    with pytest.raises(ConfigError, match=rf"max_model_len must be at most {SUPPORTED}, .* got {SUPPORTED + 1}"):
        lab_of(tiny_llama, SUPPORTED + 1)
    lab_of(tiny_llama, SUPPORTED).close()


def test_a_fork_has_the_same_or_its_own(tiny_llama: Path) -> None:
    with lab_of(tiny_llama, 20, num_blocks=16) as lab, lab.fork(0) as same, lab.fork(0, max_model_len=40) as longer:
        for one, limit in ((same, 20), (longer, 40)):
            with pytest.raises(ConfigError, match=f"exceeds the {limit} positions"):
                one.add(token_ids=range(limit), max_tokens=1)
        with pytest.raises(ConfigError, match=f"at most {SUPPORTED}, "):
            lab.fork(0, max_model_len=SUPPORTED + 1)


def test_the_simulated_model_has_a_limit_only_if_asked_for() -> None:
    with Lab("simulated", max_model_len=8) as lab, Lab("simulated") as unlimited, lab.fork(0) as fork:
        for one in (lab, fork):
            with pytest.raises(ConfigError, match="exceeds the 8 positions of simulated"):
                one.add(token_ids=range(8), max_tokens=1)
        unlimited.add(token_ids=range(2_000), max_tokens=2_000)


def test_static_tables_are_as_wide_as_the_longest_request(tiny_llama: Path) -> None:
    def width(max_model_len: int | None) -> int:
        runner = StaticRunner.load(
            tiny_llama, num_blocks=200, block_size=4, max_num_seqs=2, max_model_len=max_model_len, device="cpu"
        )
        forward = runner._forward
        assert isinstance(forward, GraphedForward)
        assert forward._static is not None
        (group,) = forward._static._step.groups
        return int(group.block_tables.shape[1])

    assert (width(20), width(None)) == (5, SUPPORTED // 4)


def test_nano_vllm_takes_what_the_model_supports(tiny_llama: Path) -> None:
    llm = LLM(str(tiny_llama), max_model_len=4096, kvcache_block_size=4, num_kvcache_blocks=8)
    short = LLM(str(tiny_llama), max_model_len=20, kvcache_block_size=4, num_kvcache_blocks=8)
    assert llm.lab.session.model.max_model_len == SUPPORTED and short.lab.session.model.max_model_len == 20
    llm.exit()
    short.exit()
