"""The same on a hybrid model that generates text: what a block in two tables does to the text."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from labengine.lab import Lab
from labengine.scenarios import bug
from labengine.scenarios.corruption import SideBySide
from labengine.scenarios.vllm_44409_columns import num_doubled

SCENARIO = bug("vllm-44409")

pytestmark = pytest.mark.sweep

MODEL = "gemma3-270m"
Texts = dict[str, str]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def broken() -> Iterator[Lab]:
    with SCENARIO.broken(MODEL) as lab:
        yield lab


@pytest.fixture(scope="module")
def fixed() -> Iterator[Lab]:
    with SCENARIO.fixed(MODEL) as lab:
        yield lab


def text_of_long_prompt(lab: Lab) -> str:
    *_, long, _ = sorted(lab.snapshot().requests)
    return lab.output(long).text


def test_the_old_order_breaks_the_text_from_the_first_word_on(broken: Lab, fixed: Lab) -> None:
    both = SideBySide(("interleaved", "two-phase"), ((text_of_long_prompt(broken),), (text_of_long_prompt(fixed),)))
    first_difference = both.first_difference(0)
    assert first_difference is not None and first_difference[0] == 0 and first_difference[2] == "watch,"
    assert "she had never before seen a rabbit" in both.texts[1][0]
    assert "rabbit" not in both.texts[0][0]


def test_in_two_phases_it_is_the_text_of_an_engine_that_computes_everything(fixed: Lab) -> None:
    with Lab(MODEL, num_blocks=121, edition="vllm") as lab:
        [output] = lab.generate([SCENARIO.prompts(lab)[0]], max_tokens=24)
        assert output.text == text_of_long_prompt(fixed)


def test_the_watch_sees_what_the_text_shows(broken: Lab, fixed: Lab) -> None:
    assert fixed.violations == [] and num_doubled(fixed) == 0
    assert num_doubled(broken) == 40
    assert {violation.rule for violation in broken.violations} == {"one_entry", "write", "read"}
    assert SCENARIO.measure(broken)["blocks misread"] == 40
    first = SCENARIO.first_wrong(broken)
    assert first is not None and first.moment == min(v.first_event or first.moment for v in broken.violations)


def test_the_prompt_was_served_from_both_places(fixed: Lab) -> None:
    measured = SCENARIO.measure(fixed)
    assert measured["blocks loaded for the long prompt"] == 8 * 6
    assert measured["tokens that the next one finds"] == 256
    assert measured["blocks never given back"] == 0


def test_the_clamp_does_not_mend_the_text(fixed: Lab) -> None:
    with SCENARIO.played("clamp", MODEL) as lab:
        assert text_of_long_prompt(lab).split()[0] != "watch,"
        assert SCENARIO.measure(lab)["blocks misread"] == 40
