"""Several threads at one lab: its script, its file and its answers at once; a dashboard while another thread closes."""

from __future__ import annotations

import gc
import inspect
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from interrupting import assert_no_thread_is_left, note_threads_of_others
from labengine import Parts
from labengine.core import block_pool
from labengine.core.merge_policy import LateMerge
from labengine.lab import Lab
from labengine.session.compare.comparing import compare
from labengine.session.source_text import source_lines, tree_of
from labengine.session.stepper import LabClosedError
from labengine_widgets.view import Dashboard
from waiting import PATIENCE, join


class MergeOfMyOwn(LateMerge):
    """Its text goes into scripts and files."""

    def merge_target(self, *arguments: object) -> int | None:
        """As before."""
        return super().merge_target(*arguments)  # type: ignore[arg-type]


class Garbage:
    """Refers to itself, and runs Python code when collected, so that another thread may run in the middle of a tree."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        for _ in range(50):
            pass


@pytest.fixture(autouse=True)
def threads_switch_often() -> Iterator[None]:
    """Collect garbage often, which runs Python code in between, without walking the objects of other tests."""
    before, threshold = sys.getswitchinterval(), gc.get_threshold()
    note_threads_of_others()
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(5)
    yield
    sys.setswitchinterval(before)
    gc.set_threshold(*threshold)  # unfreeze() would also thaw what conftest.py has frozen


def at_once(calls: Sequence[Callable[[], object]], times: int) -> list[BaseException]:
    """Repeat each call on a separate thread, all at once; return their exceptions."""
    errors: list[BaseException] = []
    gate = threading.Barrier(len(calls))

    def work(call: Callable[[], object]) -> None:
        gate.wait(PATIENCE)
        try:
            for _ in range(times):
                call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    join(*threads)
    return errors


def test_python_text_is_parsed_by_one_thread_at_a_time() -> None:
    text = inspect.getsource(block_pool)

    def parse() -> None:
        Garbage()
        tree_of(text)

    def find() -> None:
        Garbage()
        source_lines(block_pool.BlockPool)

    assert at_once([parse, parse, parse, parse, find], 30) == []


def test_script_file_and_answers_at_once(tmp_path: Path) -> None:
    with Lab("simulated", num_blocks=12, block_size=4, parts=Parts(merge_policy=MergeOfMyOwn)) as lab:
        for _ in range(2):
            lab.add(token_ids=range(9), max_tokens=4)
        lab.run()
        script, answer = lab.to_code(), str(lab.why(block=0))
        scripts: list[str] = []
        calls: list[Callable[[], object]] = [
            lambda: scripts.append(lab.to_code()),
            lambda: scripts.append(lab.to_code()),
            lambda: lab.save(tmp_path / "run.lab"),
            lambda: lab.why(block=0),
            lambda: lab.why(request=1),
        ]
        assert at_once(calls, 1) == []
        assert set(scripts) == {script} and str(lab.why(block=0)) == answer and lab.check() == []


def shown_while_closing(on: object, call: Callable[[], object], delay: float) -> tuple[object, object]:
    """Show on one thread, and close on another."""
    shown: list[object] = []

    def show() -> None:
        try:
            shown.append(call())
        except BaseException as error:
            shown.append(error)

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    time.sleep(delay)
    on.close()  # type: ignore[attr-defined]
    join(thread)
    (outcome,) = shown
    return outcome, call()


@pytest.mark.parametrize("number", range(12))
def test_a_lab_is_shown_while_another_thread_closes_it(number: int) -> None:
    lab = Lab("simulated", num_blocks=8, block_size=4)
    lab.add(token_ids=range(9), max_tokens=3)
    lab.step()
    outcome, shown = shown_while_closing(lab, lab.show, number * 0.0015)
    assert isinstance(outcome, Dashboard | LabClosedError)
    assert isinstance(shown, Dashboard) and shown is lab.show(), "what was recorded can still be looked at"
    assert_no_thread_is_left()
    shown.close()


def test_a_comparison_is_shown_while_another_thread_closes_it() -> None:
    for number in range(3):
        both = compare("labengine", "vllm", num_blocks=8, block_size=4)
        both.add(token_ids=range(9), max_tokens=3)
        both.step()
        shown_while_closing(both, both.show, number * 0.01)
        assert_no_thread_is_left()


def test_views_made_by_several_threads_at_once_are_one() -> None:
    with Lab("simulated", num_blocks=8, block_size=4) as lab:
        made: list[object] = []
        assert at_once([lambda: made.append(lab.show())] * 4, 1) == []
        assert set(map(id, made)) == {id(lab.show())}
    assert_no_thread_is_left()
