"""find_in_engine(): the shortest workloads on which another engine goes wrong."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from time import monotonic
from typing import Any

from labengine.config import ConfigError, checked_int, shown
from labengine.driven.drivable import drivable, is_driver_file, refuse_edition
from labengine.driven.process import DrivenEngine, EngineProcess
from labengine.driven.script import importable
from labengine.finder.engines.finding import EngineFinding, EngineSearch
from labengine.finder.engines.judgement import PlayedCase, SameWay
from labengine.finder.engines.player import Player
from labengine.finder.engines.scopes import (
    EngineScope,
    file_scopes,
    nano_scopes,
    sglang_scopes,
    tree_scopes,
    vllm_scopes,
)
from labengine.finder.engines.two_engines import TwoEngines
from labengine.finder.find import INTERRUPTED
from labengine.finder.judgement import KINDS, Case
from labengine.finder.limits import AFTER_S
from labengine.finder.random_search import EventPairs, RandomWorkloads
from labengine.finder.sandbox import Finding
from labengine.finder.shrinking import Tries, shrunk
from labengine.isolation.limits import SearchEndedError
from labengine.record.fold import Fold
from labengine.record.fold_state import FINISHED
from labengine.system.regular_file import read_regular

SHRINKING_S = 30.0
"""Seconds by which a search may exceed its own for shrinking, each try of which goes through the engine's process. It
may exceed them by AFTER_S more for an engine that does not answer."""

SCOPES: dict[str, Callable[[], Sequence[EngineScope]]] = {
    "vllm": vllm_scopes,
    "nano-vllm": nano_scopes,
    "mini-sglang": partial(tree_scopes, "mini-sglang"),
    "sglang": sglang_scopes,
}
"""Per engine, the scopes of its workloads."""


NUM_BITS = 1 << 28
"""Bits of the count: 32 MiB, enough for a hundred million states."""


def find_in_engine(
    engine: str,
    python: str,
    *,
    seconds: float = 60.0,
    seed: int = 0,
    max_findings: int = 1,
    max_workloads: int | None = None,
    patch: str | None = None,
    checkout: str | None = None,
    edition: str | None = None,
    against: DrivenEngine | None = None,
    with_connector: bool = True,
    scopes: Sequence[EngineScope] | None = None,
    show: Callable[[str], object] = lambda line: None,
    start: Callable[[DrivenEngine], Any] = EngineProcess,
) -> EngineSearch:
    """Search for the shortest workloads on which an engine's scheduler and cache go wrong.

    engine: a key of ENGINES. python: the interpreter of its environment. seconds: wall-clock time, without the engine's
    start; shrinking may take SHRINKING_S more, and an engine that does not answer AFTER_S more. The search ends earlier
    after max_findings different findings or max_workloads. seed: of the workloads. patch: a Python file executed first
    in the engine's process: a change under test. checkout: the folder of an engine that is not installed there, by
    default the environment variable's. edition: the one to compare with, whose own faults then do not count; by default
    the one that equals the engine, and every fault counts. against: another engine that plays the same workloads, to
    compare with that instead; an error that both have does not count. with_connector: also search scopes in which a KV
    connector loads tokens. scopes: bounds of the workloads, instead of the default ones. show: called with a line of
    progress now and then. start: makes the engine's process.

    Raises ConfigError if the engine cannot be driven there. Ctrl-C ends the search and returns its findings so far.
    """
    drivable(engine)
    if edition is not None:
        refuse_edition(engine, edition)
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not 0 < seconds < inf:
        raise ConfigError(f"seconds must be a number above 0, got {shown(seconds)}")
    checked_int("seed", seed)
    checked_int("max_findings", max_findings, 1)
    text = _patch_text(patch)
    if scopes is None:
        scopes = [scope for scope in scopes_of(engine) if with_connector or scope.transfers is None]
    scopes = [replace(scope, edition=edition or "") for scope in scopes]
    search = _Search(seed, scopes)
    driven = DrivenEngine(engine, python, patch, checkout)
    with _player(driven, against, search, start) as player:
        search.began = monotonic()
        deadline = search.began + seconds
        player.last = deadline + AFTER_S
        try:
            for case, played in player.played(search.cases(deadline, max_workloads)):
                found = search.note(case, played)
                if found is not None:
                    found_now = search.finding(player, case, found, text, driven)
                    search.findings.append(found_now)
                    player.last = deadline + SHRINKING_S + AFTER_S
                    search.findings[-1] = _shrunk(player, found_now, deadline + SHRINKING_S)
                    if len(search.findings) >= max_findings:
                        break
                search.report_progress(show)
        except KeyboardInterrupt:
            search.why_cut = INTERRUPTED
        except SearchEndedError as error:
            search.why_cut = f"The engine had not answered at the end of the search: {error}."
        return search.result(player)


def scopes_of(engine: str) -> Sequence[EngineScope]:
    """Return the scopes of an engine's workloads."""
    return file_scopes(engine) if is_driver_file(engine) else SCOPES[engine]()


def _player(
    driven: DrivenEngine, against: DrivenEngine | None, search: _Search, start: Callable[[DrivenEngine], Any]
) -> Player | TwoEngines:
    if against is None:
        return Player(driven, search.note_state, start)
    return TwoEngines(driven, against, search.note_state, start)


def _patch_text(patch: str | None) -> str:
    if patch is None:
        return ""
    try:
        return read_regular(patch).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the patch {patch} cannot be read: {error}") from None


