"""A session saved and reopened without an engine: the same events and states, and their uses."""

from __future__ import annotations

import builtins
import linecache
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import labengine
from check.mutations import FreesWithoutRepointing
from driving import difference
from labengine.__main__ import main
from labengine.config import ConfigError
from labengine.core.merge_policy import LateMerge, MergePolicy
from labengine.events import BlockFreed, Event, RequestAdded, StepRolledBack
from labengine.lab import Lab
from labengine.record.files.parsing import TraceError
from labengine.scripts import break_off
from labengine.session.saved.trace import Trace
from waiting import PATIENCE

HOSTILE = "</script><img src=x onerror=alert(1)> ''' \"\"\" \\ # é 漢"


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Two equal requests, one other, an abort; a few steps."""
    with Lab("simulated", num_blocks=12, block_size=4) as lab:
        session(lab)
        yield lab


def session(lab: Lab) -> None:
    for _ in range(2):
        lab.add(token_ids=range(14), max_tokens=5)
    lab.step()
    lab.add("one two three", max_tokens=9, temperature=0.5, cache_salt=HOSTILE, extra_keys={"adapter": HOSTILE})
    lab.step()
    lab.abort(0)
    lab.run()
    lab.reset_prefix_cache()
    lab.add(token_ids=[1, 2, 3], max_tokens=2)
    lab.step()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.lab"


def opened(lab: Lab, path: Path) -> Trace:
    lab.save(path)
    return labengine.open(path)


def events_of(lab: Lab | Trace) -> list[Event]:
    assert lab.timeline is not None
    return list(lab.timeline.events())


class TestTheSame:
    """The trace's description matches the lab's."""

    def test_events_state_and_words(self, lab: Lab, path: Path) -> None:
        trace = opened(lab, path)
        assert events_of(trace) == events_of(lab)
        assert difference(trace.snapshot(), lab.snapshot()) is None
        assert difference(trace.fold().snapshot(), lab.snapshot()) is None
        assert (trace.title, trace.edition) == (lab.title, "labengine")
        assert trace.violations == lab.violations == []
        assert repr(trace).endswith(repr(lab).partition("\n")[2])
        tokens = {t for r in lab.snapshot().requests.values() for t in r.token_ids}
        assert {t: trace.token_text(t) for t in tokens} == {t: lab.token_text(t) for t in tokens}
        assert trace.token_text(999_999_999) == "<#999999999>"

    def test_a_closed_lab_can_be_saved(self, lab: Lab, path: Path) -> None:
        before = events_of(lab)
        lab.close()
        assert events_of(opened(lab, path)) == before

    def test_a_lab_in_the_middle_of_a_step(self, lab: Lab, path: Path) -> None:
        lab.next_phase()
        assert difference(opened(lab, path).snapshot(), lab.snapshot()) is None

    def test_violations(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        parts = labengine.Parts(full_attention_group=FreesWithoutRepointing)
        with Lab("simulated", num_blocks=12, block_size=4, parts=parts) as lab:
            for _ in range(2):
                lab.add(token_ids=range(14), max_tokens=5)
            lab.step()
            trace = opened(lab, path)
            assert trace.violations == lab.violations != []
            assert trace.summary().endswith(f", {len(lab.violations)} violations")
        assert main(["open", str(path)]) == 0
        assert str(trace.violations[0]) in capsys.readouterr().out

    def test_a_lab_that_runs_on_meanwhile(self, path: Path) -> None:
        """Each file is as of one instant: its events add up to its state."""
        with Lab("simulated", num_blocks=64, block_size=4, record=400) as lab:
            lab.add(token_ids=range(20), max_tokens=200)
            lab.start()
            for _ in range(12):
                trace = opened(lab, path)
                timeline, moment = trace.timeline, trace.timeline.end - 1
                state = timeline.state(moment)
                state.apply(timeline.events(moment)[0])
                assert difference(state.snapshot(), trace.snapshot()) is None
                assert trace.facts["num_steps"] in (trace.snapshot().step - 1, trace.snapshot().step)

    def test_a_trace_can_be_saved_again(self, lab: Lab, path: Path) -> None:
        again = path.with_name("again.lab")
        opened(lab, path).save(again)
        assert again.read_bytes() == path.read_bytes()

    def test_views_are_refused_their_commands(self, lab: Lab, path: Path) -> None:
        view_source = opened(lab, path).view_source()
        assert (view_source.is_live, view_source.is_running, view_source.hooks, view_source.phase) == (
            False,
            False,
            None,
            None,
        )
        assert view_source.seams().keys() == lab.view_source().seams().keys() != set()
        assert difference(view_source.fold().snapshot(), lab.snapshot()) is None
        with pytest.raises(ConfigError, match="step: this is a saved recording"):
            view_source.post("step").result(PATIENCE)

    def test_two_traces_are_two_labs(self, lab: Lab, path: Path) -> None:
        one, other = opened(lab, path), labengine.open(path)
        assert one.view_source().lab == one.view_source().lab != other.view_source().lab


def test_without_a_recording_it_says_what_to_do(path: Path) -> None:
    with Lab("simulated", record=False) as lab:
        for ask in (lambda: lab.save(path), lab.events_frame):
            with pytest.raises(ConfigError, match="record=True"):
                ask()
    assert not path.exists()


def test_what_is_no_session_is_refused(path: Path) -> None:
    path.write_bytes(b"no trace")
    with pytest.raises(labengine.TraceError, match="labengine trace"):
        labengine.open(path)
    with pytest.raises(TraceError, match="cannot be read"):
        labengine.open(path.with_name("missing.lab"))


def test_opening_loads_neither_torch_nor_transformers(lab: Lab, path: Path) -> None:
    lab.save(path)
    code = f"""
