"""Reading a session: its state, the checks' findings, KV, figures, and a description of the running engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labengine.check.invariants import check_invariants, judge_contents
from labengine.check.watch import Watch
from labengine.config import checked_int
from labengine.core.connector import Connector
from labengine.core.merge_policy import LateMerge, LateMergeComparingPrefixes
from labengine.core.parts import Parts
from labengine.driven.watch import DrivenWatch
from labengine.engine.ahead import scheduling_line
from labengine.engine.loaded_model import LoadedModel
from labengine.record.snapshot import Snapshot
from labengine.record.violation import Violation, gravest_first
from labengine.session.overrides_in_use import Overrides, override_line
from labengine.session.runs import Runs
from labengine.session.stats import LabStats, StatsListener
from labengine.session.stepper import Stepper

if TYPE_CHECKING:  # torch is for real models only
    import torch


class Inspection:
    """Reads a session, at any time, and changes nothing.

    watch: the checks; None without checks. scheduling: why steps overlap, or why they do not.
    """

    def __init__(
        self,
        model: LoadedModel,
        parts: Parts,
        stepper: Stepper,
        runs: Runs,
        stats: StatsListener,
        watch: Watch | DrivenWatch | None,
        external: Connector | None,
        scheduling: str,
    ) -> None:
        self._model, self._parts, self._stepper, self._runs = model, parts, stepper, runs
        self._stats, self._watch, self._external, self._scheduling = stats, watch, external, scheduling

    def snapshot(self) -> Snapshot:
        """Return what the scheduler and the pool hold, also inside an open step."""
        with self._stepper.reading():
            return self._stepper.engine.snapshot()

    def check(self) -> list[Violation]:
        """Check every invariant now; return all violations, including those found in earlier steps."""
        with self._stepper.reading():
            snapshot = self._stepper.engine.snapshot()
            if self._watch is not None:
                return gravest_first(self._watch.check(snapshot))
            policy = self._parts.merge_policy
            contents = [] if issubclass(policy, LateMergeComparingPrefixes) else judge_contents(snapshot)
            return gravest_first([*check_invariants(snapshot, merges=issubclass(policy, LateMerge)), *contents])

    @property
    def violations(self) -> list[Violation]:
        """Violations found so far: the gravest first, then by age."""
        return [] if self._watch is None else gravest_first(self._watch.violations)

    @property
    def overrides(self) -> Overrides:
        """The effect of each override, as Watch.overrides; empty without checks."""
        return {} if self._watch is None else self._watch.overrides

    def kv(self, block_id: int, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return K and V of one block in one layer, each [block_size, kv_heads, head_dim]."""
        self._stepper.refuse_if_closed()
        checked_int("block_id", block_id), checked_int("layer", layer)
        num_blocks = self._model.config.num_blocks
        if not 0 <= block_id < num_blocks:
            raise IndexError(f"no block {block_id}: the pool has blocks 0 to {num_blocks - 1}")
        return self._model.kv(block_id, layer)

    def stats(self) -> LabStats:
        """Return hit rate, speed, time to first token and occupancy."""
        return self._stats.figures(self._stepper)

    @property
    def title(self) -> str:
        """Model, edition and pool in one line."""
        config = self._model.config
        return f"{self._model.name}{self._edition} · {config.num_blocks} {self._block_sizes()}"

    @property
    def _edition(self) -> str:
        return f" · edition {self._parts.name}" if self._model.has_edition else ""

    def status(self) -> dict[str, str]:
        """Return what is running: model, device, dtype, attention backend and why, edition, pool."""
        engine, config = self._stepper.engine, self._model.config
        return {
            **self._model.describe(),
            **({"edition": self._parts.name} if self._model.has_edition else {}),
            "pool": f"{engine.num_used_blocks} of {config.num_blocks} {self._block_sizes(' tokens')} in use",
            "requests": self._request_counts(),
            **({} if self._external is None else {"external": self._external.describe()}),
            **({"overrides": override_line(overrides)} if (overrides := self.overrides) else {}),
            "violations": self._violation_count(),
            "scheduling": scheduling_line(engine, self._scheduling),
            "state": "closed" if self._stepper.is_closed else "running" if self._runs.is_running else "paused",
        }

    def _violation_count(self) -> str:
        """Return 'none', or the number of violations and the broken rules."""
        if self._watch is None:
            return "not checked (check=False)"
        found = self.violations
        rules = ", ".join(dict.fromkeys(violation.rule for violation in found))
        return f"{len(found):,} ({rules})" if found else "none"

    def _request_counts(self) -> str:
        engine, keep = self._stepper.engine, self._model.config.keep_finished
        kept = "all" if keep is None else f"the newest {keep:,}"
        forgotten = engine.num_added - len(engine.requests)
        return f"{engine.num_added:,} added, {forgotten:,} forgotten; {kept} finished ones are kept (keep_finished)"

    def _block_sizes(self, unit: str = "") -> str:
        """Return 'blocks of 16', and the number of groups if there are several."""
        specs = self._model.config.groups
        sizes = sorted({group.block_size for group in specs})
        groups = f" in {len(specs)} groups" if len(specs) > 1 else ""
        return f"blocks of {' and '.join(map(str, sizes))}{unit}{groups}"
