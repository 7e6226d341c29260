"""A driver file: an engine of one's own, driven without a change to labengine, and the check that ships for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import labengine
from labengine import events as ev
from labengine.config import ConfigError
from labengine.driven.conformance import main
from labengine.driven.drivable import drivable
from labengine.driven.drive import driven
from labengine.finder.engines.search import find_in_engine
from labengine.session.saved.no_test import NoTestError

OWN = Path(__file__).with_name("own_engine.py")


def changed(folder: Path, old: str, new: str) -> str:
    """The path of the driver file with a change."""
    text = OWN.read_text()
    assert old in text
    path = folder / "changed_engine.py"
    path.write_text(text.replace(old, new))
    return str(path)


def test_the_check_passes_an_engine_that_keeps_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(OWN), "--workloads", "30"]) == 0
    assert "30 random workloads" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("if self.is_idle:", "if False:", "a step of an idle engine makes calls"),
        ('self.after_call("add")', "pass", "add() reports the calls []"),
        ('self.after_call("schedule")', "pass", "step() reports the calls ['update']"),
        ("(request.num_computed, number)", "(request.num_computed, 1)", "plan is"),
        ("self.ref_counts[block] -= 1", "pass", "blocks still have references"),
        ('self.after_call("abort")', "pass", "abort() reports the calls []"),
        ("self.running.remove(request)\n                self.release", "self.release", "the engine is not idle"),
        ("self.ref_counts[block] += 1", "self.ref_counts[block] += block != 5", "breaks the rule ref_count"),
        ("min(len(request.tokens) - request.num_computed, budget)", "0", "plan is"),
        ("needed > len(self.free)", "needed > min(3, len(self.free))", "never ends"),
        ("self.free.append(block)", "self.free.insert(__import__('time').time_ns() // 64 % 2, block)", "differs from"),
    ],
)
def test_the_check_says_what_breaks_the_contract(
    old: str, new: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([changed(tmp_path, old, new), "--workloads", "40"]) == 1
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("VERSION = '1'\nSUPPORTS = ()\n", "it assigns no CORE"),
        ("VERSION = '1'\nCORE = int\nSUPPORTS = ('beams',)\n", "SUPPORTS may have abort, reset"),
        ("VERSION = ", "invalid syntax"),
    ],
)
def test_a_file_that_is_no_driver_is_refused(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "no_driver.py"
    file.write_text(text)
    assert main([str(file)]) == 2
    assert said in capsys.readouterr().err
    with pytest.raises(ConfigError, match="cannot be used"):
        labengine.drive(file)


def test_it_supports_what_it_says() -> None:
    known = drivable(str(OWN))
    assert known.operations == ("add", "step", "abort", "reset") and known.options == ()
    assert driven(OWN, None, None).parts("fcfs").name == "own_engine"
    with pytest.raises(ConfigError, match="own_engine has no priorities"):
        labengine.drive(OWN, policy="priority")


def test_an_operation_that_it_lacks_is_refused(tmp_path: Path) -> None:
    lacking = driven(changed(tmp_path, 'SUPPORTS = ("abort", "reset")', "SUPPORTS = ()"), None, None)
    with pytest.raises(ConfigError, match="changed_engine has no abort"):
        lacking.refuse_operation("abort")
    with pytest.raises(ConfigError, match="changed_engine has no reset of its cache"):
        lacking.refuse_operation("reset")


def test_a_finding_has_a_script_that_needs_the_engine_alone(tmp_path: Path) -> None:
    file = changed(tmp_path, "self.ref_counts[block] += 1", "self.ref_counts[block] += block != 5")
    (finding,) = find_in_engine(file, driven(file, None, None).python, max_workloads=40).findings
    assert "class Scheduler" in finding.to_script() and "changed_engine 1.0 breaks the rule" in str(finding)


@pytest.fixture(scope="module")
def lab() -> Iterator[labengine.Lab]:
    """The engine in a lab, after the first step of a request of two blocks and one of four."""
    with labengine.drive(OWN, num_blocks=8, block_size=4) as made:
        made.add(token_ids=range(6), max_tokens=1)
        made.add(token_ids=range(9), max_tokens=4)
        made.step()
        yield made


def test_the_most_blocks_in_use_are_those_of_the_forward_pass(lab: labengine.Lab) -> None:
    assert lab.stats().peak_used_blocks == 6
    assert lab.timeline.state().num_used_blocks == 4


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("schedule", "name one as Class.method"),
        ("Scheduler.shedule", "did you mean Scheduler.schedule"),
        ("Pages.drop", "no method 'Pages.drop'; the classes of these modules are known: driver_file$"),
    ],
)
def test_an_unknown_method_is_refused(method: str, said: str, lab: labengine.Lab) -> None:
    with pytest.raises(ConfigError, match=said):
        lab.rerun(labengine.Patch(method, "def x(self): pass"))


def test_a_test_needs_a_patch(lab: labengine.Lab) -> None:
    with pytest.raises(NoTestError, match=r'labengine.Patch\("Class.method", text\)'):
        lab.to_test()


def test_requests_give_their_blocks_back_one_after_the_other(tmp_path: Path) -> None:
    freeing = "(self.free.append if block % 2 else self.free.appendleft)(block)"
    with labengine.drive(changed(tmp_path, "self.free.append(block)", freeing), num_blocks=8, block_size=4) as lab:
        lab.add(token_ids=range(9), max_tokens=1)
        lab.add(token_ids=range(9), max_tokens=1)
        lab.run()
        freed = lab.timeline.of_kind(ev.BlockFreed)
        assert [one.request_id for one in freed] == [0, 0, 0, 1, 1, 1]
        assert {one.queue_end for one in freed} == {"head", "tail"} and not lab.violations
