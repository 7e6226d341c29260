"""vLLM pull request 7018: in a batch with a prefix hit, the block tables of the prompts without one are zeros.

Without hits, prompts attend to the keys at hand, and no table is needed. With one hit in the batch, all rows read the
cache through their tables: those of the misses were never filled.
"""

from __future__ import annotations

from labengine.events import PrefixHit, SlotsWritten, TokenSampled
from labengine.lab import Lab
from labengine.scenarios.scenario import Column, GuideStop, Table, sentences, settings
from labengine.scenarios.tiny_model import TinyModelScenario


class TablesOfMisses(TinyModelScenario):
    """A prompt with a hit and one without, in one batch."""

    id = "vllm-7018"
    title = "A miss beside a hit reads block 0"
    url = "https://github.com/vllm-project/vllm/pull/7018"
    upstream = "Merged: pull request 7018."
    kind = "block table"
    breaks = "A prompt without a hit gets a table of zeros when another prompt of its batch has one: it reads block 0."
    claim = (
        "If only some requests of a batch hit the prefix cache, flash attention reads all of them through block tables "
        "such as [[1, 2, 3, 4], [0, 0, 0, 0]]: wrong results, or an invalid memory access."
    )
    question = "A prompt with a hit and one without in a batch: how many tokens are wrong?"
    columns = (
        Column("zeros", "vllm", "Fills tables of hits only: misses read block 0.", "EmptyTablesForMisses"),
        Column("all rows", "vllm", "Fills every row's table."),
        Column("no table", "vllm", "ssd 23: passes no table, the cache is read as one piece.", "NoTables"),
    )
    settings = settings(num_blocks=24, block_size=4, device="cpu")
    prefix = tuple(range(10, 20))
    guide = (
        GuideStop("A has run, and its first two blocks are in the map.", TokenSampled),
        GuideStop(
            "B begins as A did, and hits 8 tokens.", PrefixHit, lambda event: event.request_id == 1 and event.num_tokens
        ),
        GuideStop("C, in the same batch, hits nothing.", PrefixHit, lambda event: event.request_id == 2),
        GuideStop(
            "The KV of all new tokens is written by slot, to the right blocks on both sides.",
            SlotsWritten,
            lambda event: event.request_id == 2,
        ),
        GuideStop(
            "Left, C has attended through a table of zeros: to block 0, four times over. Its first token is wrong, and "
            "all later ones follow from it.",
            TokenSampled,
            lambda event: event.request_id == 2,
        ),
    )
    sentences = sentences(guide)

    def play(self, lab: Lab) -> None:
        """Run A; then B, which hits A's blocks, and C, which does not, in one batch."""
        lab.generate([self.prefix], max_tokens=1, ignore_eos=True)
        lab.add(token_ids=[*self.prefix[:8], 50, 51, 52], max_tokens=6, ignore_eos=True)
        lab.add(token_ids=range(60, 74), max_tokens=6, ignore_eos=True)
        lab.run()

    def answer(self, table: Table) -> str:
        """State the figures of both defects."""
        broken, fixed, contiguous = table.columns.values()
        return (
            f"{broken['wrong tokens']} of {broken['tokens']} tokens are wrong with zeros in the table of the miss, "
            f"{fixed['wrong tokens']} with every table filled. Without any table (ssd 23) rows with a hit are wrong "
            f"too: {contiguous['wrong tokens']} tokens."
        )


SCENARIO = TablesOfMisses()
