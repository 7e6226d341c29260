"""What sees each drawn wrong override: a rule, an exception, the finder, or nothing.

    PYTHONPATH=tests:tests/support python -m mutants.overrides FILE [--seconds 10] [--from N] [--to M] [--workers N]

FILE: JSON of every override, written after each; what it has is not done again. --seconds: of the finder, for each
override that changed something and was seen by nothing; 0 leaves these as "changed", to be searched in a later call.
Every override has its own process, with limits of time and memory.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from time import monotonic
from typing import Any

from labengine import Lab
from labengine.core.editions import EDITIONS
from labengine.engine.external.host import HostStore
from labengine.engine.failure import raising_method
from labengine.events import DecisionDiffered
from labengine.finder.counterexample import Counterexample
from labengine.finder.find import GRAVE, find
from labengine.isolation.alone import called_alone
from labengine.isolation.board import Board, NoAnswer
from labengine.isolation.limits import EndlessOperationError, operations_end, restart_clock
from labengine.session.patch.override import PREFIX
from labengine.system.atomic_write import write_atomically
from mutants.drawn import SEED, Override, digest, overrides
from mutants.workloads import Observed, Workload, workloads
from waiting import PATIENCE

CLASSES = {
    "equivalent": "nothing differs in any workload",
    "rule": "a rule of the live checks is broken",
    "raises": "an exception, and the method is named",
    "raises elsewhere": "an exception, and another method is named",
    "no return": "an act never returns, or the process ends or is full",
    "shadow": "no rule, but an event names the method, which decides otherwise than the one that it replaces",
    "finder": "only find(): a rule, an exception or a run without an end",
    "finder beside": "only find(), beside the edition: another decision, or more cost",
    "unseen": "tokens, hits, a table or scheduled work differ, and nothing sees it",
    "unseen inside": "only events, hashes, the queue or transfers differ, and nothing sees it",
    "changed": "something differs; not searched yet",
}

DECIDED = frozenset(("tokens", "hits", "tables", "work"))
"""Observed facets that show decisions; the others show hashes and orders."""


@dataclass(frozen=True)
class Sight:
    """What sees an override: one of CLASSES. where: the workload and the step; facets: what differs, if it does."""

    seen_by: str
    rule: str = ""
    """The rule, or the exception's class."""
    message: str = ""
    workload: str = ""
    edition: str = ""
    step: int = -1
    facets: tuple[str, ...] = ()
    operations: int = 0
    """Of the finder's counterexample."""


# -- what sees an override while a workload is done --------------------------------------------------------------------


def by_a_rule(lab: Lab, known: frozenset[str]) -> Sight | None:
    """Return the first violation of a rule that the edition keeps in this workload."""
    fresh = (violation for violation in lab.violations if violation.rule not in known)
    first = next(fresh, None)
    return None if first is None else Sight("rule", first.rule, first.message, step=first.step)


DETECTORS: tuple[Callable[[Lab, frozenset[str]], Sight | None], ...] = (by_a_rule,)
"""Asked after each act, the first first. ANOTHER DETECTOR OF A DEFAULT LAB GOES HERE; its class, into CLASSES."""


@dataclass(frozen=True)
class Run:
    """A workload that was done: what saw something first, or the checksums of what was observed."""

    sight: Sight | None
    sums: dict[str, str]
    rules: frozenset[str] = frozenset()
    differed: DecisionDiffered | None = None
    """The first decision that differed from production's."""


def _run(workload: Workload, override: Override, known: frozenset[str]) -> Run:
    restart_clock()
    try:
        lab = workload.lab(override.parts(workload.edition), override.make_store)
    except Exception as error:
        return Run(_placed(_raised(error, override), workload, 0), {})
    with lab:
        observed, differed = Observed(lab), list[DecisionDiffered]()
        lab.hooks.subscribe(differed.append, DecisionDiffered)
        for act in workload.each_act(lab):
            restart_clock()
            if (sight := _seen(lab, act, observed, known, override)) is not None:
                break
        else:
            lab.check()
            sight = _asked(lab, known)
        step = lab.session.stepper.engine.num_finished_steps
        return Run(_placed(sight, workload, step), observed.sums, differed=next(iter(differed), None))


