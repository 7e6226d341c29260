"""nano-vLLM issue 190: the block table of a recorded decode is one column short.

The table is captured with as many columns as the longest prompt fills. The first token after such a prompt opens one
more block. The report's second point is that columns are not cleared between steps.
"""

from __future__ import annotations

from labengine.events import BlockAllocated, SlotsWritten, TokenSampled
from labengine.lab import Lab
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import Column, GuideStop, Table, sentences, settings
from labengine.scenarios.tiny_model import TinyModelScenario


class GraphTable(TinyModelScenario):
    """Prompts of 16 tokens in blocks of 4, and a table of 4 columns."""

    id = "nano-vllm-190"
    title = "A recorded block table is one column short"
    report = Report(
        repository="GeeeekExplorer/nano-vllm",
        kind="issue",
        number="190",
        title="CUDA graph replay can fail with block_tables shape mismatch",
        state="open",
        as_of="2026-08-26",
        seen_in="commits a5a4909 (2025-06-10) to bb823b3 (2026-04-26)",
        needs=(
            "CUDA graphs (`enforce_eager=False`)",
            "a context longer than `max_model_len`, rounded up to blocks",
        ),
    )
    kind = "block table"
    breaks = "The first token after the longest prompt has no column: its row reads on in the next row's table."
    claim = (
        "The captured block table can be narrower than the one at run time, by a column; and it is not cleared before "
        "a step's values are copied, which is a second error. One column more, and -1 in all others, mends both."
    )
    conclusion = Conclusion(
        answer="holds in part",
        reason=(
            "The table is as wide as `max_model_len` fills, and a longer context needs more: that holds. "
            "One column more covers one block more and no longer context, so it mends the tokens of "
            "that block only; and ids that are not cleared are never read. Pull request 258 falls back to eager "
            "execution as well; it was closed without a merge."
        ),
        passages=(
            CodePassage(
                version="nano-vllm bb823b3",
                file="nanovllm/engine/model_runner.py",
                line=227,
                text="max_num_blocks = (config.max_model_len + self.block_size - 1) // self.block_size",
                says="The width of the table.",
            ),
            CodePassage(
                version="nano-vllm bb823b3",
                file="nanovllm/engine/model_runner.py",
                line=210,
                text='graph_vars["block_tables"][:bs, :context.block_tables.size(1)] = context.block_tables',
                says="A wider table does not fit: the copy raises.",
            ),
            CodePassage(
                version="nano-vllm bb823b3",
                file="nanovllm/engine/model_runner.py",
                line=208,
                text='graph_vars["context_lens"].zero_()',
                says="Context lengths are cleared: no row reads behind its context.",
            ),
            ThreadPassage(
                source="GeeeekExplorer/nano-vllm 258",
                says=(
                    "A table of 16 columns fails at the first decode behind a prompt of 4,096 tokens, and one of "
                    "17 gives both tokens asked for."
                ),
            ),
        ),
    )
    question = "Prompts of 16 tokens, a table for 16, and eight decodes behind it: how many tokens are wrong?"
    columns = (
        Column(
            "for prompts", "nano-vllm", "The longest prompt's columns; what does not fit is left out.", "OneColumnShort"
        ),
        Column("for contexts", "nano-vllm", "A column for every block; stale ids are not cleared.", "StaticRunner"),
        Column("cleared", "nano-vllm", "A column for every block, and -1 where no block is.", "WideAndCleared"),
        Column("one more", "nano-vllm", "As proposed: one column more, and -1 where no block is.", "OneColumnMore"),
    )
    settings = settings(num_blocks=24, block_size=4, device="cpu")
    guide = (
        GuideStop(
            "A and B have prompts of 16 tokens: four full blocks each, and tables of four entries.",
            SlotsWritten,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "Position 16 opens a fifth block. The recorded table on the left has four columns.",
            BlockAllocated,
            lambda event: event.index == 4,
        ),
        GuideStop(
            "Its KV is written where it belongs, by the slot mapping. But it is read through the table: left, the "
            "fifth entry of A's row is the first of B's.",
            SlotsWritten,
            lambda event: event.start == 16,
            about_slots=True,
        ),
        GuideStop(
            "The token rests on B's first block instead of A's newest one.",
            TokenSampled,
            lambda event: event.position >= 17,
        ),
    )
    sentences = sentences(guide)

    def play(self, lab: Lab) -> None:
        """Run two long prompts and a short one, then two short ones in the rows that they leave."""
        for first, length in ((10, 16), (40, 16), (80, 5)):
            lab.add(token_ids=range(first, first + length), max_tokens=9, ignore_eos=True)
        lab.run()
        for first in (60, 70):
            lab.add(token_ids=range(first, first + 5), max_tokens=6, ignore_eos=True)
        lab.run()

    def answer(self, table: Table) -> str:
        """State the figures of both points of the report, and of its proposal."""
        broken, fixed, cleared, proposed = table.columns.values()
        return (
            f"The first point holds: {broken['wrong tokens']} of {broken['tokens']} tokens are wrong with a table for "
            f"the prompts, and {fixed['wrong tokens']} with a column for every block. (Here what fits is copied; "
            f"nano-vLLM copies the wider table as a whole, so that the copy raises: expanded size 16, existing size "
            f"17.) One column more, as proposed, covers one block more and leaves {proposed['wrong tokens']} wrong. "
            f"The second point does not hold: stale "
            f"columns that are not cleared give {fixed['wrong tokens']} wrong tokens, as many as with -1 in them "
            f"({cleared['wrong tokens']}), for no row reads behind its context."
        )


SCENARIO = GraphTable()
