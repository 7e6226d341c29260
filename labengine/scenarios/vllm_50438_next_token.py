"""vLLM issue 50438: a drafter's KV depends on a token that the block's key does not cover.

At each position, a head such as EAGLE's reads the model's hidden state there and the next token. So its KV at a block's
last position depends on the block's tokens and one more. A block found by its own tokens may have been computed with a
different next token. vLLM drops the last block of each hit; SGLang has keys that cover the token. A proposer in
labengine has no KV in the pool, so here the figures count blocks whose next token differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from labengine.core.kv_cache_manager import Moment
from labengine.core.parts import Parts
from labengine.core.proposer import FixedDrafts
from labengine.core.request import Request
from labengine.core.vllm.full_attention import PromptTailGroup
from labengine.core.vllm.kv_cache_manager import VllmKVCacheManager
from labengine.events import BlockCached, PrefixHit
from labengine.lab import Lab
from labengine.scenarios.counts import num_computed_tokens, num_hit_tokens
from labengine.scenarios.scenario import (
    Column,
    FirstWrong,
    Scenario,
    settings,
    wrong_at,
)


class DropsNothing(PromptTailGroup):
    """Serves every block of a hit, by the block's own tokens."""

    @property
    def drops_last_block(self) -> bool:
        """Return False."""
        return False


class KeyedByTheNextToken(DropsNothing):
    """Identifies a block by its tokens and the next one."""

    def block_hashes(self, request: Request, first: int, end: int) -> Sequence[bytes]:
        """Return the hashes of the blocks whose next token is known."""
        tokens, known = request.token_ids, (request.num_tokens - 1) // self.block_size
        return [
            sha256(block_hash + tokens[index * self.block_size].to_bytes(8, "little", signed=True)).digest()
            for index, block_hash in enumerate(super().block_hashes(request, first, min(end, known)), first + 1)
        ]


class RegistersWithTheNextToken(VllmKVCacheManager):
    """Registers a block when the token after it is known."""

    def num_registrable_tokens(self, request: Request, num_tokens: int, moment: Moment) -> int:
        """Return one token fewer than are known."""
        return min(super().num_registrable_tokens(request, num_tokens, moment), request.num_tokens - 1)


def other_next_tokens(lab: Lab) -> list[int]:
    """Return the numbers of look-ups whose last block was computed with a next token other than the request's."""
    assert lab.timeline is not None
    tokens = {id: request.token_ids for id, request in lab.snapshot().requests.items()}
    writers, found = dict[int, int](), []
    for number, event in enumerate(lab.timeline.events(), lab.timeline.num_dropped):
        if isinstance(event, BlockCached):
            writers[event.block_id] = event.request_id
        elif isinstance(event, PrefixHit) and (end := event.num_tokens):
            writer = writers[event.block_ids[0][-1]]
            if tokens[writer][end] != tokens[event.request_id][end]:
                found.append(number)
    return found


class NextToken(Scenario):
    """A, B and C share four tokens. C also shares the fifth with A; B does not."""

    columns = (
        Column("vllm", DropsNothing),
        Column("vllm"),
        Column("vllm", Parts(full_attention_group=KeyedByTheNextToken, kv_cache_manager=RegistersWithTheNextToken)),
    )
    settings = settings(num_blocks=16, block_size=4, speculation=FixedDrafts((), num_drafts=1, drafter="eagle"))
    figures = {
        "blocks of another next token": lambda lab: len(other_next_tokens(lab)),
        "hit of B": lambda lab: num_hit_tokens(lab, 1),
        "hit of C": lambda lab: num_hit_tokens(lab, 2),
        "tokens computed": num_computed_tokens,
    }

    def play(self, lab: Lab) -> None:
        """Run A, B and C to their first tokens, one after the other."""
        for own in ((5, 6), (8, 9), (5, 7)):
            lab.generate([[1, 2, 3, 4, *own]], max_tokens=1)

    def first_wrong(self, lab: Lab) -> FirstWrong | None:
        """Return the look-up of a block with another next token."""
        numbers = other_next_tokens(lab)
        sentence = "The hit block was computed with another next token, so a drafter's KV there is for that token."
        return wrong_at(lab, numbers[0], sentence) if numbers else None