def _seen(
    lab: Lab, act: Callable[[], object], observed: Observed, known: frozenset[str], override: Override
) -> Sight | None:
    """Perform an act; return its first observation. A rule's report precedes the exception that follows it."""
    raised = None
    try:
        act()
        observed.note_state()
    except (EndlessOperationError, MemoryError) as error:
        raised = Sight("no return", type(error).__name__, str(error))
    except Exception as error:
        raised = _raised(error, override)
    return _asked(lab, known) or raised


def _raised(error: Exception, override: Override) -> Sight:
    method = raising_method(error)
    named = [one for one in method.split(", called by ") if one.startswith(PREFIX)]
    is_named = any(one.endswith(f".{override.seam.name}") for one in named)
    return Sight("raises" if is_named else "raises elsewhere", type(error).__name__, f"{method}: {error}")


def _placed(sight: Sight | None, workload: Workload, step: int) -> Sight | None:
    if sight is None:
        return None
    step = step if sight.step < 0 else sight.step
    return replace(sight, workload=workload.name, edition=workload.edition, step=step)


def _asked(lab: Lab, known: frozenset[str]) -> Sight | None:
    answers = (detector(lab, known) for detector in DETECTORS)
    return next((sight for sight in answers if sight is not None), None)


# -- one override ------------------------------------------------------------------------------------------------------


def sight_of(override: Override) -> Sight:
    """Return what sees an override in the workloads of the editions that use its seam."""
    chosen = [one for one in workloads() if one.edition in override.editions]
    known = [_baseline(one.seed) for one in chosen]  # before the process begins

    def play(board: Board) -> Sight:
        return _first_sight(override, chosen, known, board)

    answer = called_alone(play, PATIENCE + monotonic())
    if isinstance(answer, NoAnswer):
        workload = chosen[answer.begun - 1]
        return Sight("no return", answer.why, answer.reason, workload.name, workload.edition)
    assert isinstance(answer, Sight)
    return answer


def _first_sight(override: Override, chosen: list[Workload], known: list[Run], board: Board) -> Sight:
    warnings.simplefilter("ignore")
    differing: dict[str, Workload] = {}
    named: Sight | None = None
    with operations_end():
        for number, (workload, unchanged) in enumerate(zip(chosen, known, strict=True), 1):
            board.begin(number, workload.name)
            run = _run(workload, override, unchanged.rules)
            if run.sight is not None:
                return run.sight
            facets = [name for name, value in run.sums.items() if value != unchanged.sums[name]]
            differing |= {name: workload for name in facets if name not in differing}
            if named is None and (one := run.differed) is not None:
                said = f"{one.method} decides {one.decided}, {one.replaces} {one.instead_of}"
                named = Sight("shadow", "", said, workload.name, workload.edition)
    if not differing:
        return Sight("equivalent")
    if named is not None:
        return replace(named, facets=tuple(differing))
    first = next(iter(differing.values()))
    return Sight("changed", workload=first.name, edition=first.edition, facets=tuple(differing))


@cache
def _baseline(seed: int) -> Run:
    """Return the run of a workload on the edition as it is. A rule may break: nano-vllm-2025-07 has its bugs."""
    [workload] = [one for one in workloads() if one.seed == seed]
    with warnings.catch_warnings(), workload.lab(EDITIONS[workload.edition], HostStore) as lab:
        warnings.simplefilter("ignore")
        observed = Observed(lab)
        for act in workload.each_act(lab):
            act()
            observed.note_state()
        lab.check()
        return Run(None, observed.sums, frozenset(violation.rule for violation in lab.violations))


