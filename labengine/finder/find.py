"""find(): the shortest workload on which parts go wrong, or a report of what was searched."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from time import monotonic
from typing import Any

from labengine.config import TUNING, ConfigError, EngineConfig, checked_call, checked_int, shown
from labengine.core.connector import Connector
from labengine.core.parts import Parts
from labengine.core.request import ExtraKeys
from labengine.finder.counterexample import Counterexample
from labengine.finder.judgement import GRAVE as GRAVE
from labengine.finder.judgement import KINDS, Judgement
from labengine.finder.kind_scopes import kind_scopes, priority_scopes
from labengine.finder.report import SearchReport
from labengine.finder.sandbox import Kind
from labengine.finder.scopes import KEYS, Scope, large_scopes, small_scopes
from labengine.finder.search import Found, SearchCounts, Task
from labengine.finder.suspects import suspects_of
from labengine.finder.workers import NOT_ENDED, Message, in_executor, in_processes, in_this_process
from labengine.isolation.endings import interrupts_named
from labengine.isolation.limits import SearchEndedError, can_fork

LONGER_S = 20.0
"""Seconds that a search continues after a finding that is not grave, to look for a graver one."""
SMALLER_S = 1.5
"""Seconds that it continues after any other finding, to look for a smaller one."""

INTERRUPTED = "The search was interrupted (Ctrl-C) before it finished."


def find(
    parts: object,
    against: str | Parts = "labengine",
    *,
    external: Callable[[], Connector] | None = None,
    seconds: float = 60.0,
    kinds: Collection[Kind] = KINDS,
    margin: int = 1,
    seed: int = 0,
    max_workloads: int | None = None,
    workers: int | Executor | None = None,
    scopes: Sequence[Scope] | None = None,
    extra_keys: Sequence[Mapping[str, str]] | None = None,
    show_progress: bool = True,
    **settings: Any,
) -> Counterexample | SearchReport:
    """Search for the shortest workload on which parts go wrong.

    parts: Parts, an edition's name, one class that replaces a part, a Connector's class (or a function that makes a
    connector), or a patched module of labengine. Classes that Parts leave out are those of `against`.
    against: the edition with which costs and decisions are compared.
    external: makes the external tier of every workload; by default workloads have tiers of several kinds, or none.
    kinds: the errors that count, the gravest first: "rule" (contradicts an invariant, the oracle or the events),
    "raises", "liveness" (a step or a run without an end), "worse" (fewer hits, a higher peak or more tokens computed
    than the reference, by `margin` tokens or blocks), "differs" (a decision unlike the reference's).
    seconds: wall-clock time for the whole search, shrinking included; at most AFTER_S (limits.py) are added. A grave
    finding ends the search. seed: of the random workloads; max_workloads: their number per searcher, which makes a
    search the same on a slow machine.
    workers: processes, by default one per core; 0: in this process, in slices; or an Executor with the interface of
    concurrent.futures. scopes: bounds of the workloads, instead of the default ones; extra_keys: the keys that requests
    may have, one at a time; settings: of EngineConfig, such as retention_interval=0.

    Returns a Counterexample, or a SearchReport, which is falsy. Ctrl-C ends the search and returns its findings so far.
    Errors that the parts share with the edition that they derive from do not count. Raises ConfigError for parts that
    cannot be searched.
    """
    wanted = _checked_kinds(kinds)
    suspects = suspects_of(parts, against)
    if external is not None:
        checked_call("external", external)
        suspects = replace(suspects, make_connector=external)
    judgement = Judgement(suspects, wanted, checked_int("margin", margin, 1))
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not 0 < seconds < inf:
        raise ConfigError(f"seconds must be a number above 0, got {shown(seconds)}")
    checked_int("seed", seed)
    if max_workloads is not None:
        checked_int("max_workloads", max_workloads, 0)
    bounds = _checked_settings(settings)
    if scopes is None:
        tenants = _checked_keys(extra_keys)
        first, others = kind_scopes(judgement.suspects.overridden, **bounds)
        found = [first, (small_scopes(tenants, **bounds), large_scopes(tenants, **bounds)), others]
        if judgement.suspects.know_priorities:
            found.append(priority_scopes(**bounds))
        small, large = (sum(scopes, ()) for scopes in zip(*found, strict=True))
    else:
        small = large = _checked_scopes(scopes)
    if not set(judgement.kinds) & set(GRAVE):
        small = ()  # costs and decisions are compared at the end of a run
    tasks = [
        Task(judgement, () if number else small, large, seed + number, max_workloads)
        for number in range(_num_searchers(workers))
    ]
    counts = [SearchCounts() for _ in tasks]
    started = found_at = monotonic()
    gravest: Found | None = None
    unshrunk: Found | None = None
    with _progress(seconds, show_progress) as show, interrupts_named():
        try:
            for number, message in _messages(tasks, seconds, workers):
                if isinstance(message, SearchCounts):
                    counts[number] = message
                    show(monotonic() - started, counts)
                elif not message.is_shrunk:
                    unshrunk = unshrunk or message
                elif gravest is None or message.rank < gravest.rank:
                    gravest, found_at = message, monotonic()
                if gravest is not None and _is_enough(gravest, wanted, monotonic() - found_at):
                    break
        except (KeyboardInterrupt, SearchEndedError) as error:
            why = INTERRUPTED if isinstance(error, KeyboardInterrupt) else NOT_ENDED
            counts[0].cut(why)
    gravest = gravest or unshrunk
    report = SearchReport.of(judgement.suspects, wanted, counts, monotonic() - started, seed)
    return report if gravest is None else Counterexample(gravest, judgement, report)


def _is_enough(gravest: Found, wanted: Collection[Kind], seconds: float) -> bool:
    """Return whether to end the search `seconds` after this finding, though another searcher may find a smaller one."""
    graver = [kind for kind in wanted if KINDS.index(kind) < KINDS.index(gravest.finding.kind)]
    is_final = gravest.finding.kind in GRAVE or not graver
    return seconds > (SMALLER_S if is_final else LONGER_S)


def _messages(tasks: Sequence[Task], seconds: float, workers: int | Executor | None) -> Iterator[Message]:
    if isinstance(workers, Executor):
        if tasks[0].judgement.suspects.module is not None and not isinstance(workers, ThreadPoolExecutor):
            raise ConfigError("a module is patched only in this process: omit workers, or use threads")
        return in_executor(workers, tasks, seconds)
    if workers == 0 or not can_fork():
        return in_this_process(tasks, seconds)
    return in_processes(tasks, seconds)


def _num_searchers(workers: int | Executor | None) -> int:
    if isinstance(workers, Executor):
        return max(2, getattr(workers, "_max_workers", 2))
    if workers is None:
        return max(2, len(os.sched_getaffinity(0)) if can_fork() else 2)
    return max(2, checked_int("workers", workers, 0))


def _checked_kinds(kinds: Collection[Kind]) -> tuple[Kind, ...]:
    asked = (kinds,) if isinstance(kinds, str) else tuple(kinds)
    unknown = [kind for kind in asked if kind not in KINDS]
    if unknown or not asked:
        raise ConfigError(f"kinds must be among {', '.join(KINDS)}, got {shown(kinds)}")
    return tuple(kind for kind in KINDS if kind in asked)


def _checked_scopes(scopes: Sequence[Scope]) -> tuple[Scope, ...]:
    if not isinstance(scopes, (list, tuple)) or not all(isinstance(scope, Scope) for scope in scopes):
        raise ConfigError(f"scopes must be a list of labengine.finder.scopes.Scope, got {shown(scopes)}")
    return tuple(scopes)


def _checked_keys(extra_keys: Sequence[Mapping[str, str]] | None) -> tuple[ExtraKeys, ...]:
    if extra_keys is None:
        return KEYS
    if not isinstance(extra_keys, (list, tuple)) or not all(isinstance(one, Mapping) for one in extra_keys):
        raise ConfigError(f'extra_keys must be a list such as [{{"lora": "s"}}], got {shown(extra_keys)}')
    return ((), *(tuple(one.items()) for one in extra_keys))


def _checked_settings(settings: dict[str, Any]) -> dict[str, Any]:
    known = (*TUNING, "max_num_seqs")
    for name in settings:
        if name not in known:
            raise ConfigError(f"find() has no setting {name!r}; it has {', '.join(known)}")
    EngineConfig(**settings)
    return settings


@contextmanager
def _progress(seconds: float, is_shown: bool) -> Iterator[Any]:
    if not is_shown:
        yield lambda now, counts: None
        return
    from tqdm.auto import tqdm

    with tqdm(total=round(seconds), desc="searching", leave=False, bar_format="{bar} {desc}") as bar:

        def show(now: float, counts: Sequence[SearchCounts]) -> None:
            bar.n = min(round(now), bar.total)
            bar.set_description_str(_line(now, counts), refresh=True)

        try:
            yield show
        finally:
            bar.total = bar.n  # in a notebook tqdm keeps an incomplete bar, in red


def _line(now: float, counts: Sequence[SearchCounts]) -> str:
    generated = sum(one.generated for one in counts)
    first = counts[0]
    return (
        f"{generated:,} states, {generated / max(now, 0.1):,.0f} a second; {first.distinct:,} distinct, "
        f"{first.queue_left:,} left at depth {first.depth}"
    )
