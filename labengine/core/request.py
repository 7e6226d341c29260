"""A request: its tokens, how far its KV has come, and the blocks that hold it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from labengine.config import SamplingParams
from labengine.core.prefix import NO_KEYS, Prefix

ExtraKeys = tuple[tuple[str, str], ...]
"""(domain, value) pairs that KV depends on besides tokens, or that requests must share to share blocks at all.

The domain keeps an adapter named "x" apart from a cache salt "x" (vLLM issue 44701).
"""
FinishReason = Literal["stop", "length", "abort"]


class RequestStatus(StrEnum):
    """Where a request stands."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED = "finished"


@dataclass(slots=True, eq=False)
class Request:
    """One prompt on its way. The invariant between steps: KV exists for token_ids[:num_computed_tokens].

    A decoding request has num_computed_tokens == num_tokens - 1: its last token was sampled, and is computed next.
    """

    request_id: int
    token_ids: list[int]
    sampling: SamplingParams
    seed: int
    num_groups: int
    extra_keys: ExtraKeys = ()
    """What KV depends on besides the tokens (an adapter), or what keeps requests apart (a cache salt)."""
    status: RequestStatus = RequestStatus.WAITING
    finish_reason: FinishReason | None = None
    num_computed_tokens: int = 0
    num_prompt_tokens: int = field(init=False)
    block_tables: list[list[int]] = field(init=False)
    """Per KV-cache group; entry i holds positions [i * block_size, (i + 1) * block_size), or is the null block."""
    num_registered_blocks: list[int] = field(init=False)
    """Per group: leading table entries that are settled: in the prefix map, or never to be."""
    block_hashes: list[bytes] = field(default_factory=list)
    """The hash chain, a link every hash_block_size tokens, as far as it was needed."""
    links: list[tuple[int, ...]] = field(default_factory=list)
    """The tokens of each link."""
    prefixes: list[Prefix] = field(default_factory=list)
    """What the hashes stand for, exactly, as far as it was needed."""
    root: Prefix = field(init=False)
    """What the first link hangs on."""
    shared_prefix_boundary: int = 0
    """Tokens that some groups found at the last look-up and others had dropped; worth caching there. 0 for none."""
    is_loading: bool = False
    """True while KV for it is on its way from the external tier."""

    def __post_init__(self) -> None:
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
    def has_blocks(self) -> bool:
        """True once the request was admitted to the pool."""
        return any(self.block_tables)

    @property
    def num_table_entries(self) -> int:
        """Block table entries over all groups, null blocks included."""
        return sum(map(len, self.block_tables))

    @property
    def max_kv_tokens(self) -> int:
        """KV slots the request can ever need: the last sampled token's KV is never written."""
        return self.num_prompt_tokens + self.sampling.max_tokens - 1

    # -- what its hashes stand for -------------------------------------------------------------------------------------

    def prefix_at(self, link: int) -> Prefix:
        """Its prefix that ends with this link of the hash chain."""
        prefixes = self.prefixes
        while len(prefixes) <= link:
            prefixes.append(Prefix(prefixes[-1] if prefixes else self.root, self.links[len(prefixes)]))
        return prefixes[link]

    def has_prefix(self, prefix: Prefix, link: int) -> bool:
        """True when prefix is its own, token by token up to this link. The request then keeps it as its own."""
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
        """Compare link by link, up to where the two chains meet."""
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
