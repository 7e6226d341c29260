"""Decodes a batch of vLLM or SGLang: untrusted msgpack, with events as maps or as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256
from itertools import zip_longest
from typing import Any

from labengine.system.extras import require_extra
from labengine.vllm.cache_events.schema import (
    Batch,
    BlockHash,
    BlocksRemoved,
    BlocksStored,
    BlockTier,
    CacheCleared,
    KVEvent,
    UnknownEvent,
)

STORED_FIELDS = (
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "group_idx",
    "kv_cache_spec_kind",
    "kv_cache_spec_sliding_window",
)
"""The order of fields in an array. SGLang's ends at the medium, or at a map with the salt after it."""

REMOVED_FIELDS = ("block_hashes", "medium", "group_idx")
MAX_HASH_BYTES = 128
MAX_TEXT = 400


class Decoder:
    """Decodes payloads into batches. Raises ConfigError without the package msgspec."""

    def __init__(self) -> None:
        require_extra("events", "reading KV events", "msgspec")
        from msgspec import MsgspecError, msgpack

        self._decode, self._error = msgpack.decode, MsgspecError

    def batch(self, payload: bytes) -> Batch:
        """Return the batch. Raises ValueError, with the reason, for bytes that are not a batch."""
        try:
            return _batch(self._decode(payload))
        except self._error as error:
            raise ValueError(f"it must be msgpack ({error})") from None
        except RecursionError:
            raise ValueError("it is nested too deeply") from None


def _batch(document: Any) -> Batch:
    if not isinstance(document, list) or len(document) < 2 or not isinstance(document[1], list):
        raise ValueError("it must be [time, events, rank]")
    at, events = document[:2]
    if isinstance(at, bool) or not isinstance(at, int | float) or not 0 <= at < 1e12:
        raise ValueError("its time must be a number of seconds")
    rank = _integer(document[2], "the rank") if len(document) > 2 and document[2] is not None else None
    return Batch(float(at), tuple(map(_event, events)), rank)


def _event(raw: Any) -> KVEvent:
    kind, fields = _named(raw)
    match kind:
        case "BlockStored":
            return _stored(fields)
        case "BlockRemoved":
            return BlocksRemoved(_hashes(fields), _tier(fields), _optional(_integer, fields, "group_idx"))
        case "AllBlocksCleared":
            return CacheCleared()
    return UnknownEvent(kind)


def _named(raw: Any) -> tuple[str, Mapping[Any, Any]]:
    """Return an event's kind, and its fields by name."""
    if isinstance(raw, dict):
        return _text(raw.get("type"), "an event's type"), raw
    if not isinstance(raw, list) or not raw:
        raise ValueError("an event must be a map or an array")
    kind, *values = raw
    names: Sequence[str] = {"BlockStored": STORED_FIELDS, "BlockRemoved": REMOVED_FIELDS}.get(str(kind), ())
    fields = {name: value for name, value in zip_longest(names, values) if name is not None}
    if isinstance(fields.get("lora_name"), dict):  # SGLang's metadata
        fields.update({**fields["lora_name"], "lora_name": None})
    return _text(kind, "an event's type"), fields


def _stored(fields: Mapping[Any, Any]) -> BlocksStored:
    hashes, adapter = _hashes(fields), _adapter(fields)
    parent = fields.get("parent_block_hash")
    return BlocksStored(
        hashes,
        None if parent is None else _hash(parent),
        _tokens(fields.get("token_ids")),
        _integer(fields.get("block_size"), "block_size"),
        _tier(fields),
        _optional(_integer, fields, "group_idx"),
        _optional(_text, fields, "kv_cache_spec_kind"),
        adapter,
        _keys(fields, adapter, len(hashes)),
    )


def _hashes(fields: Mapping[Any, Any]) -> tuple[BlockHash, ...]:
    values = fields.get("block_hashes")
    if not isinstance(values, list):
        raise ValueError("block_hashes must be an array")
    return tuple(map(_hash, values))


def _hash(value: Any) -> BlockHash:
    if type(value) is int or (isinstance(value, bytes) and 0 < len(value) <= MAX_HASH_BYTES):
        hashed: BlockHash = value
        return hashed
    raise ValueError(f"a block's hash must be a number or at most {MAX_HASH_BYTES} bytes")


def _tokens(values: Any) -> tuple[int, ...]:
    """Return token ids: of SGLang's pairs (token, next token), the first of each."""
    if not isinstance(values, list):
        raise ValueError("token_ids must be an array")
    tokens = [value[0] if isinstance(value, list) and len(value) == 2 else value for value in values]
    if not set(map(type, tokens)) <= {int}:
        raise ValueError("token_ids must contain only numbers")
    return tuple(tokens)


def _tier(fields: Mapping[Any, Any]) -> BlockTier:
    return BlockTier(*(_optional(_text, fields, name) for name in ("medium", "locality", "ownership")))


def _adapter(fields: Mapping[Any, Any]) -> str | None:
    """Return the LoRA adapter's name, or its number if the engine sends no name."""
    name = _optional(_text, fields, "lora_name")
    number = _optional(_integer, fields, "lora_id")
    return name if name is not None or number is None else f"adapter {number}"


def _keys(fields: Mapping[Any, Any], adapter: str | None, num_blocks: int) -> tuple[str, ...]:
    """Return digests of all keys but the adapter, because a salt is a secret that keeps tenants apart."""
    salt, listed = fields.get("cache_salt"), fields.get("extra_keys")
    if listed is not None and not isinstance(listed, list):
        raise ValueError("extra_keys must be an array")
    if salt is None and listed is None:
        return ()
    per_block = listed if listed is not None and len(listed) == num_blocks else [listed] * num_blocks
    return tuple(map(partial(_digest, salt, adapter), per_block))


def _digest(salt: Any, adapter: str | None, keys: Any) -> str:
    others = [key for key in keys if key != adapter] if isinstance(keys, list) else keys
    return sha256(repr((salt, others)).encode("utf-8", "replace")).hexdigest()[:8] if salt or others else ""


def _optional(read: Any, fields: Mapping[Any, Any], name: str) -> Any:
    value = fields.get(name)
    return None if value is None else read(value, name)


def _integer(value: Any, name: str) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError(f"{name} must be a number")
    return value


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a string")
    return value[:MAX_TEXT]
