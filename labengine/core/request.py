"""A request: its tokens, the number of tokens with KV, and the blocks that hold it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, NamedTuple

from labengine.config import SamplingParams
from labengine.core.block import NO_KEYS, Prefix

ExtraKeys = tuple[tuple[str, str], ...]
"""(domain, value) pairs: inputs of the KV besides tokens, or keys that only requests with equal ones share blocks
under.

The domain keeps an adapter named "x" apart from a cache salt "x" (vLLM issue 44701).
"""


class Image(NamedTuple):
    """Content behind placeholder tokens [start, start + length) of a prompt: their KV depends on it."""

    start: int
    length: int
    identifier: str


def images_before(images: Iterable[Image], end: int) -> tuple[Image, ...]:
    """Return what of these images lies among the first `end` tokens."""
    return tuple(image._replace(length=min(image.length, end - image.start)) for image in images if image.start < end)


BlockKeys = tuple[tuple[str, str, int], ...]
"""Keys of one block: ("mm", the image's identifier, where it begins relative to the block's first token)."""
FinishReason = Literal["stop", "length", "abort", "moved"]


class RequestStatus(StrEnum):
    """A request's state in the scheduler."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED = "finished"


@dataclass(slots=True, eq=False)
class Request:
    """One prompt and its generated tokens. Invariant between steps: KV exists for token_ids[:num_computed_tokens].

    A decoding request has num_computed_tokens == num_tokens - 1: the last token was sampled and is computed next.
    """

    request_id: int
    token_ids: list[int]
    sampling: SamplingParams
    seed: int
    num_groups: int
    extra_keys: ExtraKeys = ()
    """Inputs of the KV besides the tokens (an adapter), or a reason not to share blocks (a cache salt)."""
    priority: int = 0
    """Smaller is more urgent. Before the request is added, the one that was asked for."""
    images: tuple[Image, ...] = ()
    """In the order of their positions, without overlap."""
    status: RequestStatus = RequestStatus.WAITING
    finish_reason: FinishReason | None = None
    num_computed_tokens: int = 0
    arrival: int = field(init=False)
    """Its place in the order of arrival. Several answers to one prompt arrive together."""
    num_prompt_tokens: int = field(init=False)
    block_tables: list[list[int]] = field(init=False)
    """Per KV-cache group; entry i holds positions [i * block_size, (i + 1) * block_size), or is the null block."""
    planned_tables: tuple[tuple[int, ...], ...] = ()
    """block_tables as the newest plan has them: a plan with equal tables shares the object."""
    num_registered_blocks: list[int] = field(init=False)
    """Per group: leading table entries that are settled: in the prefix map, or never to be registered."""
    block_hashes: list[bytes] = field(default_factory=list)
    """The hash chain, one link every hash_block_size tokens, computed on demand."""
    links: list[tuple[object, ...]] = field(default_factory=list)
    """The tokens of each link, and behind them the keys of its own that it has."""
    prefixes: list[Prefix] = field(default_factory=list)
    """The exact prefixes that the hashes stand for, made on demand."""
    root: Prefix = field(init=False)
    """The parent of the first link."""
    shared_prefix_boundary: int = 0
    """Tokens that some groups hit at the last look-up and others had dropped; worth caching there. 0 for none."""
    drafts: tuple[int, ...] = ()
    """Guesses of the tokens that follow; the next step that schedules the request judges them."""
    num_unbooked_tokens: int = 0
    """Tokens of steps that are planned and not booked, drafts included. Edition vllm-async alone has such steps."""
    is_prefilling: bool = False
    """True after a step that computed some of its tokens, and not the last one. Edition vllm alone keeps it."""
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
        """Tokens sampled so far."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def next_position(self) -> int:
        """The first position that no step has been planned for."""
        return self.num_computed_tokens + self.num_unbooked_tokens

    @property
    def has_blocks(self) -> bool:
        """True once blocks were allocated for the request."""
        return any(self.block_tables)

    @property
    def num_table_entries(self) -> int:
        """Block table entries over all groups, null blocks included."""
        return sum(map(len, self.block_tables))

    @property
    def max_kv_tokens(self) -> int:
        """KV slots the request can ever need: the last sampled token's KV is never written."""
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
        """Return the request's prefix that ends with this link of the hash chain."""
        prefixes = self.prefixes
        while len(prefixes) <= link:
            prefixes.append(Prefix(prefixes[-1] if prefixes else self.root, self.links[len(prefixes)]))
        return prefixes[link]

    def has_prefix(self, prefix: Prefix, link: int) -> bool:
        """Return True when `prefix` equals the request's own up to this link; the request then shares the object."""
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
        """Compare link by link, until both chains continue with the same object."""
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
