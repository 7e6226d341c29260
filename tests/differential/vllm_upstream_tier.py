"""An external tier for vLLM's Scheduler: a workload says what it holds. Runs where vLLM is installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.request import Request


class UpstreamTier:
    """The scheduler's half of a connector, and when its loads land.

    spec: {delay: steps that a load takes, 0 for none; tokens: {request: tokens of its prompt that the tier holds};
    again: {request: times that it answers "ask again" first}}.
    """

    supports_divergent_local_hybrid_hits = False
    requires_kv_delivery = False

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self._delay: int = spec["delay"]
        self._tokens: dict[str, int] = spec["tokens"]
        self._again: dict[str, int] = dict(spec["again"])
        self._under_way: dict[str, int] = {}

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> tuple[int | None, bool]:
        """Tokens behind the local hit; None to be asked again."""
        name = request.request_id
        if self._again.get(name, 0):
            self._again[name] -= 1
            return None, False
        num_tokens = max(0, self._tokens.get(name, 0) - num_computed_tokens)
        return num_tokens, bool(num_tokens and self._delay)

    def update_state_after_alloc(self, request: Request, blocks: Any, num_external_tokens: int) -> None:
        """Begin a late load."""
        if num_external_tokens and self._delay:
            self._under_way[request.request_id] = self._delay

    def landed(self) -> KVConnectorOutput:
        """The loads that land in this step: one that takes a step lands in the step that begins it."""
        self._under_way = {name: steps - 1 for name, steps in self._under_way.items()}
        arrived = {name for name, steps in self._under_way.items() if not steps}
        for name in arrived:
            del self._under_way[name]
        return KVConnectorOutput(finished_recving=arrived)

    def build_connector_meta(self, plan: Any) -> None:
        """Nothing to tell a worker."""

    def request_finished(self, request: Request, block_ids: Any) -> tuple[bool, None]:
        """Nothing is sent: the blocks may go."""
        return False, None

    request_finished_all_groups = request_finished

    def __getattr__(self, name: str) -> Any:
        """All else that the scheduler calls does nothing, and says nothing."""
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **keywords: () if name in ("take_events", "get_loaded_kv_cache_group_ids") else None
