"""The operations of a replay as a user gives them: checked to the last before the first is done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from labengine.config import ConfigError, checked_text, checked_token_ids, is_single_int

Operation = Mapping[str, Any]

_FIELDS: dict[str, tuple[set[str], set[str]]] = {
    "add": ({"req", "tokens"}, {"salt"}),
    "append": ({"req", "tokens"}, set()),
    "lookup": ({"req"}, set()),
    "allocate": ({"req"}, {"n", "lookup", "external", "delay_cache", "lookahead"}),
    "free": ({"req"}, set()),
    "preempt": ({"req"}, set()),
    "reset": (set(), set()),
    "evict": ({"blocks"}, set()),
}
"""Per operation: the fields it must have, and those it may have."""

_WORKLOAD_FIELDS = {"num_blocks", "block_size", "ops"}
_MORE_WORKLOAD_FIELDS = {"groups", "retention_interval", "enable_caching", "eagle", "max_model_len", "seed", "kind"}


def checked_operations(workload: Any) -> list[Operation]:
    """Return the workload's operations.

    ConfigError for what is missing, unknown, of the wrong type, or about nobody.
    """
    _check_fields("the workload", workload, _WORKLOAD_FIELDS, _MORE_WORKLOAD_FIELDS)
    if not isinstance(workload["ops"], list):
        raise ConfigError(f"ops must be a list of operations, got {workload['ops']!r}")
    known: set[str] = set()
    return [_checked(f"op {number}", op, known, workload["num_blocks"]) for number, op in enumerate(workload["ops"])]


def _checked(what: str, op: Any, known: set[str], num_blocks: Any) -> Operation:
    kind = op.get("op") if isinstance(op, Mapping) else None
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise ConfigError(f"{what} is {op!r}; an operation has an 'op', one of {', '.join(_FIELDS)}")
    required, optional = _FIELDS[kind]
    _check_fields(f"{what} ({kind})", op, {"op", *required}, optional)
    if "req" in required:
        _check_request(what, kind, op["req"], known)
    if "tokens" in required:
        checked_token_ids(op["tokens"])
        if kind == "add" and not op["tokens"]:
            raise ConfigError(f"{what}: tokens is empty: a request needs at least one token")
    if op.get("salt") is not None:
        checked_text(f"{what}: salt", op["salt"])
    for field in ("n", "external", "lookahead"):
        if op.get(field) is not None and not _is_count(op[field]):
            raise ConfigError(f"{what}: {field} must be a number of tokens from 0, got {op[field]!r}")
    for field in ("lookup", "delay_cache"):
        if op.get(field) not in (None, True, False):
            raise ConfigError(f"{what}: {field} must be true or false, got {op[field]!r}")
    if kind == "evict":
        _check_blocks(what, op["blocks"], num_blocks)
    return op  # type: ignore[no-any-return]


def _check_request(what: str, kind: str, name: Any, known: set[str]) -> None:
    if not isinstance(name, str):
        raise ConfigError(f"{what}: req must be a text, got {name!r}")
    if kind == "add":
        if name in known:
            raise ConfigError(f"{what}: request {name!r} was added before; free it first, or choose another name")
        known.add(name)
    elif name not in known:
        raise ConfigError(f"{what}: there is no request {name!r}; known are {', '.join(sorted(known)) or 'none yet'}")
    elif kind == "free":
        known.discard(name)


def _check_blocks(what: str, blocks: Any, num_blocks: Any) -> None:
    if not isinstance(blocks, list) or not all(
        _is_count(i) and _is_count(num_blocks) and i < num_blocks for i in blocks
    ):
        raise ConfigError(f"{what}: blocks must be a list of ids below num_blocks={num_blocks!r}, got {blocks!r}")


def _is_count(value: object) -> bool:
    return is_single_int(value) and value >= 0  # type: ignore[operator]


def _check_fields(what: str, given: Any, required: set[str], optional: set[str]) -> None:
    if not isinstance(given, Mapping):
        raise ConfigError(f"{what} must be an object with {', '.join(sorted(required))}, got {given!r}")
    missing, unknown = required - set(given), set(given) - required - optional
    if missing:
        raise ConfigError(f"{what} lacks {', '.join(sorted(missing))}")
    if unknown:
        raise ConfigError(f"{what} has unknown fields {', '.join(sorted(map(str, unknown)))}")
