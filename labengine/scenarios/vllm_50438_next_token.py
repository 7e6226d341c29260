"""vLLM issue 50438: the KV of a drafter depends on a token that the block's key does not cover.

A head as EAGLE's reads at each position the model's hidden state there and the token behind. So its KV at the last
position of a block is of the block's tokens and of one more. A block that is found by its own tokens may have been
computed with another token behind it. vLLM drops the last block of each hit; SGLang has keys that cover the token.
(A proposer in labengine has no KV in the pool: here the blocks are counted whose next token differs.)
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from labengine.core.editions import VLLM, VllmKVCacheManager
from labengine.core.kv_cache_manager import Moment
from labengine.core.parts import Parts
from labengine.core.proposer import FixedDrafts
from labengine.core.request import Request
from labengine.core.vllm_partial_hits import PromptTailGroup
from labengine.events import BlockCached, PrefixHit
from labengine.lab import Lab
from labengine.scenarios.counts import num_computed_tokens, num_hit_tokens
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import (
    Column,
    FirstWrong,
    GuideStop,
    Scenario,
    Table,
    sentences,
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
    """Knows a block by its tokens and the one behind them."""

    def block_hashes(self, request: Request, first: int, end: int) -> Sequence[bytes]:
        """Return the hashes of those blocks whose next token is known."""
        tokens, known = request.token_ids, (request.num_tokens - 1) // self.block_size
        return [
            sha256(block_hash + tokens[index * self.block_size].to_bytes(8, "little", signed=True)).digest()
            for index, block_hash in enumerate(super().block_hashes(request, first, min(end, known)), first + 1)
        ]


class RegistersWithTheNextToken(VllmKVCacheManager):
    """Registers a block when the token behind it is known."""

    def num_registrable_tokens(self, request: Request, num_tokens: int, moment: Moment) -> int:
        """Return one token less than is known."""
        return min(super().num_registrable_tokens(request, num_tokens, moment), request.num_tokens - 1)


def other_next_tokens(lab: Lab) -> list[int]:
    """Return the numbers of look-ups whose last block was computed with another token behind it than the request's."""
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
    """A, B and C share four tokens. C shares the fifth with A, B does not."""

    id = "vllm-50438"
    title = "A key that does not cover the token behind the block"
    report = Report(
        repository="vllm-project/vllm",
        kind="issue",
        number="50438",
        title="[RFC]: Lookahead-aware prefix-cache hashing for EAGLE-style draft models",
        state="open",
        as_of="2026-08-03",
        seen_in="SGLang 0.5.2, as its code reads; vLLM 0.32.0 avoids it by a block less in each hit",
        mended_in="SGLang 0.5.3 (10846: the keys of its tree are pairs of tokens)",
        needs=("speculative decoding with a head as EAGLE's, or MTP", "prefix caching"),
    )
    kind = "extra keys"
    breaks = "A drafter goes on from KV that was computed with another token than the request's."
    wrong_figure = "blocks of another next token"
    why_unseen = (
        "The checks follow the KV of the model, and not a drafter's: a worse guess costs time, and changes no token."
    )
    claim = (
        "The key of a block says nothing of the token behind it, and the drafter's KV at the block's end depends on "
        "it. Reusing a hit's last block would be unsafe, so vLLM drops it each time; with the token in the key it need "
        "not."
    )
    conclusion = Conclusion(
        answer="holds",
        reason=(
            "In vLLM 0.32.0 each hit loses its last block, unless an option for experiments keeps it. SGLang 0.5.2 "
            "kept it, and its pull request 10846 measured fewer accepted tokens with its cache than without; with keys "
            "of two tokens it measured the same in both."
        ),
        passages=(
            CodePassage(
                version="vllm 0.32.0",
                file="vllm/v1/core/kv_cache_coordinator.py",
                line=585,
                text="drop_eagle_block=0 in self.eagle_group_ids",
                says="A look-up drops the last block of the group that EAGLE uses.",
            ),
            CodePassage(
                version="vllm 0.32.0",
                file="vllm/config/speculative.py",
                line=452,
                text="disable_eagle_block_drop: bool = False",
                says="An option, off by default, keeps that block: to measure what it does to the accepted guesses.",
            ),
            CodePassage(
                version="sglang 0.5.2",
                file="sglang/srt/mem_cache/radix_cache.py",
                line=0,
                text="bigram",
                says="Keys of the tree are single tokens, whatever guesses.",
            ),
            CodePassage(
                version="sglang 0.5.3",
                file="sglang/srt/mem_cache/radix_cache.py",
                line=163,
                text="draft sequence is the one-token-shifted version of target",
                says="With EAGLE keys are pairs of tokens, because drafts are shifted by one token.",
            ),
            ThreadPassage(
                source="sgl-project/sglang 10846",
                says=(
                    "Tokens accepted per step: 2.26 with the radix cache and 2.39 without; with the pull request 2.39 "
                    "in both."
                ),
            ),
            ThreadPassage(
                source="vllm-project/vllm 50897",
                says="An implementation for vLLM, open in August 2026, with a second list of hashes.",
            ),
        ),
    )
    question = "B shares a full block with A, and not the token behind it: may it hit the block?"
    columns = (
        Column(
            "tokens alone",
            Parts(name="vllm, drops nothing", full_attention_group=DropsNothing).overriding(VLLM),
            "Serves the whole hit, by the tokens of each block, as SGLang 0.5.2 did.",
        ),
        Column(
            "last block dropped",
            "vllm",
            "Computes the last block of each hit again, as vLLM 0.32.0: right for B, and lost for C.",
        ),
        Column(
            "next token in the key",
            Parts(
                name="vllm, next token in the key",
                full_attention_group=KeyedByTheNextToken,
                kv_cache_manager=RegistersWithTheNextToken,
            ).overriding(VLLM),
            "Names a block by its tokens and the one behind, as the issue proposes: C hits it, and B does not.",
        ),
    )
    settings = settings(num_blocks=16, block_size=4, speculation=FixedDrafts((), num_drafts=1, drafter="eagle"))
    roles = ("the bug: named by its own tokens", "vLLM's way: the last block is dropped")
    guide = (
        GuideStop(
            "A's first four tokens fill a block. A head as EAGLE's reads at each position the token behind, at the "
            "block's last one A's fifth token, 5. The block's hash is over its four tokens.",
            BlockCached,
        ),
        GuideStop(
            "B has the same four tokens, and then 8. Left, it hits the block: the model's KV there is right, and the "
            "drafter's was computed with 5. Right, the hit's last block is dropped, and computed again.",
            PrefixHit,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "C has 5 behind its four tokens, as A. Left, its hit is right in all. Right, it loses it all the same.",
            PrefixHit,
            lambda event: event.request_id == 2,
        ),
    )
    sentences = sentences(guide)

    def play(self, lab: Lab) -> None:
        """Run A, B and C to their first tokens, one after the other."""
        for own in ((5, 6), (8, 9), (5, 7)):
            lab.generate([[1, 2, 3, 4, *own]], max_tokens=1)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count blocks with another next token, hits and the work."""
        return {
            "blocks of another next token": len(other_next_tokens(lab)),
            "hit of B": num_hit_tokens(lab, 1),
            "hit of C": num_hit_tokens(lab, 2),
            "tokens computed": num_computed_tokens(lab),
        }

    def first_wrong(self, lab: Lab) -> FirstWrong | None:
        """Return the look-up of a block with another next token."""
        numbers = other_next_tokens(lab)
        sentence = (
            "The block that is hit was computed with another token behind it: a drafter's KV there is not its own."
        )
        return wrong_at(lab, numbers[0], sentence) if numbers else None

    def answer(self, table: Table) -> str:
        """State what B and C hit."""
        alone, dropped, keyed = (table[column.name] for column in self.columns)
        return (
            f"By the tokens alone B and C hit {alone['hit of B']} and {alone['hit of C']} tokens, B's with "
            f"{alone['blocks of another next token']} block of another next token. Dropped, both hit "
            f"{dropped['hit of C']}; with the next token in the key B hits {keyed['hit of B']} and C "
            f"{keyed['hit of C']}."
        )


SCENARIO = NextToken()
