"""mini-sglang's scheduling: it reserves what each request may still need, so that none is ever preempted."""

from __future__ import annotations

from itertools import islice
from typing import Any

from labengine.config import ConfigError
from labengine.core.prefix_lookup import Hit
from labengine.core.radix.scheduler import RadixScheduler
from labengine.core.request import Request
from labengine.core.scheduler import NOT_ADMITTED, Admission


class WorstCaseScheduler(RadixScheduler):
    """Admits a request if its prompt and its longest answer fit beside all that the admitted ones may still need.

    The prompts of a step share its budget, and the last one may be split. Nothing is decoded while a prompt fits.
    max_num_seqs limits the requests that hold blocks. Source: mini-sglang's PrefillManager and DecodeManager (20fcd7f).
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.num_reserved = 0
        """Tokens that admitted requests may still need, while a step's prompts are chosen."""
        self.num_rows = 0
        """Requests that hold blocks, or will when the step has its blocks."""

    def refuse_what_never_fits(self, request: Request) -> None:
        """Raise ConfigError also for a request that would wait for ever because its last token counts."""
        super().refuse_what_never_fits(request)
        num_tokens = request.num_prompt_tokens + request.sampling.max_tokens
        num_slots = self.pool.num_usable * self.block_size
        if num_tokens > num_slots:
            raise ConfigError(
                f"this edition reserves a slot for the last token too: a prompt of {request.num_prompt_tokens} tokens "
                f"with max_tokens={request.sampling.max_tokens} needs {num_tokens}, but the pool has {num_slots}: "
                "shorten the prompt, lower max_tokens, or use more blocks"
            )

    def _choose_prompts(self) -> list[tuple[Request, int]]:
        self.num_reserved = sum(self.num_to_come(request) + self.block_size - 1 for request in self.running)
        self.num_rows = len(self.running) + (
            1 if self.waiting and self.waiting[0].has_blocks else 0
        )  # its first chunks
        chosen: list[tuple[Request, int]] = []
        budget = self.config.max_num_batched_tokens
        for request in [*islice(self.waiting, self.config.max_num_seqs)]:
            if budget <= 0 or (num_tokens := self.admit(request, budget, is_first=not chosen)) is NOT_ADMITTED:
                break
            self.num_reserved += self.num_to_compute(request) + self.num_to_come(request)
            chosen.append((request, num_tokens))
            budget -= num_tokens
        return chosen

    def admit(self, request: Request, limit: int, *, is_first: bool) -> Admission:
        """Admit a request if all it may ever need fits; otherwise it could be left without blocks in the middle.

        A refused request's look-up has changed the tree all the same.
        """
        if not request.has_blocks:
            if self.num_rows >= self.config.max_num_seqs:
                return NOT_ADMITTED
            hit = self.manager.find_prefix(request)
            if not self.fits(request, hit) or not self.manager.admit(request, hit, hit.num_tokens):
                return NOT_ADMITTED
            self.num_rows += 1
        return min(limit, self.num_to_compute(request))

    def fits(self, request: Request, hit: Hit) -> bool:
        """Compare tokens with slots, although whole blocks are taken: two prompts of 5 tokens fit 3 blocks of 4."""
        num_tokens = request.num_tokens - hit.num_tokens + self.num_to_come(request)
        num_free = self.pool.num_free - self.group.num_newly_locked(hit.block_ids[0])
        return num_tokens + self.num_reserved <= num_free * self.block_size

    def num_to_come(self, request: Request) -> int:
        """Return how many tokens may still be sampled for a request."""
        return request.sampling.max_tokens - request.num_generated_tokens
