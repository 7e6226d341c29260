"""Pull request 142, executed in mini-sglang's process: a request's row is repointed after its insertion.

Frees keep views of the row, so they are copied before.
"""

from __future__ import annotations

import importlib
from typing import Any

CacheManager: Any = importlib.import_module("minisgl.scheduler.cache").CacheManager

cache_req = CacheManager.cache_req


def cache_and_repoint(self: Any, req: Any, *, finished: bool) -> None:
    """Insert a request's pages, and let its row name those that the tree already had."""
    free = self._free
    self._free = lambda slots: free(slots.clone())
    cache_req(self, req, finished=finished)
    self._free = free
    handle = req.cache_handle
    if handle.cached_len and not finished:
        self.page_table[req.table_idx, : handle.cached_len] = handle.get_matched_indices()


CacheManager.cache_req = cache_and_repoint
