"""The finder on another engine, without one: streams recorded on vLLM 0.32's schedulers replace its process.

tests/differential/test_find_vllm.py drives vLLM itself.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from differential import vllm_streams
from labengine.__main__ import main
from labengine.config import ConfigError, GroupSpec
from labengine.core.block_pool import BlockPool
from labengine.core.editions import NANO_VLLM_243, VLLM
from labengine.core.kv_cache_group import NotGrantedError
from labengine.core.parts import Parts
from labengine.driven.inside.symptoms import Symptom, Watching, actions, play, wrong_tree
from labengine.driven.process import DrivenEngine, EngineLostError, EngineProcess
from labengine.finder.engines.edition import EditionEngine, expected_states
from labengine.finder.engines.finding import EngineSearch
from labengine.finder.engines.scopes import EngineScope, nano_scopes, tree_scopes, vllm_scopes, wire_workload
from labengine.finder.engines.search import DistinctStates, find_in_engine
from labengine.finder.operations import Add, TakeStep

Answer = dict[str, Any]
SCOPE, NANO, TREE = vllm_scopes()[0], nano_scopes()[0], tree_scopes("mini-sglang")[0]
NOTHING_ELSE = {"states": None, "left": None, "error": None}
NEVER_ENDS = {
    "messages": [],
    "num_done": 1,
    "num_steps": 0,
    "states": None,
    "left": None,
    "error": ["EndlessWorkloadError", "queue.py:7", "...", ""],
}


def answer_of(items: list[dict[str, Any]]) -> Answer:
    """Return the driver's answer for a recorded run."""
    (header,) = (item["header"] for item in items if "header" in item)
    messages = [item["message"] for item in items if "message" in item]
    return {
        "header": {**header, "file": 1},
        "messages": messages,
        "num_done": 99,
        "num_steps": 9,
        **NOTHING_ELSE,
    }


def recorded(broken: str | None) -> Answer:
    """Return the shortest recorded run of vLLM, or of a broken copy."""
    runs = vllm_streams.read(vllm_streams.BROKEN_PATH if broken else vllm_streams.PATH)
    return min((answer_of(items) for run, items in runs if run.get("broken") == broken), key=lambda a: len(str(a)))


class Recorded:
    """A process that answers a workload with the result of `answer`."""

    engine, source = "vllm 0.32.0", "VERSION = '0.32.0'"

    def __init__(self, answer: Callable[[Answer], Answer]) -> None:
        self._answer = answer
        self._sent: deque[Answer] = deque()

    def send(self, workload: Answer) -> None:
        self._sent.append(workload)

    def receive(self, seconds: float = 0.0) -> Answer:
        return self._answer(self._sent.popleft())

    def close(self) -> None:
        pass


def search(answer: Callable[[Answer], Answer], max_workloads: int = 3, **options: Any) -> EngineSearch:
    def start(driven: DrivenEngine) -> Recorded:
        return Recorded(answer)

    scopes = options.pop("scopes", (SCOPE,))
    return find_in_engine("vllm", "python", max_workloads=max_workloads, scopes=scopes, start=start, **options)


def num_adds(workload: Answer) -> int:
    return sum(operation[0] == "add" for operation in workload["operations"])


def test_workloads_that_conform_are_counted() -> None:
    good = recorded(None)
    found = search(lambda workload: good)
    assert not found and (found.num_workloads, found.num_conforming, found.num_steps) == (3, 3, 27)
    assert 3 < found.num_distinct < 3 * len(good["messages"])
    assert repr(found).startswith("Nothing found with vllm 0.32.0.\nSearched: 3 random workloads (seed 0)")


def test_a_broken_copy_is_found_and_its_workload_shrunk() -> None:
    good, bad = recorded(None), recorded("late merge")
    found = search(lambda workload: bad if num_adds(workload) > 1 else good)
    (finding,) = found.findings
    assert (finding.kind, len(finding.case.workload)) == ("differs", 2)
    assert all(isinstance(operation, Add) for operation in finding.case.workload)
    assert "differs from its edition after 2 operations" in str(finding)


def test_findings_alike_are_counted_and_others_follow() -> None:
    good, bad = recorded(None), recorded("late merge")
    found = search(lambda workload: bad if num_adds(workload) > 1 else good, max_findings=2)
    assert len(found.findings) == 1 and found.num_alike == 2


