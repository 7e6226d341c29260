"""Settings that cannot work are refused at construction, by name."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, get_type_hints

import pytest

from driving import TOKEN_BUDGET_EDITIONS, TREE_EDITIONS, UNSOUND_EDITIONS, has_budget
from fake_tier import FakeTier
from labengine.config import ConfigError, EngineConfig, GroupSpec, SamplingKeywords, SamplingParams
from labengine.core.connector import Connector
from labengine.core.editions import EDITIONS, edition
from labengine.core.journal import Journal
from labengine.core.merge_policy import LateMerge
from labengine.core.nano_vllm.scheduler import PrefillFirstScheduler
from labengine.core.parts import Parts
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.record.hooks import Hooks


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
    ("groups must contain only GroupSpecs, got (16, 16)", lambda: EngineConfig(groups=(16, 16))),  # type: ignore[arg-type]
    ("max_tokens must be at least 1, got -3", lambda: SamplingParams(max_tokens=-3)),
    ("max_tokens must be at least 1, got 0", lambda: SamplingParams(max_tokens=0)),
    ("temperature must be a finite number >= 0", lambda: SamplingParams(temperature=math.nan)),
    ("temperature must be a finite number >= 0", lambda: SamplingParams(temperature=math.inf)),
    ("temperature must be a finite number >= 0", lambda: SamplingParams(temperature=-0.1)),
    ("temperature must be a finite number >= 0", lambda: SamplingParams(temperature="hot")),  # type: ignore[arg-type]
    ("top_k must be at least 1", lambda: SamplingParams(top_k=0)),
    ("top_p must be above 0 and at most 1", lambda: SamplingParams(top_p=0.0)),
    ("top_p must be above 0 and at most 1", lambda: SamplingParams(top_p=1.01)),
    ("top_p must be above 0 and at most 1", lambda: SamplingParams(top_p=math.nan)),
    ("seed must be at least 0", lambda: SamplingParams(seed=-1)),
    ("hash_block_size must be at least 0", lambda: EngineConfig(hash_block_size=-4)),
    ("hash_block_size must be an integer, got 2.0", lambda: EngineConfig(hash_block_size=2.0)),  # type: ignore[arg-type]
    ("watermark must be a fraction of the pool", lambda: EngineConfig(watermark=1)),
    ("watermark must be a fraction of the pool", lambda: EngineConfig(watermark=-0.01)),
    ("watermark must be a fraction of the pool", lambda: EngineConfig(watermark="much")),  # type: ignore[arg-type]
    ("long_prefill_token_threshold must be at least 0", lambda: EngineConfig(long_prefill_token_threshold=-1)),
    ("retention_interval must be at least 0", lambda: EngineConfig(retention_interval=-16)),
    ("retention_interval must be a multiple of 16 tokens, or 0", lambda: EngineConfig(retention_interval=8)),
]


@pytest.mark.parametrize(("message", "make"), REFUSED, ids=range(len(REFUSED)))
def test_refused_by_name(message: str, make: Callable[[], object]) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        make()


def test_the_edges_are_allowed() -> None:
    SamplingParams(max_tokens=1, temperature=0, top_k=1, top_p=1, seed=0)
    EngineConfig(num_blocks=1, max_num_seqs=1, max_num_batched_tokens=1)


def test_an_unknown_edition_is_refused_with_the_nearest_match() -> None:
    with pytest.raises(
        ConfigError, match=r"edition must be one of .*'labengine'.*, got 'nano-vlm'\. Did you mean 'nano-vllm'\?"
    ):
        edition("nano-vlm")
    with pytest.raises(ConfigError, match=r"edition must be one of .*, got 'zzz'"):
        edition("zzz")


def test_parts_replace_the_editions_own() -> None:
    parts = Parts(merge_policy=LateMerge, name="mine").overriding(EDITIONS["nano-vllm"])
    assert (parts.name, parts.merge_policy, parts.scheduler) == ("mine", LateMerge, PrefillFirstScheduler)
    assert EDITIONS["labengine"].scheduler is TokenBudgetScheduler


WINDOW = GroupSpec(4, "sliding_window", 8)


def assemble(name: str, *groups: GroupSpec, connector: Connector | None = None, **settings: Any) -> None:
    """A core of that edition."""
    EDITIONS[name].assemble(EngineConfig(groups=groups, **settings), Hooks(), Journal(), connector)


@pytest.mark.parametrize("name", sorted(set(EDITIONS) - set(TOKEN_BUDGET_EDITIONS)))
def test_what_an_edition_lacks_is_refused_and_the_editions_with_it_are_named(name: str) -> None:
    with pytest.raises(ConfigError, match="no sliding-window groups: use edition 'labengine' or 'vllm'"):
        assemble(name, GroupSpec(4), WINDOW)
    with pytest.raises(ConfigError, match="no external tier: use edition 'labengine' or 'vllm'"):
        assemble(name, GroupSpec(4), connector=FakeTier())
    assemble(name, GroupSpec(4))
    if not has_budget(name):
        with pytest.raises(ConfigError, match="no watermark: omit it"):
            assemble(name, GroupSpec(4), watermark=0.1)
        with pytest.raises(ConfigError, match="no long_prefill_token_threshold: omit it"):
            assemble(name, GroupSpec(4), long_prefill_token_threshold=4)


@pytest.mark.parametrize("name", EDITIONS)
def test_several_groups_of_full_attention_work_where_chunks_do(name: str) -> None:
    if name in (*UNSOUND_EDITIONS, *TREE_EDITIONS):
        with pytest.raises(ConfigError, match="has a single KV-cache group"):
            assemble(name, GroupSpec(4), GroupSpec(8))
    else:
        assemble(name, GroupSpec(4), GroupSpec(8))


@pytest.mark.parametrize("name", TOKEN_BUDGET_EDITIONS)
def test_ours_and_vllms_edition_have_all_of_it(name: str) -> None:
    settings: dict[str, Any] = {"watermark": 0.1, "long_prefill_token_threshold": 4, "retention_interval": 8}
    assemble(name, GroupSpec(8), WINDOW, GroupSpec(4), connector=FakeTier(), **settings)


def test_block_sizes_share_a_link_of_the_hash_chain() -> None:
    with pytest.raises(ConfigError, match=r"group 1: block_size 6 must be a multiple of 4.*use hash_block_size=2"):
        EngineConfig(groups=(GroupSpec(4), GroupSpec(6)))
    with pytest.raises(ConfigError, match="group 0: block_size 4 must be a multiple of 3"):
        EngineConfig(groups=(GroupSpec(4),), hash_block_size=3)
    assert EngineConfig(groups=(GroupSpec(4), GroupSpec(6)), hash_block_size=2).scheduler_block_size == 12
    assert EngineConfig(groups=(GroupSpec(8), GroupSpec(4))).hash_block_size == 4


def test_the_keywords_of_a_call_are_the_fields_of_its_sampling() -> None:
    assert get_type_hints(SamplingKeywords) == get_type_hints(SamplingParams)
