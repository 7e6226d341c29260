"""Settings that cannot work are refused at construction, by name."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from labengine.config import ConfigError, EngineConfig, GroupSpec, SamplingParams
from labengine.core.editions import EDITIONS, edition
from labengine.core.journal import Journal
from labengine.core.parts import Parts
from labengine.core.prefill_first import PrefillFirstScheduler
from labengine.core.prefix_cache import LateMerge
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.hooks import Hooks


def test_defaults_are_valid() -> None:
    assert EngineConfig().num_blocks == 256
    assert SamplingParams().temperature == 0.0
    assert GroupSpec(16).kind == "full"


REFUSED: list[tuple[str, Callable[[], object]]] = [
    ("block_size must be at least 1, got 0", lambda: GroupSpec(0)),
    ("block_size must be an integer, got 1.5", lambda: GroupSpec(1.5)),  # type: ignore[arg-type]
    ("block_size must be an integer, got True", lambda: GroupSpec(True)),
    ("group kind must be", lambda: GroupSpec(4, "linear")),  # type: ignore[arg-type]
    ("needs a window", lambda: GroupSpec(4, "sliding_window")),
    ("needs a window", lambda: GroupSpec(4, "full", 8)),
    ("window must be at least 1", lambda: GroupSpec(4, "sliding_window", 0)),
    ("num_blocks must be at least 1", lambda: EngineConfig(num_blocks=0)),
    ("num_blocks must be an integer, got '8'", lambda: EngineConfig(num_blocks="8")),  # type: ignore[arg-type]
    ("max_num_seqs must be at least 1", lambda: EngineConfig(max_num_seqs=0)),
    ("max_num_batched_tokens must be at least 1", lambda: EngineConfig(max_num_batched_tokens=-1)),
    ("at least one KV-cache group", lambda: EngineConfig(groups=())),
    ("max_tokens must be at least 1, got -3", lambda: SamplingParams(max_tokens=-3)),
    ("max_tokens must be at least 1, got 0", lambda: SamplingParams(max_tokens=0)),
    ("temperature must be a finite number >= 0", lambda: SamplingParams(temperature=math.nan)),
    ("temperature must be a finite number >= 0", lambda: SamplingParams(temperature=math.inf)),
    ("temperature must be a finite number >= 0", lambda: SamplingParams(temperature=-0.1)),
    ("temperature must be a finite number >= 0", lambda: SamplingParams(temperature="hot")),  # type: ignore[arg-type]
    ("top_k must be at least 1", lambda: SamplingParams(top_k=0)),
    ("top_p must lie in", lambda: SamplingParams(top_p=0.0)),
    ("top_p must lie in", lambda: SamplingParams(top_p=1.01)),
    ("top_p must lie in", lambda: SamplingParams(top_p=math.nan)),
    ("seed must be at least 0", lambda: SamplingParams(seed=-1)),
]


@pytest.mark.parametrize(("message", "make"), REFUSED, ids=range(len(REFUSED)))
def test_refused_by_name(message: str, make: Callable[[], object]) -> None:
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        make()


def test_the_edges_are_allowed() -> None:
    SamplingParams(max_tokens=1, temperature=0, top_k=1, top_p=1, seed=0)
    EngineConfig(num_blocks=1, max_num_seqs=1, max_num_batched_tokens=1)


def test_an_unknown_edition_is_refused_with_the_nearest_match() -> None:
    with pytest.raises(
        ConfigError, match=r"unknown edition 'nano-vlm'; there are .*'labengine'.* Did you mean 'nano-vllm'\?"
    ):
        edition("nano-vlm")
    with pytest.raises(ConfigError, match="unknown edition 'zzz'"):
        edition("zzz")


def test_parts_replace_the_editions_own() -> None:
    parts = Parts(merge_policy=LateMerge, name="mine").over(EDITIONS["nano-vllm"])
    assert (parts.name, parts.merge_policy, parts.scheduler) == ("mine", LateMerge, PrefillFirstScheduler)
    assert EDITIONS["labengine"].scheduler is TokenBudgetScheduler


@pytest.mark.parametrize("name", EDITIONS)
def test_groups_that_do_not_work_are_refused(name: str) -> None:
    def assemble(*groups: GroupSpec) -> None:
        EDITIONS[name].assemble(EngineConfig(groups=groups), Hooks(), Journal())

    with pytest.raises(ConfigError, match=f"edition {name.replace('+', '.')} has no sliding_window"):
        assemble(GroupSpec(4, "sliding_window", 8))
    with pytest.raises(ConfigError, match="group 1: block_size must be a multiple of 4"):
        assemble(GroupSpec(4), GroupSpec(6))
    assemble(GroupSpec(4), GroupSpec(8))
