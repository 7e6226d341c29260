"""SGLang pull request 21125: the host tier keeps the model's KV, and not the drafter's.

Model and drafter share the table that leads from positions to slots, and have a pool each. What comes back from the
tier is in the model's pool alone. The drafter attends to what its own slots hold from before: its guesses get worse,
and no error is raised. (In this lab the drafter's KV is a second group of blocks, so the checks can follow it.)
"""

from __future__ import annotations

from collections.abc import Sequence

from labengine.config import GroupSpec
from labengine.core.connector import BlockTransfer, KVAccess, LocalHit
from labengine.core.kv_cache_group import KVCacheGroup
from labengine.core.request import Request
from labengine.engine.external.host import HostStore
from labengine.events import BlocksLoaded, BlocksSaved, ExternalHit, ForwardRan
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_computed_tokens, num_misread_blocks
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import Column, GuideStop, Scenario, Table, sentences, settings


class KeepsTheModelsKV(HostStore):
    """Keeps the blocks of group 0, the model's."""

    def save_kv(self, saves: Sequence[BlockTransfer], kv: KVAccess) -> tuple[BlockTransfer, ...]:
        """Keep the model's blocks."""
        return super().save_kv([save for save in saves if save.group == 0], kv)


class OffersForBoth(KeepsTheModelsKV):
    """Offers tokens whose KV it has for the model, whatever it has for the drafter."""

    def get_num_new_matched_tokens(
        self, request: Request, num_computed_tokens: int, groups: Sequence[KVCacheGroup], alignment: int
    ) -> int:
        """Return the tokens that it has for the model."""
        return super().get_num_new_matched_tokens(request, num_computed_tokens, groups[:1], alignment)

    def update_state_after_alloc(
        self, request: Request, transfers: Sequence[BlockTransfer], hits: Sequence[LocalHit] = ()
    ) -> Sequence[BlockTransfer]:
        """Load the model's blocks."""
        return super().update_state_after_alloc(request, [one for one in transfers if one.group == 0], hits)


class DrafterLeftOut(Scenario):
    """A prompt is computed, and forgotten by the pool; it comes back from the tier."""

    id = "sglang-21125"
    title = "The tier brings the model's KV, and the drafter has none"
    report = Report(
        repository="sgl-project/sglang",
        kind="pull request",
        number="21125",
        title="[HiCache] feat: add draft KV cache backing for L2/L3",
        state="merged",
        as_of="2026-03-22",
        seen_in="0.5.10, as its code reads",
        mended_in="0.5.11 (21125); 32176 reports the same of 0.5.15.post1 with GLM-5.2",
        needs=(
            "speculative decoding with EAGLE",
            "the hierarchical cache (--enable-hierarchical-cache), and a prefix that comes back from host memory",
        ),
    )
    kind = "external tier"
    breaks = "A drafter attends to slots whose KV nobody has written for these tokens."
    wrong_figure = "blocks misread"
    seen_by = ("tier", "read", "named")
    claim = (
        "If the model's KV is loaded back from the tier, the index table that model and drafter share is updated, and "
        "the drafter's KV is not. The drafter reads wrong KV, and fewer guesses are accepted."
    )
    conclusion = Conclusion(
        answer="holds",
        reason=(
            "Read in the code of 0.5.10, and not run: what is written to host memory, and read back, is the pool of "
            "the model, and the file does not know of a drafter's. Since 0.5.11 the drafter's pool goes with it. The "
            "numbers of accepted guesses are those of the reports."
        ),
        passages=(
            CodePassage(
                version="sglang 0.5.10",
                file="sglang/srt/managers/cache_controller.py",
                line=0,
                text="draft",
                says="What moves KV between device and host knows one pool.",
            ),
            CodePassage(
                version="sglang 0.5.11",
                file="sglang/srt/managers/cache_controller.py",
                line=727,
                text="self.mem_pool_host_draft.backup_from_device_all_layer(",
                says="The drafter's KV is saved with the model's.",
            ),
            CodePassage(
                version="sglang 0.5.11",
                file="sglang/srt/managers/cache_controller.py",
                line=807,
                text="self.mem_pool_host_draft.load_to_device_per_layer(",
                says="And it is loaded with the model's.",
            ),
            ThreadPassage(
                source="sgl-project/sglang 21125",
                says=(
                    "The drafter's KV cannot be computed again behind a load: it depends on the model's hidden states, "
                    "and these are not computed then."
                ),
            ),
            ThreadPassage(
                source="sgl-project/sglang 32176",
                says=(
                    "In 0.5.15.post1, with GLM-5.2, 4.5 tokens per step become 1.6 after loads, and 4.3 when the cache "
                    "is flushed. Pull request 30393, which was merged, adds drafters' caches of other forms."
                ),
            ),
        ),
    )
    question = "A prompt comes back from the tier: what do model and drafter find in their blocks?"
    roles = ("the bug: the model's KV alone", "the fix: both")
    columns = (
        Column(
            "model alone",
            "labengine",
            "Keeps and loads the model's blocks, and counts the tokens as there for both.",
            tier=OffersForBoth,
        ),
        Column("both", "labengine", "Keeps and loads both, as SGLang since 0.5.11.", tier=HostStore),
        Column(
            "model alone, and asked for both",
            "labengine",
            "Keeps the model's blocks. A load has to bring what every group needs, so it offers nothing.",
            tier=KeepsTheModelsKV,
        ),
    )
    settings = settings(num_blocks=16, groups=(GroupSpec(4), GroupSpec(4)))
    guide = (
        GuideStop(
            "Ten tokens are computed: two full blocks of the model, and two of the drafter, its group 1. Left, the "
            "tier keeps those of the model.",
            BlocksSaved,
        ),
        GuideStop(
            "The pool has forgotten them when the same prompt comes. The tier offers eight tokens, on both sides.",
            ExternalHit,
        ),
        GuideStop("Right, four blocks are loaded. Left, two: the drafter's have no content.", BlocksLoaded),
        GuideStop(
            "The last two tokens are computed behind the eight. Left, what reads the drafter's blocks reads nothing "
            "that belongs to these tokens.",
            ForwardRan,
        ),
    )
    sentences = sentences(guide)

    def play(self, lab: Lab) -> None:
        """Run the prompt, forget what the pool has cached, and run it again."""
        for _ in range(2):
            lab.reset_prefix_cache()
            lab.generate([range(1, 11)], max_tokens=2)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count misread blocks, tokens that the tier brings, and the work."""
        return {
            "blocks misread": num_misread_blocks(lab),
            "tokens from the tier": sum(event.num_tokens for event in events_of(lab, ExternalHit)),
            "tokens computed": num_computed_tokens(lab),
        }

    def answer(self, table: Table) -> str:
        """State what is read and computed."""
        alone, both, asked = (table[column.name] for column in self.columns)
        return (
            f"With the model's KV alone {alone['blocks misread']} blocks are misread, all of the drafter. With both "
            f"the tier brings the same {both['tokens from the tier']} tokens. A tier that has the model's alone, and "
            f"says so, brings {asked['tokens from the tier']}: {asked['tokens computed']} tokens are computed instead "
            f"of {both['tokens computed']}."
        )


SCENARIO = DrafterLeftOut()