def test_an_exception_of_the_engine_is_found_with_its_lines() -> None:
    raised = recorded(None) | {"error": ["AssertionError", "", "Traceback:\n  in touch\nAssertionError", ""]}
    (finding,) = search(lambda workload: raised).findings
    assert (finding.kind, finding.finding.rule) == ("raises", "AssertionError")
    assert "in touch" in finding.finding.message


def test_wrong_counts_and_requests_that_are_left_are_found() -> None:
    good = recorded(None)
    counts = good | {"error": ["Symptom", "block 1 has ref_count 1, and 0 hold it", "...", "ref_count"]}
    (finding,) = search(lambda workload: counts).findings
    assert (finding.kind, finding.finding.rule) == ("rule", "ref_count")
    left = good | {"left": {"requests": {"1": ["waiting", [[4, 5]]]}, "free_queue": [1, 2]}}
    (finding,) = search(lambda workload: left).findings
    assert finding.kind == "liveness" and "request 1 is waiting with 2 blocks" in finding.finding.message


def test_a_workload_without_an_end_is_found() -> None:
    (finding,) = search(lambda workload: NEVER_ENDS).findings
    assert finding.kind == "liveness" and "queue.py:7" in finding.finding.message


def test_an_engine_that_is_lost_twice_is_a_finding_and_once_a_remark() -> None:
    good, lost = recorded(None), list[bool]()

    def answer(workload: Answer) -> Answer:
        if not lost or (len(lost) == 1 and num_adds(workload) > 99):
            lost.append(True)
            raise EngineLostError("its process ended with status -11")
        return good

    once = search(answer)
    assert not once and once.num_workloads == 3 and "lost once" in once.remarks[0]

    def die(workload: Answer) -> Answer:
        raise EngineLostError("its process ended with status -11")

    (finding,) = search(die, max_workloads=1).findings
    assert (finding.kind, finding.finding.rule) == ("raises", "lost") and "status -11" in finding.finding.message


def test_what_no_edition_follows_is_reported() -> None:
    other = recorded(None)
    other["header"] = {**other["header"], "engine": "vllm 0.20.1"}
    found = search(lambda workload: other)
    assert not found and found.num_conforming == 0
    assert "the editions decide like vllm 0.32 (3)" in repr(found)


