"""A request: its tokens, the number of tokens with KV, and the blocks that hold it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, NamedTuple

from labengine.config import SamplingParams
from labengine.core.block import NO_KEYS, Prefix

ExtraKeys = tuple[tuple[str, str], ...]
"""(domain, value) pairs: inputs of the KV besides tokens, or salts. Only requests with equal ones share blocks.

The domain keeps an adapter named "x" apart from a cache salt "x" (vLLM issue 44701).
"""


class Image(NamedTuple):
    """The image that placeholder tokens [start, start + length) of a prompt stand for: their KV depends on it."""

    start: int
    length: int
    identifier: str


def images_before(images: Iterable[Image], end: int) -> tuple[Image, ...]:
    """Return the images, or parts of images, among the first `end` tokens."""
    return tuple(image._replace(length=min(image.length, end - image.start)) for image in images if image.start < end)


BlockKeys = tuple[tuple[str, str, int], ...]
"""Keys of one block: ("mm", the image's identifier, its start relative to the block's first token)."""
FinishReason = Literal["stop", "length", "abort", "moved"]


class RequestStatus(StrEnum):
    """A request's state in the scheduler."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED = "finished"


@dataclass(slots=True, eq=False)
class Request:
    """One prompt and its generated tokens. Between steps, KV exists for token_ids[:num_computed_tokens].

    A decoding request has num_computed_tokens == num_tokens - 1: the last token has been sampled and is computed next.
    """

    request_id: int
    token_ids: list[int]
    sampling: SamplingParams
    seed: int
    num_groups: int
    extra_keys: ExtraKeys = ()
    """Inputs of the KV besides the tokens (an adapter), or a reason not to share blocks (a cache salt)."""
    priority: int = 0
    """Smaller is more urgent. The requested priority, until the request is added."""
    images: tuple[Image, ...] = ()
    """In the order of their positions, without overlap."""
    status: RequestStatus = RequestStatus.WAITING
    finish_reason: FinishReason | None = None
    num_computed_tokens: int = 0
    arrival: int = field(init=False)
    """Place in the order of arrival. Several answers to one prompt share it."""
    num_prompt_tokens: int = field(init=False)
    block_tables: list[list[int]] = field(init=False)
    """Per KV-cache group; entry i holds positions [i * block_size, (i + 1) * block_size), or is the null block."""
    planned_tables: tuple[tuple[int, ...], ...] = ()
    """block_tables in the newest plan, shared by plans with equal tables."""
    num_registered_blocks: list[int] = field(init=False)
    """Per group: leading table entries that are registered, or never to be registered."""
    block_hashes: list[bytes] = field(default_factory=list)
    """The hash chain, one link every hash_block_size tokens, computed on demand."""
    links: list[tuple[object, ...]] = field(default_factory=list)
    """Per link, its tokens followed by its own keys, if any."""
    prefixes: list[Prefix] = field(default_factory=list)
    """The exact prefixes that the hashes stand for, created on demand."""
    root: Prefix = field(init=False)
    """The parent of the first link."""
    shared_prefix_boundary: int = 0
    """Tokens that some groups hit at the last look-up and others had dropped: a place worth caching. 0 for none."""
    drafts: tuple[int, ...] = ()
    """Guesses of the tokens that follow; the next step that schedules the request judges them."""
    num_unbooked_tokens: int = 0
    """Tokens of planned but unbooked steps, drafts included. Only edition vllm-async has such steps."""
    is_prefilling: bool = False
    """True after a step that computed some of its tokens but not the last one. Only edition vllm sets it."""
    is_loading: bool = False
    """True while an asynchronous load from the external tier is under way for it."""

    def __post_init__(self) -> None:
        self.arrival = self.request_id
        self.num_prompt_tokens = len(self.token_ids)
        self.block_tables = [[] for _ in range(self.num_groups)]
        self.num_registered_blocks = [0] * self.num_groups
        self.root = Prefix(None, self.extra_keys) if self.extra_keys else NO_KEYS

    @property
    def num_tokens(self) -> int:
        """Prompt and generated tokens."""
        return len(self.token_ids)

    @property
    def num_generated_tokens(self) -> int:
        """Number of tokens sampled so far."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def next_position(self) -> int:
        """First position for which no step has been planned."""
        return self.num_computed_tokens + self.num_unbooked_tokens

    @property
    def has_blocks(self) -> bool:
        """True while the request has blocks."""
        return any(self.block_tables)

    @property
    def num_table_entries(self) -> int:
        """Block table entries over all groups, null blocks included."""
        return sum(map(len, self.block_tables))

    @property
    def max_kv_tokens(self) -> int:
        """Most KV slots that the request can ever need: the last sampled token's KV is never written."""
        return self.num_prompt_tokens + self.sampling.max_tokens - 1

    def block_keys(self, start: int, end: int) -> BlockKeys:
        """Return the keys of a block of tokens [start, end): the images that have a token in it.

        An image in two places of equal placeholder tokens makes two keys. Source: vLLM's _gen_mm_extra_hash_keys.
        """
        return tuple(
            ("mm", image.identifier, image.start - start)
            for image in self.images
            if image.start < end and start < image.start + image.length
        )

    def continue_chain(self, other: Request, num_links: int) -> None:
        """Take over the first num_links links of another request's hash chain, as far as it has them."""
        self.block_hashes, self.links = other.block_hashes[:num_links], other.links[:num_links]
        self.root, self.prefixes = other.root, other.prefixes[:num_links]

    # -- exact prefixes ------------------------------------------------------------------------------------------------

    def prefix_at(self, link: int) -> Prefix:
        """Return the request's prefix up to this link of the hash chain."""
        prefixes = self.prefixes
        if link >= len(prefixes):
            above = prefixes[-1] if prefixes else self.root
            for token_ids in self.links[len(prefixes) : link + 1]:
                above = Prefix(above, token_ids)
                prefixes.append(above)
        return prefixes[link]

    def has_prefix(self, prefix: Prefix, link: int) -> bool:
        """Return True if `prefix` equals the request's own up to this link; the request then shares the object."""
        own = self.prefixes
        if link < len(own):
            if own[link] is prefix:
                return True
        elif link == len(own) and prefix.parent is (own[-1] if own else self.root):
            if prefix.token_ids != self.links[link]:
                return False
            own.append(prefix)
            return True
        return self._has_chain(prefix, link)

    def _has_chain(self, prefix: Prefix, link: int) -> bool:
        """Compare link by link until both chains continue with the same object."""
        own, links, chain = self.prefixes, self.links, []
        above: Prefix | None = prefix
        for number in range(link, -1, -1):
            if above is None or (number < len(own) and own[number] is above):
                break
            if above.token_ids != links[number]:
                return False
            chain.append(above)
            above = above.parent
        else:
            if above is None or above.parent is not None or above.token_ids != self.extra_keys:
                return False
            number = -1
        if above is None:
            return False
        own[number + 1 : link + 1] = reversed(chain)
        return True
