"""nano-vLLM issue 190: the block table of a recorded decode is one column short.

The table is captured with as many columns as the longest prompt fills. The first token after such a prompt opens one
more block. The report's second point is that columns are not cleared between steps.
"""

from __future__ import annotations

from labengine.events import BlockAllocated, SlotsWritten, TokenSampled
from labengine.lab import Lab
from labengine.scenarios.scenario import Column, GuideStop, Table, sentences, settings
from labengine.scenarios.tiny_model import TinyModelScenario


class GraphTable(TinyModelScenario):
    """Prompts of 16 tokens in blocks of 4, and a table of 4 columns."""

    id = "nano-vllm-190"
    title = "A recorded block table is one column short"
    url = "https://github.com/GeeeekExplorer/nano-vllm/issues/190"
    upstream = "Pull request 258 adds the column; not in commit bb823b3 (April 2026)."
    kind = "block table"
    breaks = "The first token after the longest prompt has no column: its row reads on in the next row's table."
    claim = (
        "The captured block table can be narrower than the one at run time, by a column; and it is not cleared before "
        "a step's values are copied, which is a second error. One column more, and -1 in all others, mends both."
    )
    question = "Prompts of 16 tokens, a table for 16, and eight decodes: how many tokens are wrong?"
    columns = (
        Column(
            "for prompts", "nano-vllm", "The longest prompt's columns; what does not fit is left out.", "OneColumnShort"
        ),
        Column("for contexts", "nano-vllm", "A column for every block; stale ids are not cleared.", "StaticRunner"),
        Column("cleared", "nano-vllm", "A column for every block, and -1 where no block is.", "WideAndCleared"),
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
        """State the figures of both points of the report."""
        broken, fixed, cleared = table.columns.values()
        return (
            f"The first point holds: {broken['wrong tokens']} of {broken['tokens']} tokens are wrong with the column "
            f"missing, {fixed['wrong tokens']} with it. (nano-vLLM copies the wider table as a whole, so that the copy "
            f"raises: expanded size 16, existing size 17. Here what fits is copied.) The second does not: stale "
            f"columns that are not cleared give {fixed['wrong tokens']} wrong tokens, as many as with -1 in them "
            f"({cleared['wrong tokens']}), for no row reads behind its context."
        )


SCENARIO = GraphTable()
