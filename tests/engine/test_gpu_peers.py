"""`python benchmarks/gpu --peers`, with programs in the engines' place: rounds, verdicts, and what hangs or dies."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from checkout import ROOT

sys.path.insert(0, str(ROOT / "benchmarks" / "gpu"))

import engines
import peers
from brought import Brought
from engine_process import EngineError, EngineProcess, Entry
from stages import Budget
from workload import MAX_BATCHED_TOKENS, MAX_MODEL_LEN, MAX_NUM_SEQS, nano_vllm_workload

import labengine
from stage_runs import WITH_A_CHILD, run_in, verdicts, wait_until_gone
from waiting import PATIENCE

SIZE = {"num_requests": 2, "longest": 101}
NUM_TOKENS = nano_vllm_workload(**SIZE).num_output_tokens
ANSWERS = f"""
import sys
print('{{"about": "a stand-in"}}', flush=True)
for _ in sys.stdin:
    print('{{"seconds": 0.5, "num_tokens": {NUM_TOKENS}}}', flush=True)
"""
DIES = "import sys; print('out of memory', file=sys.stderr, flush=True); raise SystemExit(1)"
HANGS = "import time; time.sleep(10_000)"
FEWER = ANSWERS.replace(f": {NUM_TOKENS}", ": 7")

MakeEntry = Callable[..., Entry]


@pytest.fixture
def entry(tmp_path: Path) -> MakeEntry:
    """Make an entry whose interpreter is a program of this code, whatever script it is to run."""

    def make(name: str, code: str, engine: str = "nano") -> Entry:
        program = tmp_path / f"{name.replace(' ', '_')}.py"
        program.write_text(f"#!{sys.executable}\n{code}")
        program.chmod(0o755)
        return Entry(name, engine, dict(SIZE), str(program))

    return make


# -- one engine --------------------------------------------------------------------------------------------------------


def started(entry: Entry, tmp_path: Path, limit: float = PATIENCE) -> EngineProcess:
    return EngineProcess(entry, tmp_path, tmp_path / "engine.log", {}, limit)


def test_an_engine_that_hangs_is_killed_with_all_that_it_started(entry: MakeEntry, tmp_path: Path) -> None:
    """It answers once, and not again until its time is over."""
    file = tmp_path / "child"
    code = WITH_A_CHILD.format(file=str(file)) + "print('{}', flush=True); child.wait()"
    process = started(entry("hanging", code), tmp_path)
    process._end = 0.0
    with pytest.raises(EngineError, match="no answer within"):
        process.run()
    wait_until_gone(file)


# -- rounds ------------------------------------------------------------------------------------------------------------


def test_one_round_of_each_comes_first_and_peers_come_second() -> None:
    entries = peers.entries(Path("nano"))
    ours = ["labengine, blocks of 16, Triton", "labengine, blocks of 256"]
    assert [entry.name for entry in entries] == [peers.OURS, "nano-vLLM", *ours]
    assert [entry.name for entry in peers.in_order(entries, 1)] == [peers.OURS, "nano-vLLM", *ours]
    assert [entry.name for entry in peers.in_order(entries, 2)] == ["nano-vLLM", peers.OURS, *ours]
    assert [entry.name for entry in peers.entries(None)] == [peers.OURS, *ours]


def test_profiles_come_between_rounds() -> None:
    assert list(peers.parts(2)) == [(1, [(256, 16)]), (2, [(1, 16), (256, 256)])]
    assert list(peers.parts(1)) == [(1, [(256, 16), (1, 16), (256, 256)])]
    assert list(peers.parts(2, {"profile of 1, blocks of 16"})) == [(1, [(1, 16)]), (2, [])]
    assert list(peers.parts(2, {peers.OURS})) == [(1, []), (2, [])]


class ListedLimits(Budget):
    """No end, and limits from a list: one for each engine that is started."""

    def __init__(self, *limits: float) -> None:
        super().__init__()
        self._limits: Iterator[float] = iter(limits)

    def limit(self, seconds: float) -> float:
        return next(self._limits)


def test_an_engine_that_fails_or_hangs_costs_only_itself(entry: MakeEntry, tmp_path: Path) -> None:
    """In the second round it does not take part."""
    entries = [
        entry(peers.OURS, ANSWERS, "ours"),
        entry("hanging", HANGS),
        entry("dying", DIES),
        entry("short", FEWER),
        entry("good", ANSWERS),
    ]
    long = PATIENCE
    run = run_in(tmp_path, ListedLimits(long, 0.1, long, long, long, long, long))
    comparison = peers.Comparison(run, entries, tmp_path)
    for number in (1, 2):
        comparison.take_round(number)
    assert verdicts(run.journal.outcomes) == {
        f"{peers.OURS}, round 1": "passed",
        "hanging, round 1": "failed (no answer within 0 s)",
        "dying, round 1": "failed (it ended)",
        "short, round 1": f"failed (expected {NUM_TOKENS} tokens, got 7)",
        "good, round 1": "passed",
        "good, round 2": "passed",
        f"{peers.OURS}, round 2": "passed",
    }
    speed = NUM_TOKENS / 0.5
    written = json.loads((tmp_path / "out" / "workload.json").read_text())
    assert written["tokens_per_second"] == {
        peers.OURS: [speed, speed], "hanging": [], "dying": [], "short": [], "good": [speed, speed],
    }  # fmt: skip
    assert written["about"]["good"] == "a stand-in" and "out of memory" in written["about"]["dying"]
    table = peers.speed_table(comparison.speeds, comparison.about, peers.OURS, 4 * speed)
    assert f"| good | {speed:,.0f} | {speed:,.0f} to {speed:,.0f} | 1.00 x | 25% |" in table
    assert "| dying | failed: it ended: out of memory | | | |" in table


def test_rounds_and_profiles_whatever_fails(entry: MakeEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that fail cost no round, and a profile that fails no later round."""
    monkeypatch.setattr(peers, "prepare", lambda run, brought, *models: brought)
    monkeypatch.setattr(peers, "python", lambda script, *words: (sys.executable, "-c", "raise SystemExit(1)"))
    monkeypatch.setattr(peers, "entries", lambda nano: [entry(peers.OURS, ANSWERS, "ours")])
    run = run_in(tmp_path)
    peers.run_peers(run, Brought(work=tmp_path), rounds=2)
    assert [outcome.stage for outcome in run.journal.outcomes] == [
        "limits",
        f"{peers.OURS}, round 1",
        "profile of 256, blocks of 16",
        f"{peers.OURS}, round 2",
        "profile of 1, blocks of 16",
        "profile of 256, blocks of 256",
    ]


