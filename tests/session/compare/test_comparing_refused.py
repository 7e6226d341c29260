"""Refusals of labengine.compare and lab.compare, before anything happens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import labengine
from labengine.config import ConfigError
from labengine.lab import Lab

PROMPT = list(range(100, 114))
SMALL: dict[str, Any] = {"num_blocks": 12, "block_size": 4}


@pytest.fixture
def sides() -> Iterator[tuple[Lab, Lab]]:
    with Lab("simulated", **SMALL) as left, Lab("simulated", edition="nano-vllm", **SMALL) as right:
        yield left, right


@pytest.mark.parametrize(
    ("left", "right", "reason"),
    [
        ({"max_tokens": 8}, {"max_tokens": 3}, "request A has max_tokens 8 on the left, 3 on the right"),
        ({"temperature": 0.7, "seed": 1}, {"seed": 1}, "temperature 0.7 on the left, 0.0 on the right"),
        ({"cache_salt": "x"}, {}, "cache_salt 'x' on the left, None on the right"),
        ({"extra_keys": {"adapter": "x"}}, {}, "extra_keys"),
        ({"token_ids": [1, 2]}, {}, "different prompts"),
    ],
)
@pytest.mark.parametrize("is_saved", [False, True])
def test_other_requests_are_named(
    sides: tuple[Lab, Lab], left: dict[str, Any], right: dict[str, Any], reason: str, is_saved: bool, tmp_path: Any
) -> None:
    for lab, settings in zip(sides, (left, right), strict=True):
        lab.add(**({"token_ids": PROMPT, "max_tokens": 4} | settings))
        lab.run()
        lab.save(tmp_path / lab.parts.name)
    opened: Any = [labengine.open(tmp_path / lab.parts.name) for lab in sides] if is_saved else sides
    with pytest.raises(ConfigError, match="have had different requests") as refused:
        labengine.compare(*opened)
    assert reason in str(refused.value)


def test_another_seed_of_the_lab_is_another_request_where_tokens_are_drawn() -> None:
    with Lab("simulated", seed=1, **SMALL) as one, Lab("simulated", seed=2, **SMALL) as other:
        for lab in (one, other):
            lab.add(token_ids=PROMPT, max_tokens=2)
        labengine.compare(one, other)
        for lab in (one, other):
            lab.add(token_ids=PROMPT, max_tokens=2, temperature=1.0)
        with pytest.raises(ConfigError, match="the seed"):
            labengine.compare(one, other)


def test_a_lab_its_fork_and_its_recording_can_be_compared(sides: tuple[Lab, Lab], tmp_path: Any) -> None:
    left, _ = sides
    left.add(token_ids=PROMPT, max_tokens=4)
    left.step()
    left.save(tmp_path / "run.lab")
    with left.fork(edition="vllm") as fork:
        assert labengine.compare(left, fork).is_live
    left.add(token_ids=PROMPT, max_tokens=4)
    left.step()
    trace = labengine.open(tmp_path / "run.lab")
    for comparison in (labengine.compare(trace, left), left.compare(trace)):
        assert not comparison.is_live and comparison.goto(1).left.step == 1


def test_recordings_of_other_prompts_are_refused(sides: tuple[Lab, Lab], tmp_path: Any) -> None:
    traces = []
    for lab, first in zip(sides, (0, 50), strict=True):
        lab.add(token_ids=range(first, first + 9), max_tokens=2)
        lab.run()
        lab.save(tmp_path / str(first))
        traces.append(labengine.open(tmp_path / str(first)))
    with pytest.raises(ConfigError, match="different prompts"):
        labengine.compare(*traces)


def test_a_lab_beside_itself_is_refused(sides: tuple[Lab, Lab]) -> None:
    left, _ = sides
    for call in (lambda: labengine.compare(left, left), lambda: left.compare(left)):
        with pytest.raises(ConfigError, match=r"same object: .*lab.fork"):
            call()
    assert left.snapshot().step == 0


@pytest.mark.parametrize("names", [("a", "b", "c"), "ab", ("a",), ("a", 3), ("", "b"), 3])
def test_names_are_two_texts(sides: tuple[Lab, Lab], names: Any) -> None:
    for call in (
        lambda: labengine.compare(*sides, names=names),
        lambda: labengine.compare("vllm", "labengine", names=names, **SMALL),
        lambda: sides[0].compare(sides[1], names=names),
    ):
        with pytest.raises(ConfigError, match="names must be"):
            call()


@pytest.mark.parametrize("other", ["vllm", None, 3])
def test_a_lab_is_compared_with_a_lab_or_a_trace(sides: tuple[Lab, Lab], other: Any) -> None:
    with pytest.raises(ConfigError, match=r"a side must be a lab or an opened trace, got .*lab.fork\(edition="):
        sides[0].compare(other)