import sys, labengine
trace = labengine.open({str(path)!r})
repr(trace), trace.to_code(), trace.goto(2), trace.why(block=0), trace.view("pool"), trace.show(), trace.violations
trace.export_html({str(path.with_suffix(".html"))!r})
trace.close()
print("loaded:", *sorted({{"torch", "transformers", "pandas"}} & set(sys.modules)))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1] == "loaded:"


def test_a_star_import_leaves_open_alone() -> None:
    space: dict[str, Any] = {}
    exec("from labengine import *", space)
    assert "open" not in space and "Lab" in space
    assert "open" in dir(labengine) and labengine.open is not builtins.open


class TestCommandLine:
    """python -m labengine open."""

    def test_it_prints_the_last_state(self, lab: Lab, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        lab.save(path)
        assert main(["open", str(path)]) == 0
        printed = capsys.readouterr().out
        assert printed.startswith(
            f"{lab.title}\n{lab.snapshot().step} steps, 4 requests, {len(events_of(lab))} events, no vio"
        )
        assert "queue head" in printed

    def test_it_writes_a_page(self, lab: Lab, path: Path) -> None:
        lab.save(path)
        assert main(["open", str(path), "--html", str(path.with_suffix(".html"))]) == 0
        assert path.with_suffix(".html").read_text(encoding="utf-8").startswith("<!doctype html>")

    def test_it_refuses_what_it_cannot_open(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["open", str(path)]) == 2
        assert "cannot be read" in capsys.readouterr().err


class TestFrame:
    """Events for pandas."""

    def test_a_row_per_event(self, lab: Lab, path: Path) -> None:
        pytest.importorskip("pandas")
        events = events_of(lab)
        for source in (lab, opened(lab, path)):
            frame = source.events_frame()
            assert list(frame.columns[:7]) == ["event", "step", "phase", "kind", "request_id", "block_id", "group"]
            assert list(frame["kind"]) == [type(event).__name__ for event in events]
            assert list(frame["event"]) == list(range(len(events)))
            freed = frame[frame["kind"] == "BlockFreed"]
            assert list(freed["block_id"]) == [event.block_id for event in events if isinstance(event, BlockFreed)]
            added = frame[frame["kind"] == "RequestAdded"]
            assert list(added["token_ids"]) == [e.token_ids for e in events if isinstance(e, RequestAdded)]

    def test_steps_phases_and_integers(self, lab: Lab) -> None:
        frame = lab.events_frame()
        inside = frame[frame["phase"].notna()]
        order = inside.groupby("step")["phase"].unique().map(list)
        assert len(order) == lab.snapshot().step
        assert all(phases == ["schedule", "forward", "update"] for phases in order)
        assert set(frame[frame["kind"] == "BlockAllocated"]["phase"]) == {"schedule"}
        assert str(frame["block_id"].dtype) == "Int64" and str(frame["is_prefill"].dtype) == "boolean"
        assert frame["block_hash"].dropna().str.fullmatch("[0-9a-f]+").all()
        assert frame["step"].max() == lab.snapshot().step

    def test_the_numbers_go_on_where_events_were_dropped(self) -> None:
        with Lab("simulated", num_blocks=12, block_size=4, record=40) as lab:
            lab.generate([[1, 2, 3, 4, 5]], max_tokens=30)
            frame = lab.events_frame()
            assert lab.timeline is not None and lab.timeline.num_dropped
            assert frame["event"].iloc[0] == lab.timeline.num_dropped
            assert frame["step"].iloc[0] == lab.timeline.state(lab.timeline.num_dropped).step + 1

    def test_without_pandas_it_says_what_to_do(self, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pandas", None)
        with pytest.raises(ConfigError, match=r"pip install -e '.*\[lab\]'"):
            lab.events_frame()


def run_script(code: str) -> Lab:
    """The lab made by a script."""
    space: dict[str, Any] = {"__name__": "a_script"}
    with redirect_stdout(StringIO()):
        exec(compile(code, "<to_code>", "exec"), space)
    lab = space["lab"]
    assert isinstance(lab, Lab)
    return lab


CELL = '''
import labengine
from labengine.core.merge_policy import MergePolicy as Base


class Oldest(Base):
    """Adds nothing."""

    def nothing(self):
        """Never called."""


class Newest(Oldest):
    """Only the newest copy is mapped."""

    def mapped_after(self, *asked):
        """The base's reason."""
        assert labengine.Parts
        return super().mapped_after(*asked)
'''


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> type:
    """A class as a notebook's cell defines it: its module has no file, its text is in the line cache."""
    name = "<cell 1>"
    monkeypatch.setitem(linecache.cache, name, (len(CELL), None, CELL.splitlines(keepends=True), name))
    notebook = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", notebook)
    exec(compile(CELL, name, "exec"), vars(notebook))
    return notebook.Newest  # type: ignore[no-any-return]


class TestCode:
    """A session as a script."""

    def test_it_goes_the_same_way(self, lab: Lab, path: Path) -> None:
        for code in (lab.to_code(), opened(lab, path).to_code()):
            with run_script(code) as again:
                assert events_of(again) == events_of(lab)

    def test_it_reads_well(self) -> None:
        with Lab("simulated", num_blocks=16, block_size=4) as lab:
            lab.add(token_ids=[1, 2, 3], max_tokens=2)
            lab.step()
            lab.add(token_ids=range(50), max_tokens=2)
            lab.step()
            lab.step()
            code = lab.to_code()
        numbers = ", ".join(map(str, range(50)))
        assert 'lab = labengine.Lab("simulated", num_blocks=16, block_size=4)\n' in code
        assert '# " 1 2 3"\nlab.add(token_ids=[1, 2, 3], max_tokens=2)\nlab.step()\n' in code
        assert "for _ in range(2):\n    lab.step()\nprint(lab)\n" in code
        assert re.sub(r"\s+", " ", numbers) in re.sub(r"\s+", " ", code)
        assert max(map(len, code.splitlines())) <= 110

    @pytest.mark.parametrize(
        "settings",
        [
            {"edition": "vllm", "num_blocks": 30, "seed": 3, "watermark": 0.1},
            {"groups": [labengine.GroupSpec(4), labengine.GroupSpec(2, "sliding_window", 8)], "num_blocks": 40},
            {"edition": "nano-vllm", "max_num_batched_tokens": 16, "record": 50_000},
            {"external": "host", "num_blocks": 16},
        ],
    )
    def test_settings(self, settings: dict[str, Any]) -> None:
        with Lab("simulated", **{"num_blocks": 12, "block_size": 4} | settings) as lab:
            session(lab)
            with run_script(lab.to_code()) as again:
                assert events_of(again) == events_of(lab)

    def test_broken_steps(self) -> None:
        with Lab("simulated", num_blocks=12, block_size=4) as lab:
            lab.add(token_ids=range(14), max_tokens=5)
            for reached in ("forward", "sample"):
                break_off(lab, reached)  # type: ignore[arg-type]
                lab.step()
            assert [e.reason for e in events_of(lab) if isinstance(e, StepRolledBack)] == ["KeyboardInterrupt"] * 2
            with run_script(lab.to_code()) as again:
                assert events_of(again) == events_of(lab)
            with pytest.raises(ConfigError, match="got 'update'"):
                break_off(lab, "update")

    @pytest.mark.parametrize("num_phases", [1, 2, 3, 4, 6])
    def test_a_step_that_was_left_open(self, path: Path, num_phases: int) -> None:
        with Lab("simulated", num_blocks=12, block_size=4) as lab:
            lab.add(token_ids=range(14), max_tokens=5)
            lab.step()
            phase = [lab.next_phase() for _ in range(num_phases)][-1]
            for code in (lab.to_code(), opened(lab, path).to_code()):
                assert code.count("lab.next_phase()") == num_phases % 4
                with run_script(code) as again:
                    assert events_of(again) == events_of(lab) and again.snapshot() == lab.snapshot()
                    assert again.phase == phase
                    assert (again.next_phase() == "update") == (phase == "sample")

    def test_parts_that_can_be_imported(self) -> None:
        parts = labengine.Parts(merge_policy=LateMerge)
        with Lab("simulated", num_blocks=12, block_size=4, edition="nano-vllm", parts=parts) as lab:
            session(lab)
            code = lab.to_code()
            assert "from labengine.core.merge_policy import LateMerge\n" in code
            assert 'edition="nano-vllm",\n' in code and "parts=labengine.Parts(merge_policy=LateMerge),\n" in code
            with run_script(code) as again:
                assert events_of(again) == events_of(lab)

    def test_parts_from_a_notebook_cell(self, cell: type) -> None:
        with Lab("simulated", num_blocks=12, block_size=4, parts=labengine.Parts(merge_policy=cell)) as lab:
            session(lab)
            code = lab.to_code()
            assert "class Oldest(" in code and "class Newest(Oldest):" in code and "import labengine\n" in code
            assert code.index("class Oldest") < code.index("class Newest") < code.index("lab = ")
            with run_script(code) as again:
                assert events_of(again) == events_of(lab)
                assert again.parts.merge_policy.__name__ == "Newest"

    def test_a_class_without_text_is_named(self) -> None:
        nameless = type("Nameless", (MergePolicy,), {})
        with Lab("simulated", parts=labengine.Parts(merge_policy=nameless)) as lab:
            assert "# Nameless is needed here" in lab.to_code()

    def test_a_connector_of_ones_own_is_named(self) -> None:
        store = labengine.HostStore()
        with Lab("simulated", external=store) as lab:
            code = lab.to_code()
        assert (
            "# external=...: made by labengine.engine.external.host.HostStore, which this script cannot make." in code
        )
        run_script(code).close()

    @pytest.mark.parametrize(
        "facts",
        [
            {},
            {"inputs": [{"do": "remove", "step": 0}]},
            {"inputs": [{"do": "abort", "step": 0, "request_id": "__import__('os').abort()"}]},
            {"inputs": [{"do": "add", "step": 0, "token_ids": ["print(1)"], "sampling": {}}]},
            {"settings": {"model": "simulated", "seed=print(1),x": 1}},
            {"settings": {"model": ["print(1)"]}},
            {"settings": 3},
            {"open_step": "update"},
            {"open_step": 3},
            {"parts": {"name": "x", "classes": {"scheduler": {"name": "print(1)", "imports": [], "definitions": []}}}},
        ],
    )
    def test_facts_of_a_stranger_become_no_other_code(self, lab: Lab, path: Path, facts: dict[str, Any]) -> None:
        trace = opened(lab, path)
        trace.facts = trace.facts | facts if facts else {}
        with pytest.raises(TraceError, match="this trace has no code"):
            trace.to_code()

    def test_a_hostile_title_stays_a_comment(self, lab: Lab, path: Path) -> None:
        trace = opened(lab, path)
        trace.facts["title"] = "x\nimport os\r\x0cimport sys\u2028\x00"
        code = trace.to_code()
        assert code.startswith("# x⏎import os⏎·import sys··: a session") and code.splitlines()[1].startswith(
            "import labengine"
        )
        run_script(code).close()
