from __future__ import annotations

from base64 import b64decode
from random import Random
from typing import Any

import msgspec
import pytest

from differential import kv_events
from kv_batches import CLEARED, payload, removed, stored
from labengine.record.files.file_access import Limits
from labengine.vllm.cache_events.decoding import REMOVED_FIELDS, STORED_FIELDS, Decoder
from labengine.vllm.cache_events.kv_files import RecordedEvents
from labengine.vllm.cache_events.schema import BlocksRemoved, BlocksStored, BlockTier, CacheCleared, UnknownEvent

DECODER = Decoder()


def as_array(event: dict[str, Any]) -> list[Any]:
    """The form before vLLM's #42892, in which trailing defaults are left out."""
    order = {"BlockStored": STORED_FIELDS, "BlockRemoved": REMOVED_FIELDS}.get(event["type"], ())
    values = [event.get(name) for name in order]
    while values and values[-1] is None:
        values.pop()
    return [event["type"], *values]


def test_maps_and_arrays_say_the_same() -> None:
    events = [
        stored([b"a" * 32, -5], range(8), 7, lora_name="tuned", extra_keys=[["salt"], None]),
        removed([2**63 + 1], medium="CPU"),
        CLEARED,
    ]
    batch = DECODER.batch(payload(*events, at=3.5, rank=1))
    assert batch == DECODER.batch(payload(*map(as_array, events), at=3.5, rank=1))
    first, second, third = batch.events
    assert isinstance(first, BlocksStored) and first.hashes == (b"a" * 32, -5) and first.parent == 7
    assert first.adapter == "tuned" and first.keys[0] and first.keys[1] == "" and "salt" not in str(first)
    assert second == BlocksRemoved((2**63 + 1,), BlockTier("CPU"), 0)
    assert isinstance(third, CacheCleared) and (batch.at, batch.rank) == (3.5, 1)


@pytest.mark.parametrize("seed", kv_events.RECORDED_SEEDS)
def test_what_vllm_has_sent_is_the_same_as_arrays(seed: int) -> None:
    path, num_events = kv_events.recording(seed), 0
    for message in RecordedEvents(path, Limits(path)).messages():
        at, events, rank = msgspec.msgpack.decode(message.payload)
        assert DECODER.batch(message.payload) == DECODER.batch(payload(*map(as_array, events), at=at, rank=rank))
        num_events += len(events)
    assert num_events > 30


def test_sglang_has_pairs_of_tokens_salts_in_a_map_and_no_groups() -> None:
    """SGLang's arrays end at the medium, or have metadata behind it; its maps have cache_salt, and no group."""
    array = ["BlockStored", [-11, 12], None, [[1, 2], [2, 3], [3, 4], [4, 5]], 2, None, "CPU_PINNED"]
    salted = [*array, {"cache_salt": "of a tenant"}]
    named = dict(zip(("type", *STORED_FIELDS), array, strict=False)) | {"cache_salt": "of a tenant", "lora_name": None}
    plain, first, second = (DECODER.batch(payload(event, rank=None)) for event in (array, salted, named))
    event = plain.events[0]
    assert isinstance(event, BlocksStored) and event.token_ids == (1, 2, 3, 4) and event.keys == ()
    assert event.tier == BlockTier("CPU_PINNED") and (plain.rank, event.group, event.group_kind) == (None, None, None)
    assert first == second != plain and "tenant" not in str(first)


def test_an_older_vllm_says_neither_tier_nor_group() -> None:
    batch = DECODER.batch(
        msgspec.msgpack.encode([1, [["BlockStored", [1], None, [1, 2], 2, 3], ["BlockRemoved", [1]]]])
    )
    first, gone = batch.events
    assert isinstance(first, BlocksStored) and first.adapter == "adapter 3" and first.tier == BlockTier(None)
    assert gone == BlocksRemoved((1,), BlockTier(None), None) and batch.rank is None


def test_a_kind_and_fields_that_are_new_are_no_error() -> None:
    batch = DECODER.batch(payload({"type": "BlockMoved", "x": 1}, ["Other", 5], removed([1], copies=[3])))
    assert batch.events[:2] == (UnknownEvent("BlockMoved"), UnknownEvent("Other"))
    assert isinstance(batch.events[2], BlocksRemoved)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "must be msgpack"),
        (b"\xdd\xff\xff\xff\xff", "must be msgpack"),
        (b"\x91" * 100_000 + b"\x01", "nested"),
        (msgspec.msgpack.encode({"ts": 1}), r"must be \[time, events, rank\]"),
        (msgspec.msgpack.encode([float("nan"), []]), "its time"),
        (msgspec.msgpack.encode([1.0, [], "zero"]), "the rank must be a number"),
        (payload(5), "a map or an array"),
        (payload({"block_hashes": []}), "an event's type must be a string"),
        (payload(stored(["text"], [])), "a block's hash"),
        (payload(stored([b"a" * 200], [])), "at most 128 bytes"),
        (payload(stored([1], ["<b>"])), "token_ids must contain only numbers"),
        (payload(stored([1], [], block_size=-1)), "block_size must be a number"),
        (payload(stored([1], [], extra_keys="no")), "extra_keys must be an array"),
        (payload(removed([1]) | {"block_hashes": None}), "block_hashes must be an array"),
    ],
)
def test_damaged_bytes_are_refused_with_what_is_wrong(raw: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        DECODER.batch(raw)


def test_any_damage_is_a_value_error() -> None:
    rng = Random(16)
    lines = kv_events.recording(5).read_text().splitlines()[1:]
    payloads = [b64decode(line.split('"b": "')[1].split('"')[0]) for line in lines]
    num_refused = 0
    for _ in range(2000):
        raw = bytearray(rng.choice(payloads))
        for _ in range(rng.randrange(1, 4)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        try:
            DECODER.batch(bytes(raw[: rng.randrange(1, len(raw) + 1)] if rng.random() < 0.3 else raw))
        except ValueError:
            num_refused += 1
    assert 500 < num_refused < 2000
