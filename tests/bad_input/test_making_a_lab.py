"""Labs that cannot be made: models, editions, sizes, keywords, settings and parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from labengine import ConfigError, GroupSpec, Parts
from labengine.config import EngineConfig
from labengine.core.editions import NANO_VLLM
from labengine.core.journal import Journal
from labengine.core.merge_policy import LateMerge, MergePolicy
from labengine.lab import Lab
from labengine.record.hooks import Hooks


def test_an_unknown_model_names_the_nearest_and_what_else_works() -> None:
    with pytest.raises(ConfigError, match=r"no model 'smolm2', did you mean 'smollm2'\?.*local directory"):
        Lab("smolm2")


def test_an_unknown_edition_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"edition must be .*'nano-vllm\+243'.* got 'nano-vlm'.*mean 'nano-vllm'\?"):
        Lab("simulated", edition="nano-vlm")


@pytest.mark.parametrize("size", [0, -4, 2.5, True, "16"])
def test_a_block_holds_at_least_one_token(size: Any) -> None:
    with pytest.raises(ConfigError, match="block_size must be"):
        Lab("simulated", block_size=size)


@pytest.mark.parametrize("name", ["num_blocks", "max_num_seqs", "max_num_batched_tokens"])
def test_sizes_start_at_one(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be at least 1, got 0"):
        Lab("simulated", **{name: 0})  # type: ignore[arg-type]


@pytest.mark.parametrize("length", [1, 0, -3, 2.5, True, "64"])
def test_a_request_has_room_for_a_prompt_and_an_answer(length: Any) -> None:
    with pytest.raises(ConfigError, match="max_model_len must be"):
        Lab("simulated", max_model_len=length)


@pytest.mark.parametrize(("misspelt", "meant"), [("num_block", "num_blocks"), ("blocksize", "block_size")])
def test_an_unknown_keyword_of_lab_names_the_nearest(misspelt: str, meant: str) -> None:
    with pytest.raises(TypeError, match=rf"Lab\(\) has no keyword '{misspelt}'; did you mean '{meant}'\?"):
        Lab("simulated", **{misspelt: 8})  # type: ignore[arg-type]


def test_a_keyword_that_is_like_none_lists_all_keywords() -> None:
    with pytest.raises(TypeError, match=r"no keyword 'unknown'; it knows model, num_blocks, .*seed$"):
        Lab("simulated", unknown=1)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"watermark": 1.5}, "watermark must be a fraction of the pool"),
        ({"long_prefill_token_threshold": -1}, "long_prefill_token_threshold must be at least 0"),
        ({"retention_interval": 6}, "retention_interval must be a multiple of 4 tokens, or 0"),
        ({"block_size": 4, "hash_block_size": 3}, "block_size 4 must be a multiple of 3"),
        ({"groups": []}, "at least one KV-cache group"),
        ({"groups": [4]}, "groups must contain only GroupSpecs"),
        ({"groups": [GroupSpec(4), GroupSpec(6)]}, "block_size 6 must be a multiple of 4"),
        ({"edition": "nano-vllm", "watermark": 0.5}, "this edition has no watermark"),
        ({"edition": "nano-vllm", "retention_interval": 0}, "this edition has no retention_interval"),
        ({"edition": "nano-vllm", "external": "host"}, "this edition has no external tier"),
        ({"edition": "nano-vllm", "groups": [GroupSpec(4, "sliding_window", 8)]}, "no sliding-window groups"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Lab("simulated", **{"num_blocks": 12, "block_size": 4, **settings})


@dataclass(frozen=True)
class NewerConfig(EngineConfig):
    newer: int = 0


def test_a_setting_that_an_edition_does_not_list_is_refused() -> None:
    NANO_VLLM.assemble(NewerConfig(), Hooks(), Journal(), None)
    with pytest.raises(ConfigError, match="this edition has no newer"):
        NANO_VLLM.assemble(NewerConfig(newer=1), Hooks(), Journal(), None)


def test_a_real_model_brings_its_own_groups() -> None:
    with pytest.raises(ConfigError, match="groups are for the simulated model"):
        Lab("smollm2", groups=[GroupSpec(4)])


@pytest.mark.parametrize("wrong", [5, None, b"smollm2"])
def test_a_model_is_a_name_or_a_directory(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="a name or a directory, got"):
        Lab(wrong)


@pytest.mark.parametrize("wrong", [None, 0, -1, 1.5, "yes"])
def test_record_is_a_truth_or_a_number_of_events(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="record must be"):
        Lab("simulated", record=wrong)


def test_parts_are_classes() -> None:
    with pytest.raises(ConfigError, match="merge_policy must be a class"):
        Parts(merge_policy=LateMerge())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"parts must be a labengine.Parts"):
        Lab("simulated", parts="nano-vllm")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "part", "base", "lacks"),
    [
        ("merge_policy", int, "MergePolicy", "int is missing is_equal, mapped_after, merge_target"),
        ("scheduler", LateMerge, "Scheduler", "LateMerge is missing abort, accept, add, admit, "),
        ("hash_chain", LateMerge, "HashChain", "LateMerge is missing keyed, link, root"),
        ("sliding_window_group", dict, "KVCacheGroup", "dict is missing add_external, "),
    ],
)
def test_a_class_that_cannot_play_the_part_is_refused(name: str, part: type, base: str, lacks: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be a subclass of {base}, or a class with its methods: {lacks}"):
        Parts(**{name: part})  # type: ignore[arg-type]


class Copying:
    """A merge policy that is none by birth."""

    def merge_target(self, *_: object) -> None:
        """Every copy stays."""

    def mapped_after(self, mapped: tuple[int, ...], block_id: int) -> tuple[int, ...]:
        """The last one."""
        return (block_id,)

    def is_equal(self, *_: object) -> bool:
        """It trusts the hash."""
        return True


class PassingOn:
    """Has no state of its own, and asks another object for it."""

    def __init__(self) -> None:
        self._asked = MergePolicy()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._asked, name)


@pytest.mark.parametrize("part", [Copying, PassingOn])
def test_a_class_that_has_the_methods_may_come_from_anywhere(part: Any) -> None:
    with Lab("simulated", num_blocks=12, block_size=4, parts=Parts(merge_policy=part)) as lab:
        for _ in range(2):
            lab.add(token_ids=range(9), max_tokens=3)
        lab.run()
        assert lab.snapshot().requests[1].status == "finished"