def test_a_pool_in_which_vllm_would_not_start_is_no_case() -> None:
    scope = EngineScope("tight", replace(SCOPE.config, num_blocks=3))
    assert scope.can_hold(Add((1, 2, 3), 1)) and not scope.can_hold(Add((1, 2, 3), 2))
    stuck = recorded(None) | {"error": ["RuntimeError", "it does not fit", "", ""]}
    (finding,) = search(lambda workload: stuck).findings
    scope = finding.case.scope
    assert isinstance(scope, EngineScope)
    assert all(scope.can_hold(one) for one in finding.case.workload if isinstance(one, Add))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["vllm"], "--python vllm/bin/python"),
        (["vllm", "--python", "/nowhere/python"], "/nowhere/python does not start (No such file"),
        (["sgl", "--python", "python"], "engine must be one of vllm"),
        (["vllm", "--python", "python", "--edition", "vllm"], "vLLM's release tells its edition"),
        (["mini-sglang", "--edition", "vllm"], "compared with mini-sglang or mini-sglang+142"),
        (["vllm", "--python", "python", "--patch", "/nowhere.py"], "cannot be read"),
    ],
)
def test_what_cannot_be_searched_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LABENGINE_VLLM_PYTHON", raising=False)
    assert main(["find-engine", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_an_interpreter_without_the_engine_is_refused(tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho 'ModuleNotFoundError: no vllm' >&2\nexit 1\n")
    fake.chmod(0o755)
    with pytest.raises(ConfigError, match=re.escape("status 1; its last output: ModuleNotFoundError: no vllm")):
        EngineProcess(DrivenEngine("vllm", str(fake)))


# -- an engine without events ---------------------------------------------------------------------------------------


def states_of(workload: Answer) -> Answer:
    """Return the driver's answer for an engine that behaves like edition nano-vllm."""
    states = expected_states(NANO, workload)
    return {"messages": [], "num_done": 99, "num_steps": 9} | NOTHING_ELSE | {"states": states}


def search_nano(answer: Callable[[Answer], Answer]) -> EngineSearch:
    def start(driven: DrivenEngine) -> Recorded:
        return Recorded(answer)

    return find_in_engine("nano-vllm", "python", max_workloads=5, scopes=(NANO,), start=start)


def test_states_that_the_edition_has_conform() -> None:
    found = search_nano(states_of)
    assert not found and found.num_conforming == 5 and found.num_distinct > 10


def test_another_state_than_the_editions_is_found() -> None:
    def other(workload: Answer) -> Answer:
        answer = states_of(workload)
        answer["states"] = [{**state, "free_queue": [1]} for state in answer["states"]]
        return answer

    (finding,) = search_nano(other).findings
    assert (finding.kind, finding.finding.rule) == ("differs", "free_queue") and len(finding.case.workload) == 1


def test_a_missed_hit_is_worse() -> None:
    missed = ["Symptom", "request 1 finds 0 tokens in the cache, but blocks [0] hold 2", "...", "hit"]
    (finding,) = search_nano(lambda workload: states_of(workload) | {"error": missed}).findings
    assert finding.kind == "worse" and "finds less in its cache than it could" in str(finding)


def test_a_script_sees_a_missed_hit() -> None:
    workload = (Add((1, 2, 3), 3), Add((1, 2), 2))
    scope = replace(NANO, config=replace(NANO.config, num_blocks=3, max_num_batched_tokens=3))
    wire = wire_workload(scope, workload)
    with pytest.raises(Symptom, match=r"request 1 finds 0 tokens in the cache, but blocks \[0\] hold 2"):
        play(Driven(scope, wire), wire["settings"], wire["operations"], [])
    merging = Driven(scope, wire, NANO_VLLM_243)
    play(merging, wire["settings"], wire["operations"], [])


# -- an engine with a prefix tree -----------------------------------------------------------------------------------


def answer_like(edition: str, scope: EngineScope) -> Callable[[Answer], Answer]:
    """Return what the driver answers for an engine that decides like an edition."""

    def answer(wire: Answer) -> Answer:
        engine = Driven(replace(scope, edition=edition), wire)
        watching, error = Watching(engine, wire["settings"]), None
        do = actions(engine)
        try:
            for what, *values in [*wire["operations"], *[["step"]] * 9]:
                do[what](*values)
        except Symptom as symptom:
            error = ["Symptom", str(symptom), "...", symptom.rule]
        except NotGrantedError as failure:
            error = ["AssertionError", str(failure), "...", ""]
        counts = {"messages": [], "num_done": 99, "num_steps": 9}
        return counts | NOTHING_ELSE | {"states": watching.states, "error": error}

    return answer


def search_tree(edition: str | None, add: Add, size: int, num_blocks: int) -> EngineSearch:
    config = replace(TREE.config, num_blocks=num_blocks, groups=(GroupSpec(size),), hash_block_size=size)
    scope = replace(TREE, config=config, only=(add,))

    def start(driven: DrivenEngine) -> Recorded:
        return Recorded(answer_like("mini-sglang", scope))

    return find_in_engine("mini-sglang", "python", max_workloads=9, edition=edition, scopes=(scope,), start=start)


@pytest.mark.parametrize(
    ("add", "size", "num_blocks", "place", "known"),
    [
        (Add((1, 2), 2), 1, 12, ("rule", "ref_count"), ["mini-sglang"]),
        (Add((1, 2, 3, 4, 5), 1), 4, 3, ("raises", "AssertionError"), ["mini-sglang", "mini-sglang+142"]),
    ],
)
def test_a_fault_counts_unless_the_edition_asked_for_has_it(
    add: Add, size: int, num_blocks: int, place: tuple[str, str], known: list[str]
) -> None:
    """Two equal prompts in one step: the copy's blocks are freed, and stay in the table; or the step lacks a block."""
    for edition in (None, "mini-sglang", "mini-sglang+142"):
        found = [(one.kind, one.finding.rule) for one in search_tree(edition, add, size, num_blocks).findings]
        assert found == ([] if edition in known else [place])


def test_an_engine_that_goes_on_where_the_edition_ends_differs() -> None:
    def answer(wire: Answer) -> Answer:
        honest = answer_like("mini-sglang", scope)(wire)
        return honest | {"states": honest["states"] + honest["states"][-1:], "error": None}

    scope = replace(TREE, only=(Add((1,), 1),))
    start = lambda driven: Recorded(answer)  # noqa: E731
    (finding,) = find_in_engine("mini-sglang", "python", max_workloads=1, scopes=(scope,), start=start).findings
    assert finding.kind == "differs" and "all its requests have ended" in finding.finding.message


@pytest.mark.parametrize(
    ("tree", "holds", "wrong"),
    [
        ([[1, 0, 1, [0]], [2, 1, 1, [1]]], {"7": 2}, ""),
        ([[1, 0, 1, [0]], [2, 1, 1, [0]]], {"7": 2}, "block 0 is in 2 nodes"),
        ([[1, 0, 1, [0]], [2, 1, 0, [1]]], {"7": 2}, "node 2 has 0 locks, but 1 requests need it"),
    ],
)
def test_a_script_sees_a_wrong_tree(tree: list[Any], holds: dict[str, int], wrong: str) -> None:
    assert list(wrong_tree({"tree": tree, "holds": holds})) == ([wrong] if wrong else [])


# -- the script ----------------------------------------------------------------------------------------------------


class HeadFirst(BlockPool):
    """Allocates the newest free block first."""

    def reused_first(self, *args: Any, **kwargs: Any) -> Any:
        return not super().reused_first(*args, **kwargs)


class Driven(EditionEngine):
    """An edition with the interface that a script needs of an engine."""

    plan: dict[str, tuple[int, int]]

    def __init__(self, scope: EngineScope, wire: Answer, parts: Parts | None = None) -> None:
        super().__init__(scope, parts)
        self.plan = {}
        self._wire = wire

    def _called(self, call: str, events: Any) -> None:
        if call == "schedule":
            self.plan = {
                str(part.request_id): (part.start, len(part.token_ids)) for part in self.rerun.newest_plan.scheduled
            }
        super()._called(call, events)

    def length_of(self, name: str) -> int:
        return self.rerun.scheduler.requests[int(name)].num_tokens

    def content_of(self, name: str) -> list[Any]:
        prompt = [one for one in self._wire["operations"] if one[0] == "add"][int(name)][1]
        return [None, *prompt]


class Confused(Driven):
    """Uses a request's tokens as its number."""

    def content_of(self, name: str) -> list[Any]:
        return [None, *[int(name)] * 9]


WORKLOAD = (Add((1, 2, 3, 4, 5), 2), TakeStep(), Add((1, 2, 3, 4, 6), 2), TakeStep(), TakeStep())


@pytest.mark.parametrize("is_async", [False, True])
def test_a_script_sees_nothing_wrong_with_the_edition(is_async: bool) -> None:
    scope = replace(SCOPE, config=replace(SCOPE.config, num_blocks=9), is_async=is_async)
    wire = wire_workload(scope, WORKLOAD)
    play(Driven(scope, wire), wire["settings"], wire["operations"], expected_states(scope, wire))


def test_a_script_shows_a_state_that_the_design_does_not_have() -> None:
    scope = replace(SCOPE, config=replace(SCOPE.config, num_blocks=9))
    wire = wire_workload(scope, WORKLOAD)
    broken = Driven(scope, wire, Parts(name="broken", block_pool=HeadFirst).overriding(VLLM))
    with pytest.raises(Symptom, match=r"free_queue is .* should be"):
        play(broken, wire["settings"], wire["operations"], expected_states(scope, wire))


def test_a_script_sees_kv_of_other_tokens() -> None:
    scope = replace(SCOPE, config=replace(SCOPE.config, num_blocks=9))
    wire = wire_workload(scope, WORKLOAD)
    engine = Confused(scope, wire)
    with pytest.raises(Symptom, match="request 1 reads position 0 in block 1, which holds another prefix's KV"):
        play(engine, wire["settings"], wire["operations"], [])


def test_distinct_states_are_counted_once() -> None:
    states = DistinctStates(1 << 16)
    for number in [*range(1000), *range(500)]:
        states.add(number * 2654435761)
    assert abs(states.count - 1000) < 30
