"""Each decision that changes nothing, taken otherwise and taken alike: the first is recorded, the second is not."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import pytest

from check.random_operations import SPARING
from check.watched import FULL, HYBRID, Watched, watched
from labengine.config import ConfigError, GroupSpec
from labengine.core.block import Block
from labengine.core.collaborator import Absent
from labengine.core.editions import EDITIONS, LABENGINE
from labengine.core.editions import edition as edition_named
from labengine.core.parts import Parts
from labengine.core.prefix_lookup import Hit
from labengine.core.pure_decisions import PURE_DECISIONS
from labengine.core.radix.node import Node
from labengine.core.request import Image, Request
from labengine.core.waiting_queue import PriorityQueue, WaitingQueue
from labengine.engine.external.host import HostStore

WINDOWED = (
    "cached_block",
    "num_skipped_tokens",
    "max_blocks_held",
    "is_worth_caching",
    "caches_every_block",
    "window",
    "num_blocks_for_hit",
    "num_steps_in_flight",
)
STATES = (GroupSpec(2), GroupSpec(4, "state"))
OF_STATES = ("chunk_end", "clipped")
OF_DRAFTS = ("num_wanted", "num_affordable", "num_accepted", "has_blocks_for")
FIELDS = {
    "Scheduler": "scheduler",
    "KVCacheManager": "kv_cache_manager",
    "KVCacheGroup": "full_attention_group",
    "BlockPool": "block_pool",
    "HashChain": "hash_chain",
    "MergePolicy": "merge_policy",
    "WaitingQueue": "waiting_queue",
    "Drafts": "drafts",
    "PrefixTree": "prefix_tree",
}
DECISIONS = [(part, name) for part, names in PURE_DECISIONS.items() for name in names]


class Guesses:
    """Names two tokens."""

    num_drafts, drafter = 2, "lookup"

    def propose(self, token_ids: Sequence[int], num_tokens: int) -> tuple[int, ...]:
        return (token_ids[-1], 5)[:num_tokens]


def otherwise(part: Any, arguments: Sequence[Any], answer: Any) -> Any:
    """Another answer of the same kind."""
    if isinstance(answer, Request):
        among = arguments[0] if isinstance(part, WaitingQueue) else (*part.running, *part.waiting)
        return next(one for one in among if one is not answer)
    match answer:
        case Node():
            return None
        case bool():
            return not answer
        case int():
            return answer + 1
        case bytes():
            return answer + b"!"
        case Hit():
            return answer._replace(num_tokens=answer.num_tokens + 1)
        case Block() | "length" | "stop":
            return None
        case None:
            return "stop"
        case [[*_], *_] if isinstance(answer, list):
            return [hit[:-1] for hit in answer]
        case _ if answer:
            return [*answer][:-1]
        case _:
            return [*arguments[0]] if isinstance(arguments[0], list) else answer


def overriding(part: str, name: str) -> Parts:
    """Parts with one decision that is taken otherwise wherever it can be."""
    field, edition = place_of(part, name)
    base: type = getattr(edition, field)
    original: Any = getattr(base, name)

    def decide(self: Any, *arguments: Any, **named: Any) -> Any:
        answer = original(self, *arguments, **named)
        if name == "refuse_what_never_fits":
            raise ConfigError("no")
        with suppress(StopIteration):
            return otherwise(self, arguments, answer)
        return answer

    decision: Any = decide if callable(original) else not original if isinstance(original, bool) else 7
    if isinstance(original, cached_property):
        decision = cached_property(lambda self: original.func(self) + 1)  # type: ignore[attr-defined]
        decision.__set_name__(base, name)
    mine = type("Mine", (base,), {name: decision, "__module__": __name__})
    changed: dict[str, Any] = {field: mine}
    return Parts(**changed).overriding(edition)


def place_of(part: str, name: str) -> tuple[str, Parts]:
    """The field of Parts whose class takes a decision, and an edition that asks for it."""
    field = FIELDS[part]
    if part == "PrefixTree":
        return field, SPARING["mini-sglang+142"]
    if name in WINDOWED:
        field = "sliding_window_group"
    elif name == "chunk_end":
        field = "state_group"
    return field, edition_named("labengine", "priority") if part == "WaitingQueue" else LABENGINE


def everything(parts: Parts, name: str) -> Watched:
    """A run in which every decision is asked for: hits, merges, loads, preemptions and windows."""
    settings: dict[str, Any] = {}
    if name in ("is_worth_caching", "caches_every_block"):
        settings["retention_interval"] = 0
    if name in OF_DRAFTS:
        settings["proposer"] = Guesses()
    groups, tier = (STATES, None) if name in OF_STATES else (HYBRID, HostStore(64))
    if parts.prefix_tree is not Absent:
        groups, tier = FULL, None
    setup = watched(14, groups, parts, connector=tier, **settings)
    with suppress(Exception):
        if name == "keyed":
            setup.add(*range(1, 11), images=(Image(2, 4, "a picture"),))
        for _ in range(3):
            setup.add(*range(1, 11), max_tokens=3)
            setup.add(*range(1, 11), max_tokens=3)
            setup.run()
            setup.add(*range(1, 11), max_tokens=3)
            setup.run()
            setup.engine.reset_prefix_cache()
            setup.add(*range(1, 6))
            setup.run()
        for number in range(4):
            setup.add(*range(100 * number, 100 * number + 9), max_tokens=9, priority=number % 2)
        setup.run()
    return setup


@pytest.mark.parametrize(("part", "name"), DECISIONS)
def test_each_pure_decision_taken_otherwise_is_recorded_with_its_method(part: str, name: str) -> None:
    setup = everything(overriding(part, name), name)
    found = [one for one in setup.differences() if one.method == f"Mine.{name}"]
    assert found, setup.watch.overrides
    assert found[0].replaces.endswith(f".{name}") and not found[0].replaces.startswith("Mine")
    assert found[0].decided != found[0].instead_of
    assert setup.watch.overrides[f"Mine.{name}"] is True
    assert not [one for one in setup.watch.violations if one.rule == "watch"]


@pytest.mark.parametrize(("part", "name"), DECISIONS)
def test_each_pure_decision_taken_alike_is_not(part: str, name: str) -> None:
    """The same method once more: called, and never another decision."""
    field, edition = place_of(part, name)
    base: type = getattr(edition, field)
    found: Any = next(vars(cls)[name] for cls in base.__mro__ if name in vars(cls))
    mine = type("Mine", (base,), {name: found, "__module__": __name__})
    changed: dict[str, Any] = {field: mine}
    setup = everything(Parts(**changed).overriding(edition), name)
    assert setup.differences() == [] and setup.watch.violations == []
    assert setup.watch.overrides[f"Mine.{name}"] is False, "it was called"


def test_every_pure_decision_is_a_method_or_attribute_of_its_part() -> None:
    others: dict[str, list[type]] = {"KVCacheGroup": [LABENGINE.sliding_window_group], "WaitingQueue": [PriorityQueue]}
    for part, names in PURE_DECISIONS.items():
        field = FIELDS[part]
        classes = [getattr(parts, field) for parts in EDITIONS.values()] + others.get(part, [])
        assert all(any(hasattr(cls, name) for cls in classes) for name in names), part
