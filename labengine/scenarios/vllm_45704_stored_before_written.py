"""vLLM issue 45704, fixed by pull request 46278: a store copies a block before the step has written it.

vLLM's SimpleCPUOffloadConnector stores a block once its tokens count as computed, which is the host's bookkeeping. Up
to 0.23.0 the copy ran on a separate stream, and no event ordered it after the step's kernels: if the host is ahead of
the device, the copy reads the block's old content. The tier keeps those bytes under the right hash for every later hit.
On a device this is a race; here every copy comes first, and labengine's host tier stores the blocks.
"""

from __future__ import annotations

from labengine.engine.external.host import HostStore
from labengine.scenarios.scenario import Column
from labengine.scenarios.tiny_model import LoadsStoredBlocks


class StoredBeforeWritten(LoadsStoredBlocks):
    """A prompt is computed and stored; the pool forgets it; a longer prompt loads the stored blocks."""

    columns = (Column("vllm", runner="StoresBeforeTheWrite", tier=HostStore), Column("vllm", tier=HostStore))
