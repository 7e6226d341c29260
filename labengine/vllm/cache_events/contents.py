"""The known contents of blocks by hash: tokens, and the block before each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from labengine.vllm.cache_events.schema import BlockHash, BlocksStored

Contradict = Callable[[str], None]


@dataclass(slots=True, eq=False)
class Content:
    """The content that a hash stands for, in blocks of one size.

    A hash stands for all tokens up to the block's end, so that groups of different block sizes may share hashes.
    """

    hash: BlockHash
    size: int
    """Number of tokens in the block; 0 if the engine did not say."""
    token_ids: tuple[int, ...] | None = None
    """None if no event told the tokens."""
    parent: BlockHash | None = None
    """Hash of the block before it; None at the beginning of a prompt, or if `is_placed` is False."""
    is_placed: bool = False
    """True once an event told the block before it."""
    adapter: str | None = None
    extra: str = ""
    """Digest of the hash's other inputs, such as a salt."""


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
        """Return the content of a hash with this block size, or else with the size that was told first."""
        of_hash = self._by_hash.get(block_hash)
        if of_hash is None:
            return None
        exact = of_hash.get(size) if size else None
        return exact or next((one for one in of_hash.values() if one.size), of_hash.get(0))

    def has_one_size(self, block_hash: BlockHash) -> bool:
        """Return True if a hash was told for blocks of only one size."""
        return len(self._by_hash[block_hash]) == 1

    def parent_of(self, content: Content) -> Content | None:
        """Return the content before a content; None at the beginning, or if it is unknown."""
        return None if content.parent is None else self.find(content.parent, content.size)

    def hashes(self) -> list[BlockHash]:
        """Return all hashes in order of appearance."""
        return list(self._by_hash)

    def forget(self, block_hash: BlockHash) -> None:
        """Drop the contents of a hash."""
        del self._by_hash[block_hash]

    def learn(self, event: BlocksStored) -> None:
        """Apply an event. If it contradicts an earlier one, keep the earlier content and note the contradiction."""
        is_complete = event.block_size > 0 and len(event.token_ids) == event.block_size * len(event.hashes)
        parent, size = event.parent, event.block_size
        for number, block_hash in enumerate(event.hashes):
            content = self._by_hash.setdefault(block_hash, {}).setdefault(size, Content(block_hash, size))
            content.adapter = content.adapter or event.adapter
            if number < len(event.keys):
                content.extra = content.extra or event.keys[number]
            if is_complete:  # a window's events leave out blocks, so that their tokens cannot be assigned
                self._learn_tokens(content, event.token_ids[number * size : (number + 1) * size])
                self._place(content, parent)
            parent = block_hash

    def _learn_tokens(self, content: Content, token_ids: tuple[int, ...]) -> None:
        if content.token_ids is None:
            content.token_ids = token_ids
        elif content.token_ids != token_ids:
            self._contradict(f"block {hash_text(content.hash)} was stored with different tokens before")

    def _place(self, content: Content, parent: BlockHash | None) -> None:
        if not content.is_placed:
            content.parent, content.is_placed = parent, True
        elif content.parent != parent:
            self._contradict(
                f"block {hash_text(content.hash)} is stored {_after(parent)}, but earlier {_after(content.parent)}"
            )


def hash_text(block_hash: BlockHash) -> str:
    """Return the first digits of a hash."""
    if isinstance(block_hash, int):
        block_hash = (block_hash & (1 << 64) - 1).to_bytes(8, "big")
    return block_hash.hex()[:8]


def _after(parent: BlockHash | None) -> str:
    return "at the beginning of a prompt" if parent is None else f"after {hash_text(parent)}"
