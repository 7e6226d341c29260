"""Replay of single operations on the KV-cache manager, to compare it with vLLM's operation by operation.

A workload is {num_blocks, block_size, groups?, retention_interval?, ops: [{op: add|lookup|allocate|append|free|preempt|
reset|evict|step, req?, ...}]}; see docs/contract.md. All operations are checked before the first is executed.
The scheduler is not involved.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from typing import Any

from labengine.config import (
    ConfigError,
    EngineConfig,
    SamplingParams,
    checked_bool,
    checked_int,
    checked_text,
    checked_token_ids,
)
from labengine.core.collaborator import Absent
from labengine.core.editions import edition as edition_named
from labengine.core.journal import Journal
from labengine.core.parts import Parts
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.engine.request_options import salt_of, salted
from labengine.engine.workload import check_keys, eagle_groups, group_specs, rows
from labengine.record.hooks import Hooks

Operation = Mapping[str, Any]  # of a JSON file

_FIELDS: dict[str, tuple[set[str], set[str]]] = {
    "add": ({"req", "tokens"}, {"salt"}),
    "append": ({"req", "tokens"}, set()),
    "lookup": ({"req"}, set()),
    "allocate": ({"req"}, {"n", "lookup", "external", "delay_cache", "lookahead"}),
    "free": ({"req"}, set()),
    "preempt": ({"req"}, set()),
    "reset": (set(), set()),
    "evict": ({"blocks"}, set()),
    "step": (set(), set()),
}
"""Required and optional fields of each operation."""

_CHECKS: dict[str, Callable[[str, Any], object]] = {
    **dict.fromkeys(("req", "salt"), checked_text),
    **dict.fromkeys(("n", "external", "lookahead"), partial(checked_int, minimum=0)),
    **dict.fromkeys(("lookup", "delay_cache"), checked_bool),
    "tokens": lambda _, tokens: checked_token_ids(tokens),
}
"""The check of each field's value; None stands for an omitted field."""

_WORKLOAD_FIELDS = {"num_blocks", "block_size", "ops"}
_MORE_WORKLOAD_FIELDS = {"groups", "retention_interval", "enable_caching", "eagle", "max_model_len", "seed", "kind"}


def checked_operations(workload: Any) -> list[Operation]:
    """Return the workload's operations.

    Raises ConfigError for missing or unknown fields, wrong types and unknown requests.
    """
    check_keys("the workload", workload, _WORKLOAD_FIELDS, _MORE_WORKLOAD_FIELDS)
    operations, known = rows("ops", workload["ops"]), set[str]()
    for number, op in enumerate(operations):
        _check(f"op {number}", op, known, workload["num_blocks"])
    return list(operations)


def _check(what: str, op: Any, known: set[str], num_blocks: int) -> None:
    """Raise ConfigError for a wrong operation; update the known requests."""
    kind = op.get("op") if isinstance(op, Mapping) else None
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise ConfigError(f"{what} must have an 'op', one of {', '.join(_FIELDS)}, got {op!r}")
    required, optional = _FIELDS[kind]
    check_keys(f"{what} ({kind})", op, {"op", *required}, optional)
    for field in op.keys() & _CHECKS.keys():
        if op[field] is not None or field in required:
            _CHECKS[field](f"{what}: {field}", op[field])
    for block_id in rows(f"{what}: blocks", op.get("blocks", [])):
        checked_int(f"{what}: a block", block_id, 0, num_blocks - 1)
    if "req" in required:
        _check_request(what, kind, op, known)


def _check_request(what: str, kind: str, op: Operation, known: set[str]) -> None:
    name = op["req"]
    if (kind == "add") == (name in known):
        names = ", ".join(sorted(known)) or "none"
        raise ConfigError(f"{what}: add needs a new request, other operations an existing one ({names}), got {name!r}")
    if kind == "add" and not op["tokens"]:
        raise ConfigError(f"{what}: tokens must contain at least one token")
    known ^= {name} if kind in ("add", "free") else set()


Row = dict[str, Any]  # for a JSON file

_MANY_TOKENS = 1_000_000
"""Unlimited, as operations have no steps: a window group may need as much room as the whole prompt."""


