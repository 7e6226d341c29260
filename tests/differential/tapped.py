"""A tapped run of vLLM's scheduler: what the stream's reader makes of it, against vLLM's own state."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from labengine.record.files.file_access import Limits
from labengine.record.fold_state import FINISHED
from labengine.vllm.stream.reader import StreamReader

ENOUGH_EVENTS = 1_000_000
ENOUGH_SECONDS = 600.0


class TappedRun:
    """Reads a run's items in order. num_updates: updates after which the fold was compared."""

    def __init__(self) -> None:
        self.reader = StreamReader(Limits("the stream", max_seconds=ENOUGH_SECONDS), ENOUGH_EVENTS)
        self.num_updates = 0
        self.kinds: Counter[str] = Counter()

    def take(self, items: Iterable[Mapping[str, Any]]) -> str | None:
        """Return the first difference between the fold and vLLM's own state after an update; None for none."""
        for item in items:
            if "state" not in item:
                ((kind, line),) = item.items()
                self.reader.take(json.dumps({**line, "file": 1} if kind == "header" else line).encode())
                continue
            self.num_updates += 1
            if difference := self._difference(item["state"]):
                return f"after update {self.num_updates}: {difference}"
        self.kinds.update(type(event).__name__ for piece in self.reader.pieces for event in piece.timeline.events())
        return self._torn()

    def _torn(self) -> str | None:
        pieces = self.reader.pieces
        return None if len(pieces) == 1 else f"the stream has gaps: {[piece.gap for piece in pieces]}"

    def _difference(self, state: Mapping[str, Any]) -> str | None:
        fold = self.reader.pieces[-1].fold
        served = {f"{group}:{block_hash.hex()}": list(ids) for (group, block_hash), ids in fold.prefix_map.items()}
        ours = {
            "free_queue": list(fold.free_queue),
            "ref_counts": fold.ref_counts,
            "prefix_map": served,
            "contents": {block_id: list(fold.block_tokens[int(block_id)]) for block_id in state["contents"]},
            "requests": {
                self.reader.names[i]: [r.status, r.token_ids, r.num_computed_tokens, r.block_tables]
                for i, r in fold.requests.items()
                if r.status != FINISHED or i in fold.holding
            },
        }
        if "drafts" in state:
            drafts = {self.reader.names[i]: list(one.drafts) for i, one in fold.requests.items() if one.drafts}
            # after an update: guesses come between it and the next step, and a step's own are judged
            ours["drafts"] = drafts
        if "pins" in state:
            ours["pins"] = {str(block_id): fold.pins[block_id] for block_id in sorted(fold.pins)}
        wrong = [name for name, value in ours.items() if value != state[name]]
        return f"{wrong[0]}: {ours[wrong[0]]} in the fold, {state[wrong[0]]} in vLLM" if wrong else None
