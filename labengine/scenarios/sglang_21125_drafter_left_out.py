"""SGLang pull request 21125: the host tier keeps the model's KV, but not the drafter's.

Model and drafter share the table from positions to slots, but each has its own pool. Loads from the tier fill only the
model's pool. The drafter attends to old content of its slots, so its guesses get worse, without an error. In this lab
the drafter's KV is a second group of blocks, so that the checks can follow it.
"""

from __future__ import annotations

from collections.abc import Sequence

from labengine.core.connector import BlockTransfer, KVAccess, LocalHit
from labengine.core.kv_cache_group import KVCacheGroup
from labengine.core.request import Request
from labengine.engine.external.host import HostStore
from labengine.events import ExternalHit
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_computed_tokens, num_misread_blocks
from labengine.scenarios.scenario import Column, Scenario


class KeepsTheModelsKV(HostStore):
    """Keeps the blocks of group 0, the model's."""

    def save_kv(self, saves: Sequence[BlockTransfer], kv: KVAccess) -> tuple[BlockTransfer, ...]:
        """Keep the model's blocks."""
        return super().save_kv([save for save in saves if save.group == 0], kv)


class OffersForBoth(KeepsTheModelsKV):
    """Offers tokens if it has their KV for the model, regardless of the drafter's."""

    def get_num_new_matched_tokens(
        self, request: Request, num_computed_tokens: int, groups: Sequence[KVCacheGroup], alignment: int
    ) -> int:
        """Return the number of tokens stored for the model."""
        return super().get_num_new_matched_tokens(request, num_computed_tokens, groups[:1], alignment)

    def update_state_after_alloc(
        self, request: Request, transfers: Sequence[BlockTransfer], hits: Sequence[LocalHit] = ()
    ) -> Sequence[BlockTransfer]:
        """Load the model's blocks."""
        return super().update_state_after_alloc(request, [one for one in transfers if one.group == 0], hits)


class DrafterLeftOut(Scenario):
    """A prompt is computed, then the pool forgets it, and the tier brings it back."""

    columns = (
        Column("labengine", tier=OffersForBoth),
        Column("labengine", tier=HostStore),
        Column("labengine", tier=KeepsTheModelsKV),
    )
    figures = {
        "blocks misread": num_misread_blocks,
        "tokens from the tier": lambda lab: sum(event.num_tokens for event in events_of(lab, ExternalHit)),
        "tokens computed": num_computed_tokens,
    }

    def play(self, lab: Lab) -> None:
        """Run the prompt, clear the pool's cache, and run the prompt again."""
        for _ in range(2):
            lab.reset_prefix_cache()
            lab.generate([range(1, 11)], max_tokens=2)
