"""nano-vLLM issue 208: a request hits blocks whose KV is not computed yet. When is that wrong?

A forward pass writes the KV of a layer before it reads it, for all its requests. A hit on blocks of the same step is
therefore right; a hit on blocks of a later one is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from labengine.core.editions import NANO_VLLM, VLLM, VllmKVCacheManager
from labengine.core.kv_cache_manager import Moment
from labengine.core.nano_vllm import NanoKVCacheManager
from labengine.core.parts import Parts
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.events import BlockCached, PrefixHit, RequestAdded, SlotsWritten, StepEnded
from labengine.lab import Lab
from labengine.scenarios.counts import num_computed_tokens, num_hit_tokens, num_misread_requests
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import Column, Experiment, GuideStop, Scenario, Table, sentences, settings


class RegistersCompletePrompts(VllmKVCacheManager):
    """Complete prompts are registered at admission and computed in chunks: no engine that we know."""

    def admit(self, request: Request, hit: Hit, num_tokens: int, num_external: int = 0, *, num_spare: int = 0) -> bool:
        """Give the request blocks for all its tokens at once, whatever part of them this step computes."""
        return super().admit(request, hit, request.num_tokens, num_external, num_spare=num_spare)


class RegistersAtAllocation(NanoKVCacheManager):
    """nano-vLLM when the issue was written: allocate() registers the prompt's blocks."""

    def num_registrable_tokens(self, request: Request, num_tokens: int, moment: Moment) -> int:
        """Return all allocated tokens."""
        return num_tokens


SEVERAL = Column(
    "several chunks",
    Parts(name="complete prompts, several chunks", kv_cache_manager=RegistersCompletePrompts).overriding(VLLM),
    "Registers complete prompts, and cuts each into chunks of four: a later chunk's block can be hit.",
)
FIXED = Column("vllm", "vllm", "Registers what the step computes: its blocks can be hit, those of later steps cannot.")
AS_IT_WAS = Column(
    "nano-vllm, April 2026",
    Parts(name="nano-vllm, April 2026", kv_cache_manager=RegistersAtAllocation).overriding(NANO_VLLM),
    "Registers complete prompts, and cuts only a step's first one: nothing else runs until that is complete.",
)
NOW = Column("nano-vllm", "nano-vllm", "Registers after compute (pull request 218): equal prompts compute twice.")


