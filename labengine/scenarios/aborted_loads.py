"""Aborts while the external tier loads: a scheduler that waits for the transfer."""

from __future__ import annotations

from labengine.core.request import Request
from labengine.core.token_budget import TokenBudgetScheduler


class FreesAfterLoadScheduler(TokenBudgetScheduler):
    """Frees the blocks of a request that was aborted during its load when the load is over. Source: vLLM PR 32255."""

    def abort(self, request: Request) -> None:
        """End a request; one that loads keeps its blocks, and is ended by `take_arrived`."""
        if request in self.external.loading:
            self._set(request, "finish_reason", "abort")
        else:
            super().abort(request)

    def take_arrived(self) -> None:
        """End the aborted requests whose loads are over, then queue the others."""
        for request in [request for request in self.external.loading if request.finish_reason == "abort"]:
            if request.request_id in self.external.arrived:
                super().abort(request)
        super().take_arrived()