def replay(workload: Mapping[str, Any], edition: str | Parts = "vllm") -> Row:
    """Run every operation; return {"engine", "results": one row per operation, each with the state after it}.

    Raises ConfigError unless the edition allocates chunk by chunk, and for EAGLE or look-ahead slots with an edition
    other than vllm.
    """
    parts = edition if isinstance(edition, Parts) else edition_named(edition)
    if parts.prefix_tree is not Absent:
        raise ConfigError(f"edition {parts.name} has a prefix tree: replay needs one with a prefix map")
    if parts.scheduler.reserves_whole_prompts:
        raise ConfigError(f"edition {parts.name} allocates whole prompts: replay needs one that allocates by chunk")
    operations = checked_operations(workload)
    if eagle_groups(workload) and not workload.get("eagle"):
        raise ConfigError('groups are marked for EAGLE, but the workload does not enable it: add "eagle": true')
    looks_ahead = workload.get("eagle") or any(op.get("lookahead") for op in operations)
    if looks_ahead and not parts.kv_cache_manager.keeps_lookahead:
        raise ConfigError(f"eagle, lookahead: edition {parts.name} keeps no slots for drafts in its pool: use vllm")
    if not workload.get("enable_caching", True):
        raise ConfigError("enable_caching=false: omit it, because this engine always caches prefixes")
    replayed = Replay(workload, parts, Hooks())
    rows = [{"i": i, "op": op["op"], "req": op.get("req"), **replayed.do(op)} for i, op in enumerate(operations)]
    return {"engine": f"labengine, edition {parts.name}", "results": rows}


