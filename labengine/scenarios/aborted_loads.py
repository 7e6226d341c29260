"""A scheduler that waits for the transfer when a request is aborted during its load."""

from __future__ import annotations

from labengine.core.request import Request
from labengine.core.token_budget import TokenBudgetScheduler


class FreesAfterLoadScheduler(TokenBudgetScheduler):
    """Frees the blocks of a request aborted during its load only after the load. Source: vLLM PR 32255."""

    def abort(self, request: Request) -> None:
        """End a request; a loading one keeps its blocks until `take_arrived` ends it."""
        if request in self.external.loading:
            self._set(request, "finish_reason", "abort")
        else:
            super().abort(request)

    def take_arrived(self) -> None:
        """End aborted requests whose loads are complete, then queue the others."""
        for request in [request for request in self.external.loading if request.finish_reason == "abort"]:
            if request.request_id in self.external.arrived:
                super().abort(request)
        super().take_arrived()
