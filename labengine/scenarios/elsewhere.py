"""KV that another engine has computed, to be put into a lab's external tier."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from labengine.config import GroupSpec
from labengine.core.connector import BlockKV, BlockTransfer, Connector, KVAccess
from labengine.lab import Lab


class Outbox(Connector):
    """Keeps the blocks that an engine saves, each once, to pass them to a tier. Nothing is ever loaded from it."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[BlockTransfer] = []
        self._contents: dict[tuple[int, int], BlockKV | None] = {}

    def deliver(self, tier: Connector) -> None:
        """Have a tier save all kept blocks."""
        tier.save_kv(self.sent, self)

    def has(self, group: int, block_hash: bytes) -> bool:
        """Return False: nothing can be loaded."""
        return False

    def start_load_kv(self, loads: Sequence[BlockTransfer], kv: KVAccess) -> None:
        """Raise NotImplementedError: no content matches, so it is never called."""
        raise NotImplementedError("an outbox gives nothing back to its engine")

    def save_kv(self, saves: Sequence[BlockTransfer], kv: KVAccess) -> tuple[BlockTransfer, ...]:
        """Keep these blocks."""
        for transfer in saves:
            self._contents[transfer.group, transfer.block_id] = kv.read_block(transfer.group, transfer.block_id)
        self.sent += saves
        return tuple(saves)

    def forget(self, transfers: Sequence[BlockTransfer]) -> None:
        """Do nothing: no content was promised."""

    def describe(self) -> str:
        """Return the number of blocks to deliver."""
        return f"outbox: {len(self.sent)} blocks to deliver"

    # Its KVAccess side: a tier reads blocks from it.

    def read_block(self, group: int, block_id: int) -> BlockKV | None:
        """Return the engine's content of that block."""
        return self._contents[group, block_id]

    def write_block(self, group: int, block_id: int, kv: BlockKV | None) -> None:
        """Raise NotImplementedError: tiers write only blocks that they load."""
        raise NotImplementedError("an outbox is not written to")


@lru_cache(maxsize=8)
def computed_elsewhere(model: str, groups: tuple[GroupSpec, ...], token_ids: tuple[int, ...]) -> Outbox:
    """Return the KV of a prompt's full blocks, computed by an engine of its own and cached."""
    outbox, size = Outbox(), groups[0].block_size
    num_blocks = 1 + len(groups) * -(-(len(token_ids) + 1) // size)
    with Lab(
        model,
        num_blocks=num_blocks,
        block_size=size,
        groups=groups if model == "simulated" else None,
        edition="vllm",
        external=outbox,
        max_num_batched_tokens=len(token_ids),
        record=False,
    ) as engine:
        engine.generate([token_ids], max_tokens=1)
    return outbox


def fill_tier(lab: Lab, token_ids: Sequence[int]) -> None:
    """Put the KV of a prompt's full blocks into the lab's tier, as if another engine had computed and saved it."""
    assert lab.external is not None
    computed_elsewhere(str(lab.model), lab.config.groups, tuple(token_ids)).deliver(lab.external)