class Replay:
    """A manager without a scheduler: requests by name, one method per operation."""

    def __init__(self, workload: Mapping[str, Any], parts: Parts, hooks: Hooks) -> None:
        config = EngineConfig(
            num_blocks=workload["num_blocks"],
            groups=group_specs(workload),
            max_num_batched_tokens=_MANY_TOKENS,
            hash_block_size=workload["block_size"],
            retention_interval=workload.get("retention_interval"),
            num_drafts=1 if workload.get("eagle") else 0,
            drafter="eagle" if workload.get("eagle") else "lookup",
            eagle_groups=eagle_groups(workload),
            max_model_len=workload.get("max_model_len") or 0,
        )
        self.config = config
        self.manager = parts.assemble(config, hooks, Journal()).manager
        self.requests: dict[str, Request] = {}
        self._ids = count()
        self._labels: dict[bytes, str] = {}

    def do(self, op: Mapping[str, Any]) -> Row:
        """Execute a checked operation; return its result and the state after it."""
        operation: Callable[[Any], Row] = getattr(self, f"_{op['op']}")
        return {**operation(op), "state": self.state()}

    # -- operations ----------------------------------------------------------------------------------------------------

    def _add(self, op: Mapping[str, Any]) -> Row:
        extra_keys = salted((), op.get("salt"))
        sampling = SamplingParams(max_tokens=10_000)
        request = Request(next(self._ids), list(op["tokens"]), sampling, 0, len(self.config.groups), extra_keys)
        self.requests[op["req"]] = request
        self._learn(request)
        return {}

    def _append(self, op: Mapping[str, Any]) -> Row:
        request = self.requests[op["req"]]
        request.token_ids.extend(op["tokens"])
        self._learn(request)
        return {}

    def _lookup(self, op: Mapping[str, Any]) -> Row:
        hit = self.manager.find_prefix(self.requests[op["req"]])
        blocks = [list(ids) for ids in hit.block_ids] if any(hit.block_ids) else [[] for _ in self.config.groups]
        return {"hit": hit.num_tokens, "hit_blocks": blocks, "shared_prefix_boundary": hit.shared_prefix_boundary}

    def _allocate(self, op: Mapping[str, Any]) -> Row:
        if self.manager.keeps_lookahead:
            self.manager.num_lookahead = op.get("lookahead") or 0
        request = self.requests[op["req"]]
        if op.get("lookup") and request.has_blocks:
            raise ConfigError(f"lookup: request {op['req']} already holds blocks")
        hit = self.manager.find_prefix(request) if op.get("lookup") else None
        num_local = request.num_computed_tokens + (hit.num_tokens if hit else 0)
        external = self._external(request, num_local, op.get("external") or 0)
        remaining = request.num_tokens - num_local - external
        num_new = remaining if op.get("n") is None else min(op["n"], remaining)
        row: Row = {"hit": hit.num_tokens if hit else 0, "external": external, "n": num_new}
        if num_new <= 0:
            return {**row, "ok": False, "why": "nothing to compute"}
        return {**row, **self._blocks_for(request, hit, external, num_new, is_late=op.get("delay_cache", False))}

    def _external(self, request: Request, num_local: int, wanted: int) -> int:
        """Return the external tokens: a multiple of the common block size that leaves at least one token to compute."""
        external = max(0, min(wanted, request.num_tokens - 1 - num_local))
        return external - external % self.config.scheduler_block_size

    def _blocks_for(self, request: Request, hit: Hit | None, external: int, num_new: int, *, is_late: bool) -> Row:
        before = [len(table) for table in request.block_tables]
        end = request.num_computed_tokens + (hit.num_tokens if hit else 0) + external + num_new
        if request.has_blocks:
            is_done = self.manager.allocate(request, end)
        else:
            request.is_loading = is_late
            nothing = Hit(0, tuple(() for _ in self.config.groups))
            if hit is not None:
                self.manager.note_shared_prefix(request, hit)
            is_done = self.manager.admit(request, hit or nothing, end, external)
        if not is_done:
            return {"ok": False, "new_blocks": None}
        request.is_loading = False
        request.num_computed_tokens = end
        self.manager.take_copies()  # copied at once, as nothing is computed here
        return {"ok": True, "new_blocks": self._new_blocks(request, hit, end - num_new, before)}

    def _new_blocks(self, request: Request, hit: Hit | None, num_computed: int, before: list[int]) -> list[list[int]]:
        """Return the table entries for tokens to compute, without those of a hit or of external tokens."""
        had = (
            count or -(-num_computed // group.block_size)
            for count, group in zip(before, self.manager.groups, strict=True)
        )
        return [table[count:] for count, table in zip(had, request.block_tables, strict=True)]

    def _free(self, op: Mapping[str, Any]) -> Row:
        self.manager.free(self.requests.pop(op["req"]), "finished")
        return {}

    def _preempt(self, op: Mapping[str, Any]) -> Row:
        request = self.requests[op["req"]]
        self.manager.free(request, "preempted")
        request.num_computed_tokens = 0
        return {}

    def _reset(self, op: Mapping[str, Any]) -> Row:
        return {"ok": self.manager.reset_prefix_cache()}

    def _evict(self, op: Mapping[str, Any]) -> Row:
        self.manager.pool.evict_cached(op["blocks"], "distrusted")
        return {}

    def _step(self, op: Mapping[str, Any]) -> Row:
        self.manager.begin_step()
        return {}

    # -- the state -----------------------------------------------------------------------------------------------------

    def state(self) -> Row:
        """Return tables, counts, queue and map; block hashes as labels that are independent of the hash function."""
        pool = self.manager.pool
        return {
            "tables": {name: [list(table) for table in r.block_tables] for name, r in self.requests.items()},
            "num_computed": {name: request.num_computed_tokens for name, request in self.requests.items()},
            "num_cached_blocks": {name: list(r.num_registered_blocks) for name, r in self.requests.items()},
            "ref_cnt": [block.ref_count for block in pool.blocks],
            "free_queue": list(pool.free_queue),
            "cached": {f"g{group}:{self._labels[h]}": list(ids) for (group, h), ids in pool.prefix_map.items()},
        }

    def _learn(self, request: Request) -> None:
        """Label the request's block hashes by the prefix's length and a digest of salt and tokens."""
        self.manager.extend_hashes(request, request.num_tokens)
        salt = salt_of(request.extra_keys) or ""
        for number, block_hash in enumerate(request.block_hashes, 1):
            if block_hash not in self._labels:
                tokens = request.token_ids[: number * self.config.hash_block_size]
                digest = hashlib.sha1(f"{salt}|{','.join(map(str, tokens))}".encode()).hexdigest()[:12]
                self._labels[block_hash] = f"{len(tokens)}:{digest}"
