"""A review of Diffulex pull request 44: do rows that a smaller batch leaves keep their slot mapping? They do not.

After a batch of four a batch of three runs in the same graph. If the fourth row's slot is not reset, the row writes
the KV of its padding token where the request that has left wrote last. That block is another request's by then. Such a
runner is played here, beside one that resets the slots. Diffulex resets them: the claim is false.
"""

from __future__ import annotations

from labengine.events import BlockAllocated, RequestFinished, StepEnded, TokenSampled
from labengine.lab import Lab
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import Column, GuideStop, Table, sentences, settings
from labengine.scenarios.tiny_model import TinyModelScenario


class StaleSlots(TinyModelScenario):
    """Two of four requests end; a new one gets a block into which a row without a request still writes."""

    id = "diffulex-44"
    title = "A row without a request writes its old slot: a claim that is false"
    report = Report(
        repository="SJTU-DENG-Lab/Diffulex",
        kind="review",
        number="44",
        title="Feat/fast dllm v2 dual cache",
        state="merged",
        as_of="2026-06-27",
        seen_in="no version; commit 184ba97 (2026-06-27) was read",
        needs=("CUDA graphs, and a batch that is smaller than the recorded one",),
    )
    kind = "padding"
    breaks = "The slot mapping of a graph's padded row is stale: a block that another request has now is overwritten."
    claim = (
        "After the replay of a larger batch, trailing slots and page tables of padded rows stay as they were, so that "
        "these rows become active again and use stale KV slots; filling the slots with -1 mends it."
    )
    conclusion = Conclusion(
        answer="does not hold",
        reason=(
            "Before every replay `_copy_common_graph_inputs` fills slot mapping and page tables with -1 "
            "in all rows, padded ones too, and it did so before the pull request. Nothing was to be "
            "mended."
        ),
        passages=(
            CodePassage(
                version="diffulex 184ba97",
                file="diffulex/mixin/multi_block/model_runner.py",
                line=464,
                text="value.fill_(-1)",
                says="All of the slot mapping and of the page tables is -1 before the values of a step are copied.",
            ),
            CodePassage(
                version="diffulex 184ba97",
                file="diffulex/mixin/multi_block/model_runner.py",
                line=470,
                text='graph_vars["slot_mapping"][:num_tokens] = attn_metadata.slot_mapping',
                says="Only the rows of the step are filled.",
            ),
            ThreadPassage(
                source="SJTU-DENG-Lab/Diffulex 44",
                says=(
                    "The comment of a review bot (2026-06-25): trailing slots and page tables may stay from a "
                    "larger batch."
                ),
            ),
        ),
    )
    question = "Four requests, then three in the same graph: how many tokens are wrong?"
    columns = (
        Column(
            "stale",
            "labengine",
            "As the claim has it, and Diffulex does not: the slot of a padded row stays.",
            "WritesStaleSlots",
        ),
        Column("reset", "labengine", "Resets the slot: -1, which is not written. So does Diffulex.", "StaticRunner"),
    )
    settings = settings(num_blocks=16, block_size=4, device="cpu")
    guide = (
        GuideStop(
            "Four requests decode in a graph of four rows. D, in the last row, ends: its rows of KV are free.",
            RequestFinished,
            lambda event: event.request_id == 3,
        ),
        GuideStop(
            "E is admitted, and gets the block that D wrote last: it has no hash, and is reused first.",
            BlockAllocated,
            lambda event: event.request_id == 4,
        ),
        GuideStop("E's prompt is computed without a graph. Both sides hold the same KV.", StepEnded),
        GuideStop(
            "Three requests decode, and the fourth row is padding. Left, its slot is still D's last one: token 0 at "
            "position 0 overwrites the KV of E there, in each step.",
            TokenSampled,
            lambda event: event.request_id == 4,
            about_slots=True,
        ),
    )
    sentences = sentences(guide)

    def play(self, lab: Lab) -> None:
        """Run four, of which the first and the last end together; then one more."""
        for number, num_tokens in enumerate((4, 12, 12, 4)):
            first = 10 + 20 * number
            lab.add(token_ids=range(first, first + 6), max_tokens=num_tokens, ignore_eos=True)
        for _ in range(4):
            lab.step()
        lab.add(token_ids=range(5, 13), max_tokens=8, ignore_eos=True)
        lab.run()

    def answer(self, table: Table) -> str:
        """State the figures, and the source of the report."""
        broken, fixed = table.columns.values()
        return (
            f"{broken['wrong tokens']} of {broken['tokens']} tokens are wrong with a stale slot mapping, and "
            f"{fixed['wrong tokens']} with -1. So the claim names a real kind of defect. Diffulex has not got it: "
            f"it fills both tables with -1 before every replay. Stale page tables, which the claim names as well, do "
            f"no harm here: the context of a padded row is 0."
        )


SCENARIO = StaleSlots()
