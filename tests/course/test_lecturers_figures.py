"""Figures on the pages for lecturers: each is computed here, and the sentence that names it has to be on its page."""

from __future__ import annotations

import re
from collections.abc import Callable
from inspect import signature
from typing import Any

import pytest

import labengine
from checkout import ROOT
from labengine import Lab, Parts
from labengine.config import GroupSpec
from labengine.course.exercises.policy_workloads import ENGINE, visitor_who_leaves
from labengine.course.exercises.your_own_policy import KeepWhatComesBack
from labengine.course.first_wrong_exercise import FirstWrongExercise
from labengine.events import BlockAllocated, BlockTouched, ForwardRan, PrefixHit
from labengine.record.timeline import Timeline
from labengine.scenarios import bug
from labengine.scripts import break_off


def made(**settings: Any) -> Lab:
    return Lab("simulated", block_size=4, **settings)


def listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


def two_equal_prompts() -> str:
    with made(num_blocks=12) as lab:
        for _ in range(2):
            lab.add(token_ids=range(14), max_tokens=4)
        lab.step()
        assert (lab.stats().peak_used_blocks, lab.snapshot().num_used_blocks) == (8, 5)
        lab.add(token_ids=range(14), max_tokens=4)
        lab.step()
        assert lab.timeline is not None
        left = {2: "two"}[14 - lab.timeline.of_kind(PrefixHit)[-1].num_tokens]
    return f"All but its last {left} tokens are found."


def the_late_merge() -> str:
    with Lab("simulated", num_blocks=49, block_size=16, edition="nano-vllm+243") as lab:
        for _ in range(8):
            lab.add(token_ids=range(65), max_tokens=4)
        lab.step()
        assert lab.timeline is not None
        [computed] = [event.num_tokens for event in lab.timeline.of_kind(ForwardRan)]
        peak, used = lab.stats().peak_used_blocks, lab.snapshot().num_used_blocks
    return f"8 x {peak // 8} blocks at the peak, {used} after the step, and all {computed} tokens computed."


def steps_to_the_wrong_read() -> str:
    exercise = labengine.exercise("late-merge/one-short")
    assert isinstance(exercise, FirstWrongExercise)
    steps = {violation.rule: violation.step for violation in reversed(exercise.judged.violations)}
    return f"its wrong read comes {({4: 'four'})[steps['read'] - steps['ref_count']]} steps later"


def lengths_that_need_a_block() -> str:
    with made(num_blocks=8, edition="nano-vllm") as lab:
        lab.add(token_ids=range(2), max_tokens=12, ignore_eos=True)
        lab.step()
        lengths = []
        while len(lengths) < 3:
            assert lab.timeline is not None
            before, known = len(lab.timeline.of_kind(BlockAllocated)), len(lab.snapshot().requests[0].token_ids)
            lab.step()
            lengths += [known] * (len(lab.timeline.of_kind(BlockAllocated)) - before)
    assert all(length % 4 == 1 for length in lengths)
    return f"len {listed(lengths)}, so `len % 4 == 1`."


def entries_of_a_window() -> str:
    with made(num_blocks=20, groups=(GroupSpec(4), GroupSpec(4, "sliding_window", 8))) as lab:
        lab.add(token_ids=range(18), max_tokens=4, ignore_eos=True)
        lab.step(2)  # position 18 is computed by the second
        table = lab.snapshot().requests[0].block_tables[1]
    *entries, last = [entry for entry, block_id in enumerate(table) if block_id >= 0]
    return f"{listed(entries)} and {last}"


def blocks_of_both_groups() -> str:
    with bug("vllm-44409").broken() as lab:
        assert lab.timeline is not None
        taken: tuple[list[int], list[int]] = ([], [])
        for event in lab.timeline.events():
            if isinstance(event, BlockTouched | BlockAllocated) and event.request_id == 6 and event.index < 4:
                taken[event.group].append(event.block_id)
    full, window = (", ".join(f"#{block_id}" for block_id in blocks) for blocks in taken)
    return f"{full}; then {window}: {({2: 'two'})[len({*taken[0]} & {*taken[1]})]} of them twice."


def recorded_events() -> str:
    return f"The newest {signature(Timeline).parameters['max_events'].default:,} events by default"


class PlainSet(KeepWhatComesBack):
    def touch(self, block_ids: list[int]) -> None:
        labengine.BlockPool.touch(self, block_ids)
        self.was_hit.update(block_ids)


def an_undone_step() -> str:
    computed = []
    for interrupt in (lambda lab: break_off(lab, "schedule"), lambda lab: None):
        with Lab("simulated", **ENGINE, parts=Parts(block_pool=PlainSet)) as lab:
            visitor_who_leaves(lab, interrupt)
            assert lab.timeline is not None
            computed.append(sum(event.num_tokens for event in lab.timeline.of_kind(ForwardRan)))
    return f"the run computes {computed[0]} tokens, and {computed[1]} if that step is never begun"


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        ("01", two_equal_prompts),
        ("05", the_late_merge),
        ("05", steps_to_the_wrong_read),
        ("06", lengths_that_need_a_block),
        ("07", entries_of_a_window),
        ("08", blocks_of_both_groups),
        ("10", recorded_events),
        ("12", an_undone_step),
    ],
)
def test_a_figure_is_what_an_engine_gives(page: str, sentence: Callable[[], str]) -> None:
    text = (ROOT / "docs" / "lecturers" / f"{page}.md").read_text(encoding="utf-8")
    assert sentence() in " ".join(text.split())


def test_figures_of_the_plan() -> None:
    plan = (ROOT / "docs" / "lecturers.md").read_text(encoding="utf-8")
    assert f"entries {entries_of_a_window()} |" in plan
    [[product, result]] = re.findall(r"([\d]+(?: x \d+)+) = ([\d,]+)", plan)
    layers, kv_heads, head_size, pair, width = map(int, product.split(" x "))
    assert layers * kv_heads * head_size * pair * width == int(result.replace(",", ""))
