"""What is known of the blocks' contents: tokens, and the block before each, by hash."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from labengine.vllm.cache_events.schema import BlockHash, BlocksStored

Contradict = Callable[[str], None]


@dataclass(slots=True, eq=False)
class Content:
    """What stands behind a hash, in a block of some size.

    A hash stands for all tokens up to the block's end, so that groups of other block sizes have equal ones.
    """

    hash: BlockHash
    size: int
    """Tokens of the block; 0 if the engine did not say."""
    token_ids: tuple[int, ...] | None = None
    """None if no event told them."""
    parent: BlockHash | None = None
    """Hash of the block before it; None at the beginning of a prompt, or if `is_placed` is False."""
    is_placed: bool = False
    """True once an event told what stands before it."""
    adapter: str | None = None
    extra: str = ""
    """Digest of what else the hash holds, such as a salt."""


class BlockContents:
    """The contents of all blocks that events named."""

    def __init__(self, contradict: Contradict) -> None:
        self._by_hash: dict[BlockHash, dict[int, Content]] = {}
        self._contradict = contradict

    def __len__(self) -> int:
        """Number of hashes."""
        return len(self._by_hash)

    def __iter__(self) -> Iterator[Content]:
        for of_hash in self._by_hash.values():
            known = [content for content in of_hash.values() if content.size]
            yield from known or of_hash.values()

    def find(self, block_hash: BlockHash, size: int) -> Content | None:
        """Return what is known of a hash: of this size, or else of the size that was told first."""
        of_hash = self._by_hash.get(block_hash)
        if of_hash is None:
            return None
        exact = of_hash.get(size) if size else None
        return exact or next((one for one in of_hash.values() if one.size), of_hash.get(0))

    def has_one_size(self, block_hash: BlockHash) -> bool:
        """Return True if a hash was told for blocks of one size alone."""
        return len(self._by_hash[block_hash]) == 1

    def parent_of(self, content: Content) -> Content | None:
        """Return the content before one; None if there is none, or it is not known."""
        return None if content.parent is None else self.find(content.parent, content.size)

    def hashes(self) -> list[BlockHash]:
        """Return all hashes, those that came first first."""
        return list(self._by_hash)

    def forget(self, block_hash: BlockHash) -> None:
        """Drop what is known of a hash."""
        del self._by_hash[block_hash]

    def learn(self, event: BlocksStored) -> None:
        """Take in what an event says. Where it contradicts what is known, the earlier word stays and that is noted."""
        is_complete = event.block_size > 0 and len(event.token_ids) == event.block_size * len(event.hashes)
        parent, size = event.parent, event.block_size
        for number, block_hash in enumerate(event.hashes):
            content = self._by_hash.setdefault(block_hash, {}).setdefault(size, Content(block_hash, size))
            content.adapter = content.adapter or event.adapter
            if number < len(event.keys):
                content.extra = content.extra or event.keys[number]
            if is_complete:  # a window's events leave out blocks, and their tokens cannot be assigned
                self._learn_tokens(content, event.token_ids[number * size : (number + 1) * size])
                self._place(content, parent)
            parent = block_hash

    def _learn_tokens(self, content: Content, token_ids: tuple[int, ...]) -> None:
        if content.token_ids is None:
            content.token_ids = token_ids
        elif content.token_ids != token_ids:
            self._contradict(f"block {hash_text(content.hash)} was stored with other tokens before")

    def _place(self, content: Content, parent: BlockHash | None) -> None:
        if not content.is_placed:
            content.parent, content.is_placed = parent, True
        elif content.parent != parent:
            self._contradict(
                f"block {hash_text(content.hash)} is stored {_after(parent)}, and was stored {_after(content.parent)}"
            )


def hash_text(block_hash: BlockHash) -> str:
    """Return the first digits of a hash."""
    if isinstance(block_hash, int):
        block_hash = (block_hash & (1 << 64) - 1).to_bytes(8, "big")
    return block_hash.hex()[:8]


def _after(parent: BlockHash | None) -> str:
    return "at the beginning of a prompt" if parent is None else f"after {hash_text(parent)}"
