"""What a script knows of each slot, state and copy, on an engine that does as it is told."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import pytest

from checkout import ROOT
from labengine.driven.inside.symptoms import Symptom, play

Step = tuple[dict[str, tuple[int, int]], dict[str, list[list[int]]], list[tuple[int, int]]]
"""Plan, tables, and copies."""

STATES = [[2, None], [2, None, "state", None]]


class Told:
    """An engine whose steps are given."""

    is_idle = False

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps, self.told = list(steps), list[Any]()
        self.plan, self.copies = dict[str, tuple[int, int]](), list[tuple[int, int]]()
        self.after_call: Any = None
        self._tables: dict[str, list[list[int]]] = {}

    def step(self) -> None:
        self.plan, self._tables, self.copies = self._steps.pop(0)
        self.after_call("schedule")
        if not self._steps:
            self.is_idle, self._tables = True, {}

    def draft(self, drafts: dict[str, list[int]]) -> None:
        self.told.append(drafts)

    def content_of(self, name: str) -> list[Any]:
        return [None, 1, 2, 3, 4 + int(name)]

    def state(self) -> dict[str, Any]:
        held = {block for tables in self._tables.values() for table in tables for block in table}
        requests = {name: ["running", tables] for name, tables in self._tables.items()}
        return {"requests": requests, "free_queue": [one for one in range(1, 9) if one not in held]}


def played(groups: list[list[Any]], steps: Sequence[Step], *operations: list[Any]) -> Told:
    engine = Told(steps)
    settings = {"groups": groups, "num_blocks": 9, "transfers": None, "caches_all": False, "seeds": [0, 1]}
    play(engine, settings, operations, [])
    return engine


def test_a_state_is_read_before_the_step_computes_any() -> None:
    """The KV of a block that the same step writes can be read, its state cannot."""
    tables = {"0": [[1], [2]], "1": [[1, 3], [2, 4]]}
    played(STATES, [({"0": (0, 2)}, {"0": [[1], [2]]}, []), ({"1": (2, 2)}, tables, [])])
    with pytest.raises(Symptom, match="request 1 continues after 2 tokens from block 2, which has another state"):
        played(STATES, [({"0": (0, 2), "1": (2, 2)}, tables, [])])


@pytest.mark.parametrize(("groups", "is_followed"), [(STATES, True), ([[2, None], [2, None, "state", 2]], False)])
def test_states_with_checkpoints_are_not_followed(groups: list[list[Any]], is_followed: bool) -> None:
    steps = [({"0": (0, 2)}, {"0": [[1], [2]]}, []), ({"0": (2, 1)}, {"0": [[1, 3], [4, 5]]}, [])]
    with pytest.raises(Symptom, match="another state") if is_followed else nullcontext():
        played(groups, steps)


@pytest.mark.parametrize("copies", [[(2, 3)], []])
def test_a_copied_block_has_the_content_of_the_other(copies: list[tuple[int, int]]) -> None:
    steps = [({"0": (0, 3)}, {"0": [[1, 2]]}, []), ({"1": (3, 1)}, {"0": [[1, 2]], "1": [[1, 3]]}, copies)]
    with nullcontext() if copies else pytest.raises(Symptom, match="request 1 reads position 2 in block 3"):
        played([[2, None]], steps)


def test_guesses_are_told_to_the_engine() -> None:
    engine = played([[2, None]], [({"0": (0, 2)}, {"0": [[1]]}, [])], ["draft", {"0": [7]}])
    assert engine.told == [{"0": [7]}]


UNWATCHED = """
import sys
sys.path.insert(0, {inside!r})
import driver

class Sampling:
    is_idle = True
    def __init__(self, settings, token_at):
        self.step = lambda: token_at("0", 3)

run = driver.DrivenRun(Sampling, lambda engine, settings: None, {{"transfers": None}}, is_judged=True)
run.play([["step"]])
assert not driver.symptoms.SAMPLED, driver.symptoms.SAMPLED
"""


def test_a_search_whose_engine_has_events_keeps_no_samples() -> None:
    """Nothing would forget them: a search of hours plays millions of tokens in one process."""
    inside = str(ROOT / "labengine" / "driven" / "inside")
    subprocess.run([sys.executable, "-c", UNWATCHED.format(inside=inside)], check=True)
