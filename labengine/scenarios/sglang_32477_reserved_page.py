"""SGLang pull request 32477: padded rows write to a reserved page, and NaN comes back from it through a mask.

Page 0 belongs to no request. Padded rows of a recorded decode write there, and unused columns of page tables point
there. A tile that is only partly valid loads that page and masks the scores: a weight of 0. But 0 * NaN is NaN.
"""

from __future__ import annotations

from labengine.events import StepEnded, StepStarted, TokenSampled
from labengine.lab import Lab
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import Column, GuideStop, Table, sentences, settings, symptom
from labengine.scenarios.tiny_model import TinyModelScenario


class ReservedPage(TinyModelScenario):
    """Edition vllm: block 0 is its null block, which no request is given, as page 0 of SGLang."""

    id = "sglang-32477"
    title = "NaN of a padded row comes back through a masked tile"
    report = Report(
        repository="sgl-project/sglang",
        kind="pull request",
        number="32477",
        title="[Kernel] Skip KV writes to reserved padding slots",
        state="merged",
        as_of="2026-09-16",
        seen_in="July 2026, before the merge",
        mended_in=(
            "the pull request itself, for the generic store kernel; version 0.5.23 skips slot 0 in the MLA writers too"
        ),
        needs=(
            "CUDA graphs with padded rows",
            "a sliding-window model: unused columns of its page table lead to page 0",
        ),
    )
    kind = "padding"
    breaks = "A padded row writes NaN to the reserved block; each row that loads it, masked, computes NaN."
    claim = (
        "Padded rows hold undefined KV and write it to the reserved page 0; attention loads that page behind a "
        "context, masks it by weight, and 0 * NaN spreads. A store that skips the reserved slot mends it."
    )
    conclusion = Conclusion(
        answer="holds",
        reason=(
            "Padding may hold undefined KV and was written to slot 0, which masked lanes load. The store "
            "skips that slot since."
        ),
        passages=(
            CodePassage(
                version="sglang 0.5.23",
                file="sglang/kernels/ops/kvcache/kvcache.py",
                line=81,
                text="reserved_skip_index: int = 0,",
                says="The store leaves out slot 0 unless told otherwise.",
            ),
            ThreadPassage(
                source="sgl-project/sglang 32477",
                says="A partly valid tile may load the reserved page before it masks, and 0 * NaN is NaN.",
            ),
            ThreadPassage(
                source="sgl-project/sglang 36207",
                says="A later report: writers of MLA were not covered by 32477, and gave nonsense text.",
            ),
        ),
    )
    question = "Three requests decode in a graph of four rows: how many tokens are wrong?"
    columns = (
        Column("writes", "vllm", "Padded rows write slot 0 of the reserved block.", "WritesPadding"),
        Column("skips", "vllm", "The same attention; nothing is written to the reserved block.", "SkipsPadding"),
        Column("labengine", "vllm", "Skips slots below 0, and zeroes what it masks.", "StaticRunner"),
    )
    settings = settings(num_blocks=16, block_size=4, device="cpu")
    guide = (
        GuideStop("Three prompts are computed, module by module and without padding: both sides agree.", StepEnded),
        GuideStop(
            "The first decode: three requests in a graph of four rows. The padded row attends to nothing, and computes "
            "NaN. Left, it writes that to slot 0.",
            StepStarted,
            about_slots=True,
        ),
        GuideStop(
            "Left, all three rows have loaded slot 0 behind their contexts: their logits are NaN, and the sampler, "
            "which does not look, takes token 0. Right, block 0 holds zeros, and a weight of 0 makes 0 of them.",
            TokenSampled,
            about_slots=True,
        ),
        GuideStop("The other two requests say token 0 as well, in this step and in all later ones.", StepEnded),
    )
    sentences = sentences(guide)

    def play(self, lab: Lab) -> None:
        """Compute three prompts, and decode."""
        for first in (10, 30, 50):
            lab.add(token_ids=range(first, first + 6), max_tokens=6, ignore_eos=True)
        lab.run()

    def symptom(self) -> str:
        """Return the error of labengine's sampler on the broken column's logits."""
        column = Column("refuses", "vllm", "Refuses NaN.", "RefusesNaN")
        with column.lab(self.model_for("simulated"), self.settings) as lab:
            return symptom(lambda: self.play(lab))

    def answer(self, table: Table) -> str:
        """State the figures, and what would end it sooner."""
        broken, fixed, production = table.columns.values()
        return (
            f"{broken['wrong tokens']} of {broken['tokens']} tokens are wrong: all but the prompts' own three. The fix "
            f"keeps the reserved page finite, with {fixed['wrong tokens']} wrong; labengine's attention also zeroes "
            f"what it masks ({production['wrong tokens']} wrong), whatever the page holds. In a later report on "
            f"MLA writers (36207) the output was nonsense, and nothing raised; labengine's sampler ends the first such "
            f"step ({self.symptom()})."
        )


SCENARIO = ReservedPage()
