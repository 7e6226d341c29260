"""The recorded hashes of our contents: two engines hash the same tokens with different functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from labengine import events as ev
from labengine.config import SamplingParams
from labengine.core.block import Key
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.request import ExtraKeys, Request
from labengine.record.files.parsing import INT
from labengine.record.fold import Fold
from labengine.vllm.stream.late_start import LINKS
from labengine.vllm.stream.pieces import Piece


class KnownHashes:
    """Pairs of a recorded hash and ours, per group. A pair stays, because a hash never stands for two contents."""

    def __init__(self) -> None:
        self._theirs: dict[Key, bytes] = {}
        self._ours: dict[Key, bytes] = {}

    def learn(self, group: int, ours: bytes, theirs: bytes) -> None:
        """Note that two hashes stand for the same content, unless either is known for another."""
        if (group, ours) not in self._theirs and (group, theirs) not in self._ours:
            self._theirs[group, ours], self._ours[group, theirs] = theirs, ours

    def theirs(self, group: int, ours: bytes) -> bytes:
        """Return the recorded hash of our content; ours if none is known."""
        return self._theirs.get((group, ours), ours)

    def ours(self, group: int, theirs: bytes) -> bytes:
        """Return our hash of recorded content; the recorded one for unknown content, which we never find."""
        return self._ours.get((group, theirs), theirs)


def known_at_start(
    piece: Piece, manager: KVCacheManager, hash_block_size: int, salts: Mapping[int, ExtraKeys]
) -> KnownHashes:
    """Return the hashes of content that was cached before a late recording began, as far as it tells.

    The tap tells them for requests that look the content up; so does a request that registers another block with it.
    """
    known, chains = KnownHashes(), _Chains(piece.fold, manager, salts)
    for request_id, place, theirs in (*_told(piece), *_registered(piece, hash_block_size)):
        if (ours := chains.link(request_id, place)) is not None:
            for group in range(len(piece.fold.groups)):
                known.learn(group, ours, theirs)
    return known


def _told(piece: Piece) -> Iterator[tuple[int, int, bytes]]:
    """Yield (request, place in its hash chain, hash)."""
    for request_id, request in piece.start.requests.items() if piece.start else ():
        yield from ((request_id, *link) for link in request.links)
    for one in piece.inputs:
        if one.word == "links":
            yield from ((INT(one.values[0]), *link) for link in LINKS(one.values[1]))


def _registered(piece: Piece, hash_block_size: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield the same for blocks whose content was cached before the recording began."""
    _, first, events = piece.timeline.kept()
    before = {key for keys in first.block_keys for key in keys}
    for event in events:
        if isinstance(event, ev.BlockCached) and event.is_full and (event.group, event.block_hash) in before:
            num_tokens = (event.index + 1) * first.groups[event.group].block_size
            yield event.request_id, num_tokens // hash_block_size - 1, event.block_hash


class _Chains:
    """Our hash chains of the recorded requests."""

    def __init__(self, end: Fold, manager: KVCacheManager, salts: Mapping[int, ExtraKeys]) -> None:
        self._end, self._manager, self._salts = end, manager, salts
        self._chains: dict[int, list[bytes]] = {}

    def link(self, request_id: int, place: int) -> bytes | None:
        """Return one of our hashes; None if the request never had that many tokens."""
        chain = self._chains.get(request_id)
        if chain is None:
            chain = self._chains[request_id] = self._chain(request_id)
        return chain[place] if 0 <= place < len(chain) else None

    def _chain(self, request_id: int) -> list[bytes]:
        tokens, salt = self._end.requests[request_id].token_ids, self._salts.get(request_id, ())
        request = Request(request_id, tokens, SamplingParams(), 0, len(self._manager.groups), salt)
        self._manager.extend_hashes(request, len(tokens))
        return request.block_hashes
