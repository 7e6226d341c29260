"""mini-sglang's moments of insertion: a chunk in the middle of a prompt is not one."""

from __future__ import annotations

from labengine.core.kv_cache_manager import Moment
from labengine.core.radix.kv_cache_manager import RadixKVCacheManager
from labengine.core.request import Request


class PrefillEndManager(RadixKVCacheManager):
    """Inserts a request's blocks when its prefill ends, and when it ends itself."""

    drops_unregistered = ("preempted",)

    def num_registrable_tokens(self, request: Request, num_tokens: int, moment: Moment) -> int:
        """Return 0 also for the chunks before a prefill's last one."""
        if moment == "computed" and num_tokens != self.prefill_ends[request.request_id]:
            return 0
        return super().num_registrable_tokens(request, num_tokens, moment)
