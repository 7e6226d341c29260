"""The objects of one vLLM scheduler that a tap observes, and the versions whose methods it knows."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

KNOWN_VERSIONS = ("0.30", "0.31", "0.32")
"""Releases of vLLM with which the tap was compared with vLLM's own state."""

METHODS: dict[str, dict[str, str]] = {
    "scheduler": {
        "schedule": "",
        "update_from_output": "scheduler_output model_runner_output",
        "update_draft_token_ids": "draft_token_ids",
        "add_request": "request",
        "finish_requests": "request_ids finished_status",
        "reset_prefix_cache": "",
        "shutdown": "",
        "_preempt_request": "request timestamp",
        "_free_request": "request",
        "_free_blocks": "request",
        "_update_request_with_output": "request new_token_ids",
        "_update_from_kv_xfer_finished": "kv_connector_output",
        "_update_waiting_for_remote_kv": "request",
        "_handle_failed_recving": "failed_req_ids",
        "_handle_invalid_blocks": "invalid_block_ids num_scheduled_tokens",
    },
    "manager": {"allocate_slots": "request num_new_tokens num_new_computed_tokens new_computed_blocks"},
    "pool": {
        "free_blocks": "ordered_blocks",
        "touch": "blocks",
        "unpin_blocks": "blocks",
        "cache_full_blocks": "request blocks",
        "cache_partial_block": "request block",
        "evict_blocks": "block_ids",
        "reset_prefix_cache": "",
        "move_block_hashes": "src_block dst_block",
        "_insert_block_hash": "block_hash_with_group_id block num_tokens",
        "_remove_cached_block_hashes": "block",
    },
    "queue": {"prepend_n": "blocks", "append_n": "blocks"},
    "group": {
        "add_local_computed_blocks": "request_id new_computed_blocks",
        "allocate_external_computed_blocks": "request_id",
        "allocate_new_blocks": "request_id num_tokens",
        "free": "request_id",
        "pop_blocks_for_free": "request_id",
        "_remove_blocks_in_range": "request_id first_block last_block",
        "_apply_cow": "request_id block_idx source_block cow_block",
    },
    "state": {"remove_skipped_blocks": "request_id processed_computed_tokens"},
}
"""The observed methods of each object, with their first parameters; "state" lists further ones of state groups."""

GROUP_KINDS = {"FullAttentionManager": "full", "SlidingWindowManager": "sliding_window", "MambaManager": "state"}
"""Classes of KV-cache groups whose changes the events can express."""


class UnknownEngineError(Exception):
    """Raised for a vLLM that cannot be tapped; the message names the unknown parts and the supported versions."""


@dataclass(frozen=True)
class Engine:
    """A scheduler, its KV-cache manager, the block pool and its free queue, and the KV-cache groups."""

    scheduler: Any
    manager: Any
    pool: Any
    queue: Any
    groups: tuple[Any, ...]

    @classmethod
    def of(cls, scheduler: Any) -> Engine:
        """Return the objects of a scheduler. Raises UnknownEngineError if one of them is missing or unknown."""
        try:
            manager = scheduler.kv_cache_manager
            pool = manager.block_pool
            groups = tuple(manager.coordinator.single_type_managers)
            engine = cls(scheduler, manager, pool, pool.free_block_queue, groups)
        except AttributeError as error:
            raise UnknownEngineError(f"{error}; {_known()}") from None
        if unknown := [*engine._unknown_methods(), *engine._unknown_groups()]:
            raise UnknownEngineError(f"its {', '.join(unknown)}; {_known()}")
        return engine

    def objects(self) -> Iterator[tuple[str, Any]]:
        """Yield (role, object) for each object; the groups in their order."""
        yield from (("scheduler", self.scheduler), ("manager", self.manager), ("pool", self.pool))
        yield "queue", self.queue
        yield from (("group", group) for group in self.groups)
        yield from (("state", group) for group in self.groups if _kind(group) == "state")

    @property
    def is_async(self) -> bool:
        """True if each step is scheduled before the previous step's tokens are known."""
        return any(base.__name__ == "AsyncScheduler" for base in type(self.scheduler).__mro__)

    @property
    def is_prioritized(self) -> bool:
        """True if waiting requests are ordered by priority."""
        return str(getattr(getattr(self.scheduler, "scheduler_config", None), "policy", "fcfs")) == "priority"

    def may_pin(self) -> bool:
        """Return False if no block can have a reference outside tables."""
        scheduler = self.scheduler
        copies = any(getattr(group, "_pending_cow_copies", ()) for group in self.groups)
        has_connector = getattr(scheduler, "connector", None) is not None
        return has_connector or copies or bool(getattr(scheduler, "deferred_frees", ()))

    def group_rows(self) -> list[tuple[str, int, int | None]]:
        """Return (kind, block_size, window) per group, as EngineStarted has them."""
        rows = []
        for group in self.groups:
            kind = _kind(group)
            window = group.kv_cache_spec.sliding_window if kind == "sliding_window" else None
            rows.append((kind or type(group).__name__, group.block_size, window))
        return rows

    def _unknown_methods(self) -> Iterator[str]:
        found = set()
        for role, target in self.objects():
            for name, wanted in METHODS[role].items():
                if (text := _difference(target, name, wanted.split())) and text not in found:
                    found.add(text)
                    yield text

    def _unknown_groups(self) -> Iterator[str]:
        yield from (f"KV-cache group {type(group).__name__}" for group in self.groups if _kind(group) is None)


def _known() -> str:
    return f"the tap supports vLLM {', '.join(KNOWN_VERSIONS)}"


def _kind(group: Any) -> str | None:
    """Return the kind of a group; None for a class outside the table (a subclass may behave differently)."""
    return GROUP_KINDS.get(type(group).__name__)


def _difference(target: Any, name: str, wanted: list[str]) -> str | None:
    method = getattr(target, name, None)
    if method is None:
        return difference(type(target).__name__, name, None, wanted)
    parameters = inspect.signature(method).parameters.values()
    found = [one.name for one in takewhile(lambda one: one.kind is not one.VAR_POSITIONAL, parameters)]
    if len(found) < len(parameters):  # a wrapper passes its *args on
        found += wanted[len(found) :]
    return difference(type(target).__name__, name, found, wanted)


def difference(owner: str, name: str, found: list[str] | None, wanted: list[str]) -> str | None:
    """Return the reason that a method cannot be observed; None if its parameters begin as wanted.

    found: the method's parameters; None if the method is missing.
    """
    if found is None:
        return f"{owner} has no {name}"
    if found[: len(wanted)] != wanted:
        return f"{owner}.{name} takes ({', '.join(found)}), not ({', '.join(wanted)}, ...)"
    return None
