"""All token sequences of a recording in one tree: two requests share a node exactly if they share that prefix."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd

from labengine.events import UNKNOWN_TOKEN

Chunk = tuple[Hashable, ...]
"""The identity of a piece of a sequence among its siblings: its tokens, or its hash if the tokens are unknown."""

_BY_HASH, _BY_REQUEST = UNKNOWN_TOKEN - 1, UNKNOWN_TOKEN - 2
"""The start of chunks without tokens: numbers that no token has, so that all chunks can be sorted."""

Hashes = Mapping[tuple[int, int], bytes]
"""Block hashes of one request by (group, end of the block in tokens)."""


@dataclass(slots=True, eq=False)
class Node:
    """A prefix that ends after `depth` chunks.

    hashes: the block hash per group with a block that ends here. Equal tokens under different salts have different
    nodes.
    """

    parent: Node | None
    chunk: Chunk
    depth: int
    salt: Hashable = None
    hashes: dict[int, bytes] = field(default_factory=dict)
    children: dict[Chunk, list[Node]] = field(default_factory=dict)
    requests: list[int] = field(default_factory=list)
    """Requests that were admitted with this prefix so far, oldest first: `admitted.Admitted` fills it."""
    continuations: list[tuple[Chunk, int]] = field(default_factory=list)
    """The continuations of admitted requests after this prefix, in order, with one request for each."""


@dataclass(frozen=True, slots=True)
class Sequences:
    """The sequences, cut into chunks of `size` tokens, and the path of each through the tree."""

    size: int
    tokens: Mapping[int, Sequence[int]]
    own_hashes: Mapping[int, Hashes]
    root: Node
    paths: Mapping[int, Sequence[Node]]
    has_tokens: bool
    """False if the recording leaves out token ids."""

    def hash_of(self, request_id: int, group: int, end: int) -> bytes | None:
        """Return the hash of a request's block that ends at token `end`; None if no event tells it."""
        own = self.own_hashes[request_id].get((group, end))
        if own is not None or end % self.size:
            return own
        path = self.paths[request_id]
        return path[end // self.size - 1].hashes.get(group) if end // self.size <= len(path) else None

    def node_at(self, request_id: int, end: int) -> Node | None:
        """Return the node of a request's prefix; None if no chunk ends there."""
        path = self.paths[request_id]
        return None if end % self.size or not 0 < end // self.size <= len(path) else path[end // self.size - 1]


def sequences_of(
    sizes: Sequence[int],
    tokens: Mapping[int, Sequence[int]],
    own_hashes: Mapping[int, Hashes],
    salts: Mapping[int, Hashable] | None,
) -> Sequences:
    """Put all sequences into one tree. sizes: of the groups' blocks.

    Requests with known hashes come first, so that the others join their branches.
    """
    has_tokens = not any(UNKNOWN_TOKEN in sequence[:1] for sequence in tokens.values())
    size = gcd(*sizes) if has_tokens else sizes[0]
    root = Node(None, (), 0)
    paths: dict[int, list[Node]] = {}
    for request_id in sorted(tokens, key=lambda i: (not own_hashes[i], i)):
        known: dict[int, dict[int, bytes]] = {}
        for (group, end), block_hash in own_hashes[request_id].items():
            known.setdefault(end, {})[group] = block_hash
        node, path, sequence = root, list[Node](), tokens[request_id]
        for end in range(size, len(sequence) + 1, size):
            found = known.get(end, {})
            chunk = _chunk(tuple(sequence[end - size : end]), found, request_id)
            node = _child(node, chunk, found, None if salts is None else (salts.get(request_id),))
            path.append(node)
        paths[request_id] = path
    return Sequences(size, tokens, own_hashes, root, paths, has_tokens)


def _chunk(tokens: tuple[int, ...], hashes: Mapping[int, bytes], request_id: int) -> Chunk:
    if UNKNOWN_TOKEN not in tokens:
        return tokens
    return (_BY_HASH, *sorted(hashes.items())) if hashes else (_BY_REQUEST, request_id)


def _child(node: Node, chunk: Chunk, hashes: Mapping[int, bytes], salt: Hashable) -> Node:
    siblings = node.children.setdefault(chunk, [])
    child = _matching(siblings, hashes, salt)
    if child is None:
        child = Node(node, chunk, node.depth + 1, salt)
        siblings.append(child)
    child.hashes.update(hashes)
    return child


def _matching(siblings: Sequence[Node], hashes: Mapping[int, bytes], salt: Hashable) -> Node | None:
    """Return the sibling with the same hash; if a hash is unknown, one that does not contradict it."""
    possible = []
    for node in siblings:
        common = [group for group in hashes if group in node.hashes]
        if common and all(node.hashes[group] == hashes[group] for group in common):
            return node
        if not common and node.salt == salt:
            possible.append(node)
    return possible[0] if possible else None
