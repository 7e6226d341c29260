"""Looking from the desk: the state, the checks, KV, figures, and words on what runs here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labengine.check.invariants import check_invariants
from labengine.config import checked_int
from labengine.core.prefix_cache import LateMerge
from labengine.engine.overlap import scheduling_line
from labengine.fold import Fold
from labengine.session.assembled import Assembled
from labengine.session.stats import LabStats
from labengine.snapshot import Snapshot
from labengine.violation import Violation

if TYPE_CHECKING:
    import torch


class Looking(Assembled):
    """What one can see of a lab, at any time, without changing it."""

    def snapshot(self) -> Snapshot:
        """Everything the scheduler and the pool hold, also inside an open step."""
        with self._stepper.turn_to_look():
            return self._stepper.engine.snapshot()

    def fold(self) -> Fold:
        """The state as a Fold, to follow from here by events."""
        return Fold.of(self.snapshot())

    def check(self) -> list[Violation]:
        """Judge every invariant now, and tell what the steps before have shown; an empty list when all is well."""
        with self._stepper.turn_to_look():
            snapshot = self._stepper.engine.snapshot()
            if self._watch is not None:
                return self._watch.check(snapshot)
            return check_invariants(snapshot, merges=issubclass(self.parts.merge_policy, LateMerge))

    @property
    def violations(self) -> list[Violation]:
        """What the checks have found so far, oldest first, each with the number of the event that made it so."""
        return [] if self._watch is None else list(self._watch.violations)

    def kv(self, block_id: int, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V of one block in one layer, each [block_size, kv_heads, head_dim]. Also inside a listener."""
        self._stepper.refuse_if_closed()
        checked_int("block_id", block_id), checked_int("layer", layer)
        if not 0 <= block_id < self.config.num_blocks:
            raise IndexError(f"block {block_id} does not exist: the pool has blocks 0 to {self.config.num_blocks - 1}")
        return self._model.kv(block_id, layer)

    @property
    def num_layers(self) -> int:
        """Layers with KV of their own; 0 for the simulated model."""
        return self._model.num_layers

    def stats(self) -> LabStats:
        """Hit rate, speed, time to first token, occupancy."""
        return self._stats.figures(self._stepper)

    def status(self) -> dict[str, str]:
        """What runs here: model, device, dtype, attention backend and why, edition, pool."""
        pool = (
            f"{self._stepper.engine.num_used_blocks} of {self.config.num_blocks} {self._block_words(' tokens')} in use"
        )
        external = {} if self.external is None else {"external": self.external.describe()}
        scheduling = scheduling_line(self._stepper.engine, self._scheduling)
        state = "closed" if self._stepper.is_closed else "running" if self._stepper.is_running else "paused"
        core: dict[str, str] = {"edition": self.parts.name, "pool": pool, "requests": self._request_words(), **external}
        core |= {"violations": self._violation_words(), "scheduling": scheduling}
        return {**self._model.describe(), **core, "state": state}

    def token_text(self, token_id: int) -> str:
        """One token as readable text."""
        return self._model.tokenizer.token_text(checked_int("token_id", token_id))

    @property
    def title(self) -> str:
        """Model, edition and pool in one line."""
        return f"{self._model.name} · edition {self.parts.name} · {self.config.num_blocks} {self._block_words()}"

    def _violation_words(self) -> str:
        """'none', or how many were found and the rules they break."""
        if self._watch is None:
            return "not looked for (check=False)"
        found = self.violations
        rules = ", ".join(dict.fromkeys(violation.rule for violation in found))
        return f"{len(found):,} ({rules})" if found else "none"

    def _request_words(self) -> str:
        """How many there were, and how many of them are kept."""
        engine, keep = self._stepper.engine, self.config.keep_finished
        kept = "all" if keep is None else f"the newest {keep:,}"
        forgotten = engine.num_added - len(engine.requests)
        return f"{engine.num_added:,} added, {forgotten:,} forgotten; of finished ones {kept} are kept (keep_finished)"

    def _block_words(self, unit: str = "") -> str:
        """'blocks of 16', and in how many groups if there are several."""
        sizes = sorted({group.block_size for group in self.config.groups})
        groups = f" in {len(self.config.groups)} groups" if len(self.config.groups) > 1 else ""
        return f"blocks of {' and '.join(map(str, sizes))}{unit}{groups}"
