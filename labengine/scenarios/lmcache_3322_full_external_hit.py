"""LMCache pull request 3322: the external tier holds a complete prompt, and offers all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from labengine.core.kv_cache_group import KVCacheGroup
from labengine.core.request import Request
from labengine.engine.external.host import HostStore
from labengine.events import BlocksLoaded, BlocksSaved, ExternalHit, RequestScheduled, TokenSampled
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_rules
from labengine.scenarios.report import Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import Column, GuideStop, Scenario, Table, sentences, settings


class OffersEverything(HostStore):
    """The MP connector before the pull request: it leaves no token out."""

    def get_num_new_matched_tokens(
        self, request: Request, num_computed_tokens: int, groups: Sequence[KVCacheGroup], alignment: int
    ) -> int:
        """Return the tokens of all full blocks that the tier has, the prompt's last token included."""
        end = request.num_tokens // alignment * alignment
        return min(self._run_end(request, group, num_computed_tokens, end) for group in groups) - num_computed_tokens


class FullExternalHit(Scenario):
    """One prompt of two full blocks, computed once; then again with an empty pool and the same tier."""

    id = "lmcache-3322"
    title = "The external tier offers the whole prompt, and nothing is left to compute"
    report = Report(
        repository="LMCache/LMCache",
        kind="pull request",
        number="3322",
        title="fix: handle full-prompt-hit in MP connector to avoid scheduler assert failure",
        state="merged",
        as_of="2026-09-19",
        seen_in="May 2026, before the merge",
        mended_in="pull request 3322",
        needs=(
            "the MP connector (`LMCacheMPConnector`)",
            "a prompt that the cache holds completely",
        ),
    )
    claim = (
        "When the connector finds all tokens of a prompt, it returns all of them as matched. The scheduler then has "
        "num_new_tokens == 0, and its assert ends the engine."
    )
    conclusion = Conclusion(
        answer="holds",
        reason=("The MP connector returned every token as matched, and vLLM's scheduler asserts that one is left."),
        passages=(
            ThreadPassage(
                source="LMCache/LMCache 3322",
                says="It derives `num_new_tokens == 0`, and names the assertion behind it.",
            ),
        ),
    )
    kind = "full hit"
    breaks = "A request is admitted with no token to compute, and there are no logits for its next token."
    seen_by = ("progress",)
    question = "A prompt of exactly two blocks is in the tier: how many of its tokens are loaded, and computed?"
    columns = (
        Column(
            "offers all",
            "vllm",
            "The tier offers every full block that it has, up to the last token.",
            tier=OffersEverything,
        ),
        Column(
            "leaves one",
            "vllm",
            "The tier never offers the last token: with blocks, its whole block is computed.",
            tier=HostStore,
        ),
    )
    settings = settings(num_blocks=8, block_size=4)
    roles = ("the bug: all tokens offered", "the fix: the last one is left out")
    guide = (
        GuideStop("A's eight tokens are computed, and its two full blocks are saved in the tier.", BlocksSaved),
        GuideStop(
            "The pool is empty when B comes with the same prompt, and the tier is asked. Left, it offers eight tokens "
            "of eight. Right, four.",
            ExternalHit,
        ),
        GuideStop(
            "B is scheduled. Left, with 8 - 8 = 0 tokens: vLLM's scheduler asserts here that it is more.",
            RequestScheduled,
            lambda event: event.request_id == 1,
        ),
        GuideStop("What was offered is loaded.", BlocksLoaded),
        GuideStop(
            "A cache keeps keys and values. The next token needs the last token's logits, and left no step computes "
            "them.",
            TokenSampled,
            lambda event: event.request_id == 1,
        ),
    )
    sentences = sentences(guide)

    def play(self, lab: Lab) -> None:
        """Run A, which fills the tier; forget what the pool has cached; run B for a step."""
        lab.add(token_ids=range(1, 9), max_tokens=1)
        lab.step()
        lab.reset_prefix_cache()
        lab.add(token_ids=range(1, 9), max_tokens=2)
        lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the tokens of B that are loaded and computed, and broken rules."""
        [computed] = [event.num_tokens for event in events_of(lab, RequestScheduled) if event.request_id == 1]
        loaded = sum(event.num_tokens for event in events_of(lab, ExternalHit))
        return {"tokens loaded": loaded, "tokens computed": computed, "rules broken": num_rules(lab)}

    def is_wrong(self, measured: Mapping[str, int]) -> bool:
        """Return True if no token was computed."""
        return measured["tokens computed"] == 0

    def answer(self, table: Table) -> str:
        """State what is loaded and computed."""
        wrong, right = (table[column.name] for column in self.columns)
        return (
            f"The tier offers {wrong['tokens loaded']} of 8 tokens, and {wrong['tokens computed']} are left to "
            f"compute. With the last one left out, {right['tokens loaded']} are loaded and {right['tokens computed']} "
            f"computed. The rule is the local cache's (nano-vLLM issue 114), and each tier has to follow it, too."
        )


SCENARIO = FullExternalHit()