class TwoEqualPrompts(Experiment):
    """Two equal prompts of nine tokens at once, in steps too small for the first one: it is cut."""

    question = "At most 6 tokens a step: nano-vLLM cuts A's prompt. Does B read what A has not computed?"
    columns: ClassVar[tuple[Column, ...]] = (AS_IT_WAS, NOW)
    settings = settings(num_blocks=12, block_size=4, max_num_batched_tokens=6)

    def play(self, lab: Lab) -> None:
        """Add both and run them to their second tokens."""
        for _ in range(2):
            lab.add(token_ids=range(1, 10), max_tokens=2)
        for _ in range(3):
            lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the tokens that B finds, those that no step had written, misreads, and computed tokens."""
        return {
            "tokens that B finds": num_hit_tokens(lab, 1),
            "of them not yet computed": num_found_in_flight(lab),
            "requests that misread": num_misread_requests(lab),
            "tokens computed": num_computed_tokens(lab),
        }

    def answer(self, table: Table) -> str:
        """State what happens to a prompt that is cut."""
        was = table[AS_IT_WAS.name]
        return (
            f"With A's prompt cut at 6 tokens, B is admitted in the step that completes A: "
            f"{was['of them not yet computed']} of the {was['tokens that B finds']} tokens that it finds are computed "
            f"in that step, and {was['requests that misread']} requests misread."
        )


class HitInFlight(TwoEqualPrompts, Scenario):
    """The same in larger steps, and in an engine that computes chunks of several prompts in one step."""

    id = "nano-vllm-208"
    title = "A hit on blocks that are still to be computed"
    report = Report(
        repository="GeeeekExplorer/nano-vllm",
        kind="issue",
        number="208",
        title="Prefix cache can prematurely hit in-flight blocks in same prefill batch",
        state="closed",
        as_of="2026-08-26",
        seen_in=("commit 44a51af (2026-04-25) and before, where `allocate()` registers; no wrong read is known there"),
        mended_in="commit bb823b3 (2026-04-26): pull request 218 registers blocks behind their computation",
        needs=("several prompts with a common prefix in one step",),
    )
    claim = (
        "In nano-vLLM, a request of a prefill batch can hit blocks of an earlier request before they are computed. "
        "They must not count as hits until a flag says that they are ready."
    )
    conclusion = Conclusion(
        answer="holds in part",
        reason=(
            "Blocks are hit before they are computed: that holds. That they must not be hit does not "
            "follow: the step that hits them computes them too, and writes before it reads. Pull request "
            "209, with the flag, was closed without a merge."
        ),
        passages=(
            CodePassage(
                version="nano-vllm 44a51af",
                file="nanovllm/engine/block_manager.py",
                line=81,
                text="self.hash_to_block_id[h] = block_id",
                says="Allocation registers a full block before anything is computed.",
            ),
            ThreadPassage(
                source="GeeeekExplorer/nano-vllm 208",
                says="An answer argues that it does no harm in nano-vLLM: only the first prompt of a step is cut.",
            ),
        ),
    )
    kind = "hit in flight"
    breaks = "A request reads slots that a later step is going to write."
    wrong_figure = "requests that misread"
    seen_by = ("read", "named")
    question = "Two equal prompts of 9 tokens in one step, blocks of 4: what does B find, and read?"
    columns = (SEVERAL, FIXED, AS_IT_WAS, NOW)
    settings = settings(num_blocks=12, block_size=4)
    roles = ("registered with the whole prompt", "registered with what the step computes")
    guide = (
        GuideStop(
            "Two equal prompts of nine tokens. A prompt may compute four tokens per step, so that no other waits long.",
            RequestAdded,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "A computes four tokens in this step. Right, its first block is registered. Left, all its full blocks are.",
            BlockCached,
        ),
        GuideStop(
            "B looks its prompt up in the same step. Right, it finds the block that A computes now. Left, two blocks: "
            "A computes the second one in the next step.",
            PrefixHit,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "A's slots 0 to 3 are written, and then read by both: a hit on a block of the same step is right.",
            SlotsWritten,
            about_slots=True,
        ),
        GuideStop(
            "Left, B has computed its last token over a block that no step has written: B is wrong from its first "
            "token on.",
            StepEnded,
        ),
    )
    sentences = sentences(guide)
    experiments: Mapping[str, Experiment] = {"a prompt that is cut": TwoEqualPrompts()}

    def lab(self, column: str, model: str = "simulated") -> Lab:
        """Return an empty lab; those with vLLM's scheduler compute at most four tokens of a prompt per step."""
        chunk = {} if "nano" in column else {"long_prefill_token_threshold": 4}
        return self.column(column).lab(model, {**self.settings_for(model), **chunk})

    def opening(self, lab: Lab) -> None:
        """Take the first step."""
        for _ in range(2):
            lab.add(token_ids=range(1, 10), max_tokens=2)
        lab.step()

    def answer(self, table: Table) -> str:
        """State what nano-vLLM's scheduling prevents, and the price of registering later."""
        wrong, right, was, now = (table[column.name] for column in self.columns)
        return (
            f"nano-vLLM as it was: B finds {was['tokens that B finds']} tokens, {was['of them not yet computed']} of "
            f"them not computed at the look-up, and {was['requests that misread']} requests misread: the hit's KV is "
            f"written in the same step, before it is read, and while a prompt is cut no other request is admitted (an "
            f"answer in the thread argues so). Here, with chunks of several prompts in a step, it does harm: "
            f"{wrong['of them not yet computed']} tokens in flight, {wrong['requests that misread']} request misreads; "
            f"vLLM registers only what the step computes ({right['requests that misread']}). Registering after "
            f"compute, like the flag, gives up the sharing: {now['tokens computed']} tokens computed instead of "
            f"{was['tokens computed']}."
        )


def num_found_in_flight(lab: Lab) -> int:
    """Return how many tokens of B's hit had no KV when B looked them up."""
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


SCENARIO = HitInFlight()
