"""What a lab does when another engine decides: each public method works, or is refused before anything changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import labengine
import labengine.events
from labengine.config import ConfigError
from labengine.driven.driven import NOT_DRIVEN
from labengine.lab import Lab

Act = Callable[[Lab, Path], Any]


def made_by(code: str) -> Any:
    """The lab of a script."""
    names: dict[str, Any] = {}
    exec(code, names)
    return names["lab"]


WORKS: dict[str, Act] = {
    "abort": lambda lab, folder: lab.abort("A"),
    "add": lambda lab, folder: lab.add("once upon a time", max_tokens=2) == 2,
    "back": lambda lab, folder: lab.back(),
    "background_error": lambda lab, folder: lab.background_error is None,
    "break_on": lambda lab, folder: lab.break_on("BlockFreed"),
    "breakpoints": lambda lab, folder: lab.breakpoints == (),
    "chat": lambda lab, folder: lab.chat([{"role": "user", "content": "hello"}], max_tokens=2) == 2,
    "check": lambda lab, folder: lab.check() == [],
    "close": lambda lab, folder: lab.close() is None and lab.timeline is not None,
    "close_views": lambda lab, folder: lab.close_views() is None,
    "compare": lambda lab, folder: lab.compare(lab.fork()).first_difference() is None,
    "crash": lambda lab, folder: lab.crash is None,
    "encode": lambda lab, folder: lab.encode("a word"),
    "events_frame": lambda lab, folder: len(lab.events_frame()),
    "export_html": lambda lab, folder: lab.export_html(folder / "page.html").stat().st_size,
    "feed": lambda lab, folder: lab.feed,
    "fold": lambda lab, folder: lab.fold().snapshot() == lab.snapshot(),
    "fork": lambda lab, folder: lab.fork(1).snapshot().step == 1,
    "forward": lambda lab, folder: lab.forward(),
    "generate": lambda lab, folder: lab.generate("once more", max_tokens=2)[0].token_ids,
    "goto": lambda lab, folder: lab.goto(1),
    "has_dashboard": lambda lab, folder: not lab.has_dashboard,
    "inputs": lambda lab, folder: len(lab.inputs) == 2,
    "is_at_crash": lambda lab, folder: not lab.is_at_crash,
    "is_running": lambda lab, folder: not lab.is_running,
    "model": lambda lab, folder: lab.model.name == "vllm",
    "moment": lambda lab, folder: lab.moment is None,
    "next_phase": lambda lab, folder: lab.next_phase() == "update",
    "num_known_steps": lambda lab, folder: lab.num_known_steps == 2,
    "num_layers": lambda lab, folder: lab.num_layers == 0,
    "output": lambda lab, folder: lab.output("A").token_ids,
    "pause": lambda lab, folder: lab.pause() is None,
    "phase": lambda lab, folder: lab.phase == "update",
    "phases": lambda lab, folder: [*lab.phases()] == ["update"],
    "post": lambda lab, folder: lab.post(lambda: 7).result() == 7,
    "reset": lambda lab, folder: lab.reset() is None and not lab.snapshot().requests,
    "reset_prefix_cache": lambda lab, folder: lab.reset_prefix_cache() is False,
    "rewind": lambda lab, folder: lab.rewind(1) is None and lab.snapshot().step == 1,
    "run": lambda lab, folder: lab.run() is None and not lab.step(),
    "save": lambda lab, folder: lab.save(folder / "run.lab") is None and labengine.open(folder / "run.lab"),
    "selection": lambda lab, folder: lab.selection is None,
    "show": lambda lab, folder: lab.show(),
    "snapshot": lambda lab, folder: lab.snapshot().requests,
    "start": lambda lab, folder: lab.start() is None,
    "stats": lambda lab, folder: lab.stats().num_steps == 2,
    "status": lambda lab, folder: "edition" not in lab.status(),
    "step": lambda lab, folder: lab.step().scheduled,
    "stopped_at": lambda lab, folder: lab.stopped_at is None,
    "stream": lambda lab, folder: "".join(lab.stream("A")),
    "title": lambda lab, folder: lab.title.startswith("vllm 0.0"),
    "to_code": lambda lab, folder: made_by(lab.to_code()).snapshot() == lab.snapshot(),
    "token_text": lambda lab, folder: lab.token_text(3),
    "view": lambda lab, folder: lab.view("pool"),
    "view_source": lambda lab, folder: lab.view_source().is_live,
    "violations": lambda lab, folder: lab.violations == [],
    "why": lambda lab, folder: lab.why(request="A"),
    "widgets": lambda lab, folder: lab.widgets == [],
}
"""Public names of Lab that serve a driven lab; each act returns something truthy."""

OF_OTHERS = {"rerun": "test_patch.py", "to_test": "test_patch.py"}
"""Names that the tests of patches use."""

REFUSED: dict[str, Act] = {
    "branch": lambda lab, folder: lab.branch("A"),
    "fill_external": lambda lab, folder: lab.fill_external("a prompt"),
    "hand_over": lambda lab, folder: lab.hand_over("A", Lab("simulated", num_blocks=12, block_size=4)),
    "kv": lambda lab, folder: lab.kv(1, 0),
}
"""Public names of Lab that a driven lab refuses."""

REFUSED_ARGUMENTS: dict[str, Act] = {
    "add(beams=)": lambda lab, folder: lab.add("a b", beams=2, max_tokens=2),
    "add(extra_keys=)": lambda lab, folder: lab.add("a b", extra_keys={"adapter": "x"}, max_tokens=2),
    "fork(edition=)": lambda lab, folder: lab.fork(1, edition="vllm"),
    "fork(parts=)": lambda lab, folder: lab.fork(1, parts=labengine.BlockPool),
    "view('xray')": lambda lab, folder: lab.view("xray"),
    "judge": lambda lab, folder: labengine.judge((lab, "A"), (lab, "B")),
}
"""Calls that a driven lab refuses for an argument."""


def test_every_public_name_of_a_lab_is_in_one_of_the_lists() -> None:
    public = {name for name in dir(Lab) if not name.startswith("_")}
    assert sorted(public) == sorted([*WORKS, *OF_OTHERS, *REFUSED])


@pytest.mark.parametrize("name", WORKS)
def test_it_works(name: str, lab: Lab, tmp_path: Path) -> None:
    assert WORKS[name](lab, tmp_path)


@pytest.mark.parametrize("name", [*REFUSED, *REFUSED_ARGUMENTS])
def test_it_is_refused_in_a_sentence_before_anything_changes(name: str, lab: Lab, tmp_path: Path) -> None:
    before = lab.snapshot(), lab.inputs, lab.timeline and lab.timeline.end
    with pytest.raises(ConfigError) as refused:
        (REFUSED | REFUSED_ARGUMENTS)[name](lab, tmp_path)
    said = str(refused.value)
    assert ". " not in said and "simulated" not in said and ("vllm" in said or "driven" in said or "engine" in said)
    assert (lab.snapshot(), lab.inputs, lab.timeline and lab.timeline.end) == before
    assert lab.step()


def test_sliders_repeat_the_workload_on_the_driven_engine(lab: Lab) -> None:
    with labengine.vary(lab).run(num_blocks=6) as varied:
        assert varied.title.startswith("vllm 0.0") and varied.snapshot().step == 2
        assert varied.timeline.of_kind(labengine.events.RequestAdded)


def test_the_sides_of_a_comparison_are_named_by_their_releases(lab: Lab) -> None:
    with lab.fork() as other:
        assert lab.compare(other).names == ("vllm 0.0, left", "vllm 0.0, right")


@pytest.mark.parametrize("name", NOT_DRIVEN)
def test_a_setting_that_is_labengines_alone_is_refused(name: str, stub: str) -> None:
    with pytest.raises(ConfigError, match=f"a driven engine takes no {name}"):
        labengine.drive("vllm", stub, **{name: "something else"})


class FailsOnce:
    """A proposer that raises an exception at its third call."""

    num_drafts, drafter = 2, "lookup"

    def __init__(self, error: BaseException | None) -> None:
        self._errors = [None, None, error]

    def propose(self, token_ids: Sequence[int], num_tokens: int) -> list[int]:
        if self._errors and (error := self._errors.pop(0)) is not None:
            raise error
        return [token_ids[-1]] * num_tokens


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_drafts_that_a_step_has_not_got_are_told_before_the_next(stub: str, error: BaseException) -> None:
    """So that the engine does what it would have done without the exception."""
    told = []
    for raised in (None, error):
        with labengine.drive("vllm", stub, num_blocks=12, block_size=4, speculation=FailsOnce(raised)) as lab:
            lab.add(token_ids=range(9), max_tokens=6)
            lab.add(token_ids=range(5), max_tokens=6)
            lab.step()
            with pytest.raises(type(raised)) if raised else nullcontext():
                lab.step()
            lab.step()
            told.append((lab.session.stepper.engine.workload["operations"], lab.snapshot()))
    assert told[0] == told[1] and [one[0] for one in told[0][0]].count("draft") == 3
