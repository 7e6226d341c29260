"""labengine for worker.py: without listeners; with "watched", recorded and judged in every step like a default lab."""

from __future__ import annotations

from typing import Any

from labengine import Lab
from labengine.events import PrefixHit

BLOCK_SIZE = 16


class Engine:
    """A lab on token ids, with the prefix cache on as always."""

    def __init__(self, options: dict[str, Any]) -> None:
        is_watched = options["engine"] == "watched"
        self._lab = Lab(
            options["model"],
            dtype=options["dtype"],
            num_blocks=options["pool_tokens"] // BLOCK_SIZE,
            block_size=BLOCK_SIZE,
            max_num_seqs=options["max_batch"],
            record=is_watched,
            check=is_watched,
        )
        self.name = "labengine, recorded and checked" if is_watched else "labengine"
        self.about = {key: value for key, value in self._lab.status().items() if key not in ("pool", "state")}
        self.num_cached_tokens = 0
        self._lab.hooks.subscribe(self._note_hit, PrefixHit)

    def generate(self, prompts: list[list[int]], num_tokens: int) -> list[list[int]]:
        """Return the greedy outputs, to the last token."""
        self.num_cached_tokens = 0
        outputs = self._lab.generate(prompts, max_tokens=num_tokens, ignore_eos=True)
        return [list(output.token_ids) for output in outputs]

    def _note_hit(self, event: PrefixHit) -> None:
        self.num_cached_tokens += event.num_tokens
