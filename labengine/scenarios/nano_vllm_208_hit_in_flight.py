"""nano-vLLM issue 208: a request hits blocks whose KV is not computed yet. When is that wrong?

For all its requests, a forward pass writes a layer's KV before it reads it. A hit on blocks of the same step is
therefore right; a hit on blocks of a later step is not.
"""

from __future__ import annotations

from typing import ClassVar

from labengine.core.kv_cache_manager import Moment
from labengine.core.nano_vllm.kv_cache_manager import NanoKVCacheManager
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.core.vllm.kv_cache_manager import VllmKVCacheManager
from labengine.events import PrefixHit, SlotsWritten
from labengine.lab import Lab
from labengine.scenarios.counts import num_computed_tokens, num_hit_tokens, num_misread_requests
from labengine.scenarios.scenario import Column, Experiment, Scenario


class RegistersCompletePrompts(VllmKVCacheManager):
    """Registers complete prompts at admission and computes them in chunks. No engine that we know does this."""

    def admit(self, request: Request, hit: Hit, num_tokens: int, num_external: int = 0, *, num_spare: int = 0) -> bool:
        """Give the request blocks for all its tokens at once, however few of them this step computes."""
        return super().admit(request, hit, request.num_tokens, num_external, num_spare=num_spare)


class RegistersAtAllocation(NanoKVCacheManager):
    """nano-vLLM at the time of the issue: allocate() registers the prompt's blocks."""

    def num_registrable_tokens(self, request: Request, num_tokens: int, moment: Moment) -> int:
        """Return all allocated tokens."""
        return num_tokens


class TwoEqualPrompts(Experiment):
    """Two equal prompts of nine tokens at once, in steps too small for the first one, which is cut."""

    columns: ClassVar[tuple[Column, ...]] = (Column("nano-vllm", RegistersAtAllocation), Column("nano-vllm"))
    figures = {
        "tokens that B finds": lambda lab: num_hit_tokens(lab, 1),
        "of them not yet computed": lambda lab: num_found_in_flight(lab),
        "requests that misread": num_misread_requests,
        "tokens computed": num_computed_tokens,
    }

    def play(self, lab: Lab) -> None:
        """Add both prompts and run them to their second tokens."""
        for _ in range(2):
            lab.add(token_ids=range(1, 10), max_tokens=2)
        lab.step(3)


class HitInFlight(TwoEqualPrompts, Scenario):
    """The same prompts in larger steps, and in an engine that computes chunks of several prompts in one step."""

    columns = (
        Column("vllm", RegistersCompletePrompts),
        Column("vllm"),
        Column("nano-vllm", RegistersAtAllocation),
        Column("nano-vllm"),
    )
    experiments = {"a prompt that is cut": TwoEqualPrompts()}

    def lab(self, column: str, model: str = "simulated") -> Lab:
        """Return an empty lab; with vLLM's scheduler it computes at most four tokens of a prompt per step."""
        chunk = {} if "nano" in column else {"long_prefill_token_threshold": 4}
        return self.column(column).lab(model, {**self.settings_for(model), **chunk})

    def opening(self, lab: Lab) -> None:
        """Take the first step."""
        for _ in range(2):
            lab.add(token_ids=range(1, 10), max_tokens=2)
        lab.step()


def num_found_in_flight(lab: Lab) -> int:
    """Return the number of tokens in B's hit that had no KV at B's look-up."""
    assert lab.timeline is not None
    written: set[int] = set()
    size = lab.config.groups[0].block_size
    for event in lab.timeline.events():
        if isinstance(event, SlotsWritten):
            written |= {block_id * size + offset + i for block_id, offset, length in event.runs for i in range(length)}
        if isinstance(event, PrefixHit) and event.request_id == 1:
            found = [block_id * size + i for block_id in event.block_ids[0] for i in range(size)]
            return sum(slot not in written for slot in found)
    return 0
