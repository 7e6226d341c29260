"""labengine drive: a page with a lab's controls, and two engines compared."""

from __future__ import annotations

from pathlib import Path

import pytest

import labengine
from checkout import ROOT
from labengine.__main__ import main
from labengine.driven.process import DrivenEngine
from labengine.finder.engines.search import find_in_engine
from labengine.vllm.stream.page.pages import OpenPage
from labengine.vllm.stream.page.server import PageServer
from waiting import wait_until

OWN = Path(__file__).with_name("own_engine.py")


def test_two_equal_engines_exit_with_0(stub: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drive", "vllm", "--python", stub, "--against", stub, "--workloads", "5"]) == 0
    said = capsys.readouterr().out
    assert "No difference found between" in said and "5 workloads are the same on both, event by event." in said


def changed_stub(stub: str, folder: Path, old: str, new: str) -> str:
    """Return the interpreter of another release of the fake vLLM, with a line replaced."""
    fake, other, changed = ROOT / "tests" / "support" / "fake_vllm.py", folder / "python", folder / "fake_vllm.py"
    assert old in fake.read_text()
    changed.write_text(fake.read_text().replace(old, new))
    other.write_text(Path(stub).read_text().replace(str(fake), str(changed)))
    other.chmod(0o700)
    return str(other)


def test_another_release_is_the_first_difference_with_both_sides_methods(
    stub: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = changed_stub(stub, tmp_path, "in ordered_blocks:", "in [*ordered_blocks][::-1]:")
    assert main(["drive", "vllm", "--python", stub, "--against", other, "--workloads", "20"]) == 1
    said = capsys.readouterr().out
    assert f"({stub}) differs from vllm 0.0 ({other})" in said
    assert said.count("FakePool.free_blocks, vllm/fake.py, line ") == 2


SHARE = "num_new = request.num_tokens - request.num_computed_tokens - num_hit"


def test_a_difference_in_blocks_names_the_tokens_that_it_follows_from(
    stub: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = changed_stub(stub, tmp_path, SHARE, f"num_new = min(2, {SHARE.partition(' = ')[2]})")
    assert main(["drive", "vllm", "--python", stub, "--against", other, "--workloads", "20"]) == 1
    said = capsys.readouterr().out
    assert "A for vllm 0.0" in said and ", and 2 for vllm 0.0" in said
    for method in ("FakePool.get_new_blocks", "FakeScheduler.schedule"):
        assert said.count(f"{method}, vllm/fake.py, line ") == 2
    with (
        labengine.drive("vllm", stub) as one,
        labengine.drive("vllm", other) as two,
        labengine.compare(one, two) as comparison,
    ):
        comparison.add(token_ids=range(40), max_tokens=1)
        comparison.step()
        difference, why = comparison.first_difference(), comparison.why()
    assert difference is not None and "This step computes 40 tokens of A for " in str(difference)
    assert all(reason.startswith("FakePool.get_new_blocks (vllm/fake.py, line ") for reason in difference.reasons)
    assert "The decision is" not in str(why)
    assert [link.side for link in why.links if link.seam == "FakeScheduler.schedule"] == [0, 1]


def test_two_engines_without_events_differ_in_a_state(tmp_path: Path) -> None:
    changed = tmp_path / "own_engine.py"
    changed.write_text(OWN.read_text().replace("self.free.append(block)", "self.free.appendleft(block)"))
    (finding,) = find_in_engine(
        str(OWN), driven_python(), max_workloads=20, against=DrivenEngine(str(changed), driven_python())
    ).findings
    assert "First difference: free_queue after call" in str(finding) and len(finding.case.workload) == 1


def driven_python() -> str:
    """The interpreter of these tests."""
    import sys

    return sys.executable


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--against", "x", "--blocks", "9"], "omit settings"),
        (["--workloads", "9"], "add --against"),
        (["--against", "no such"], "must be an interpreter or a folder, got 'no such'"),
        (["--against", str(Path(__file__).parent)], "has no vllm/__init__.py"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    more: list[str], said: str, stub: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["drive", "vllm", "--python", stub, *more]) == 2
    assert said in capsys.readouterr().err


def test_the_page_is_served_for_a_time(stub: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drive", "vllm", "--python", stub, "--blocks", "9", "--block-size", "4", "--seconds", "0.01"]) == 0
    said = capsys.readouterr().out
    assert "vllm 0.0 · 9 blocks of 4" in said and "http://127.0.0.1:" in said


def test_the_page_adds_steps_and_goes_back(lab: labengine.Lab) -> None:
    with PageServer([lab]) as server:
        page: OpenPage = server.pages.opened("0123456789")
        step = {"type": "command", "id": 1, "action": "step", "arguments": {}}
        page.receive([{"number": 0, "content": step}])
        wait_until(lambda: lab.snapshot().step == 3, "a step from the page")
