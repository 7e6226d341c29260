"""vLLM pull request 48481 (see also 50696): fresh blocks are zeroed after a load has filled them.

For models with Mamba layers, vLLM clears fresh blocks of full attention (states are written whole): bits of another
group's dtype may be NaN, and masking by a product with 0 keeps NaN. With asynchronous scheduling the clearing is queued
behind the previous step. KV that arrives by RDMA bypasses that queue, so it can be in the block before it is cleared.
The request then attends over zeros. Here the model attends fully in all layers, labengine's host tier stands for the
transfer, and the blocks are cleared when the step begins, after the load.
"""

from __future__ import annotations

from labengine.engine.external.host import HostStore
from labengine.scenarios.scenario import Column
from labengine.scenarios.tiny_model import LoadsStoredBlocks


class ZeroedAfterLoad(LoadsStoredBlocks):
    """A prompt is computed and saved; the pool forgets it; a longer prompt loads it."""

    columns = (
        Column("vllm", runner="ZeroesNewBlocks", tier=HostStore),
        Column("vllm", runner="SkipsLoadedBlocks", tier=HostStore),
    )