# -- settings ----------------------------------------------------------------------------------------------------------


class Seen:
    """Stands in for an engine's class: keeps its settings."""

    settings: dict[str, Any]

    def __init__(self, model: str, **settings: Any) -> None:
        type(self).settings = settings
        self.scheduler = SimpleNamespace(block_manager=SimpleNamespace(blocks=[]))

    def status(self) -> dict[str, str]:
        return dict.fromkeys(("attention", "forward", "kv_pool"), "")


def module(name: str, monkeypatch: pytest.MonkeyPatch, **content: Any) -> None:
    found = ModuleType(name)
    vars(found).update(content)
    monkeypatch.setitem(sys.modules, name, found)


@pytest.mark.parametrize("engine", ["ours", "nano"])
def test_engines_have_equal_settings(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each by its own names; without a GPU, ours does not compute on a CPU."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(labengine, "Lab", Seen)
    module("flash_attn", monkeypatch)
    module("nanovllm", monkeypatch, LLM=Seen, SamplingParams=None)
    engines.ENGINES[engine]("model", {"block_size": 16, "checkout": "none"})  # type: ignore[call-arg]
    names = ("max_model_len", "max_num_batched_tokens", "max_num_seqs")
    assert engine != "ours" or Seen.settings["device"] == "cuda"
    assert tuple(Seen.settings[name] for name in names) == (MAX_MODEL_LEN, MAX_BATCHED_TOKENS, MAX_NUM_SEQS)