def _shrunk(player: Player | TwoEngines, found: EngineFinding, deadline: float) -> EngineFinding:
    smaller, finding = shrunk(found.case, found.finding, SameWay(player.play, found.finding), Tries(deadline))
    return replace(found, finding=finding, case=smaller)


class _Search:
    """The workloads and the counts of one search."""

    def __init__(self, seed: int, scopes: Sequence[EngineScope]) -> None:
        self._seed = seed
        self._workloads = RandomWorkloads(scopes, seed)
        self._states = DistinctStates()
        self.began = self._shown_at = monotonic()
        self.findings: list[EngineFinding] = []
        self.num_workloads = self.num_done = 0
        self.why_cut = ""
        """The reason that the search ended early."""
        self._num_steps = self._num_alike = self._num_conforming = 0
        self._unjudged: Counter[str] = Counter()
        self._known: set[tuple[str, str, str]] = set()

    def cases(self, deadline: float, max_workloads: int | None) -> Iterator[Case]:
        """Yield random cases until the deadline (monotonic)."""
        number = 0
        while monotonic() < deadline and (max_workloads is None or number < max_workloads):
            number += 1
            yield self._workloads.next()

    def note_state(self, case: Case, fold: Fold) -> None:
        """Count a state."""
        self._states.add(fold_key(fold, case.scope.name))

    def note(self, case: Case, played: PlayedCase) -> Finding | None:
        """Count a played case; return its gravest finding unless a similar one was found before."""
        self.num_workloads += 1
        self.num_done = played.num_done
        self._num_steps += played.num_steps
        self._workloads.note(case, _pairs_of(played))
        if played.why_unjudged:
            self._unjudged[played.why_unjudged] += 1
        elif not played.findings:
            self._num_conforming += 1
        new = [one for one in played.findings if (one.kind, one.rule, case.scope.name) not in self._known]
        self._known.update((one.kind, one.rule, case.scope.name) for one in new)
        self._num_alike += bool(played.findings) and not new
        return min(new, key=lambda one: KINDS.index(one.kind)) if new else None

    def finding(
        self, player: Player | TwoEngines, case: Case, found: Finding, patch: str, driven: DrivenEngine
    ) -> EngineFinding:
        """Return an EngineFinding with the case up to it, not shrunk."""
        case = Case(case.scope, case.workload[: self.num_done or None])
        seconds, source = monotonic() - self.began, importable(player.process.source, driven.name, driven.checkout)
        engine, other = _names_of(player)
        return EngineFinding(engine, found, case, self.num_workloads, seconds, source, patch, other)

    def report_progress(self, show: Callable[[str], object]) -> None:
        """Show a line once per second."""
        now = monotonic()
        if now - self._shown_at > 1:
            self._shown_at = now
            rate = self.num_workloads / (now - self.began)
            show(f"{self.num_workloads:,} workloads, {rate:,.0f} a second; {len(self.findings)} findings")

    def result(self, player: Player | TwoEngines) -> EngineSearch:
        """Return the result of the search."""
        engine, other = _names_of(player)
        return EngineSearch(
            engine,
            tuple(self.findings),
            self._num_alike,
            self.num_workloads,
            self._num_steps,
            self._states.count,
            self._num_conforming,
            dict(self._unjudged),
            monotonic() - self.began,
            self._seed,
            (*player.remarks, *filter(None, [self.why_cut])),
            bool(self.why_cut),
            other,
        )


def _names_of(player: Player | TwoEngines) -> tuple[str, str]:
    """Return the engine's name, and the one that it is compared with; empty for its edition."""
    return player.names if isinstance(player, TwoEngines) else (player.process.engine, "")


def _pairs_of(played: PlayedCase) -> set[tuple[object, object]]:
    pairs = EventPairs()
    for event in played.events:
        pairs.note(event)
    return pairs.seen


def fold_key(fold: Fold, scope: str) -> int:
    """Return a hash of queues, tables, content and free order, with blocks numbered in order of appearance."""
    names: dict[int, int] = {fold.null_block: -1}
    requests = [request for request in fold.requests.values() if request.status != FINISHED]
    tables = []
    for request in requests:
        for table in request.block_tables:
            tables.append(tuple([names.setdefault(block_id, len(names)) for block_id in table]))
    queue = tuple([names.setdefault(block_id, len(names)) for block_id in fold.free_queue])
    held = tuple([(one.status, one.num_computed_tokens, tuple(one.token_ids)) for one in requests])
    blocks = tuple([(fold.ref_counts[i], fold.block_keys[i]) for i in names if 0 <= i < len(fold.ref_counts)])
    return hash((scope, held, tuple(tables), queue, blocks))


class DistinctStates:
    """Counts distinct numbers in bounded memory by linear counting, within 0.1 % up to a hundred million."""

    def __init__(self, num_bits: int = NUM_BITS) -> None:
        self._num_bits = num_bits
        self._bits = bytearray(num_bits // 8)
        self._num_set = 0

    def add(self, key: int) -> None:
        """Count a number."""
        place, bit = divmod(key % self._num_bits, 8)
        if not self._bits[place] >> bit & 1:
            self._bits[place] |= 1 << bit
            self._num_set += 1

    @property
    def count(self) -> int:
        """The approximate number of distinct numbers."""
        left = max(1, self._num_bits - self._num_set)
        return round(-self._num_bits * math.log(left / self._num_bits))