def searched(override: Override, sight: Sight, seconds: float) -> Sight:
    """Return what find() finds of an override that changes something in an edition: grave findings, then others."""
    asked: Any = override.cls if override.is_of_the_tier else override.parts(sight.edition)
    for seen_by, kinds in (("finder", GRAVE), ("finder beside", ("worse", "differs"))):
        found = find(asked, sight.edition, seconds=seconds, kinds=kinds, show_progress=False)
        if isinstance(found, Counterexample):
            rule = found.rule if found.kind in ("rule", "raises") else found.kind
            return replace(sight, seen_by=seen_by, rule=rule, message=found.message, operations=len(found.operations))
    return replace(sight, seen_by="unseen" if DECIDED.intersection(sight.facets) else "unseen inside")


# -- all of them -------------------------------------------------------------------------------------------------------


def judged(override: Override, seconds: float, before: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return an override and its sight as plain JSON. before: the same of an earlier call."""
    if before is None:
        sight = sight_of(override)
    else:
        sight = Sight(**{name: before[name] for name in Sight.__dataclass_fields__})
    if sight.seen_by == "changed" and seconds:
        sight = searched(override, sight, seconds)
    about = {
        "number": override.number,
        "family": override.family,
        "seam": str(override.seam),
        "editions": override.editions,
        "kind": override.change.kind,
        "words": override.change.words,
        "text": override.change.text,
    }
    return {**about, **asdict(sight)}


def main() -> None:
    """Judge them, and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--to", type=int, default=None)
    parser.add_argument("--workers", type=int, default=1)
    asked, drawn = parser.parse_args(), overrides()
    print(f"seed {SEED}, {len(drawn)} overrides, digest {digest(drawn)}", flush=True)
    done = {one["number"]: one for one in _read(asked.file)}
    left = [one for one in drawn[asked.first : asked.to] if _is_left(done.get(one.number), asked.seconds)]
    for result in _all_judged(left, done, asked.seconds, asked.workers):
        done[result["number"]] = result
        write_atomically(asked.file, json.dumps([done[number] for number in sorted(done)], indent=1).encode())
    print(table(done.values()))


def _read(file: Path) -> list[dict[str, Any]]:
    """Return what a file of an earlier call has; its overrides have to be the present ones."""
    found: list[dict[str, Any]] = json.loads(file.read_text()) if file.exists() else []
    texts = {one.number: one.change.text for one in overrides()}
    assert all(one["text"] == texts[one["number"]] for one in found), f"{file} has other overrides: begin a new one"
    return found


def _is_left(before: dict[str, Any] | None, seconds: float) -> bool:
    return before is None or (before["seen_by"] == "changed" and seconds > 0)


def _all_judged(
    left: list[Override], done: dict[int, dict[str, Any]], seconds: float, workers: int
) -> Iterator[dict[str, Any]]:
    judge = partial(_judged_by_number, seconds)
    numbers = [(one.number, done.get(one.number)) for one in left]
    if workers == 1:
        yield from map(judge, numbers)
        return
    with ProcessPoolExecutor(workers, get_context("fork")) as pool:
        yield from pool.map(judge, numbers)


def _judged_by_number(seconds: float, what: tuple[int, dict[str, Any] | None]) -> dict[str, Any]:
    number, before = what
    return judged(_drawn()[number], seconds, before)


@cache
def _drawn() -> list[Override]:
    return overrides()


def table(results: Iterable[dict[str, Any]]) -> str:
    """Return how many of each family are seen by what, as a Markdown table."""
    counts: dict[str, Counter[str]] = {}
    for one in results:
        for family in (one["family"], "all"):
            counts.setdefault(family, Counter())[one["seen_by"]] += 1
    used = [name for name in CLASSES if any(count[name] for count in counts.values())]
    order = sorted(counts, key=lambda family: (family == "all", family))
    lines = [["part", *used], ["---"] * (len(used) + 1)]
    lines += [[family, *(str(counts[family][name]) for name in used)] for family in order]
    says = "\n".join(f"{name}: {CLASSES[name]}" for name in used)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + f"\n\n{says}"


if __name__ == "__main__":
    main()
