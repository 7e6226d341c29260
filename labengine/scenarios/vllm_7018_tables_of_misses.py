"""vLLM pull request 7018: in a batch with a prefix hit, the block tables of the prompts without one are zeros.

vLLM's V0 engine with FlashAttention: without hits, prompts attend to the keys at hand, and no table is needed. With one
hit in the batch, all rows read the cache through their tables. Up to 0.5.3.post1 those of the misses were not filled.
(With chunked prefill they were. Here a tiny model of labengine takes the kernel's place.)
"""

from __future__ import annotations

from labengine.events import PrefixHit, SlotsWritten, TokenSampled
from labengine.lab import Lab
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import Column, GuideStop, Table, sentences, settings
from labengine.scenarios.tiny_model import TinyModelScenario


class TablesOfMisses(TinyModelScenario):
    """A prompt with a hit and one without, in one batch."""

    id = "vllm-7018"
    title = "A miss beside a hit reads block 0"
    report = Report(
        repository="vllm-project/vllm",
        kind="pull request",
        number="7018",
        title="[Bugfix] Fix block table for seqs that have prefix cache hits",
        state="merged",
        as_of="2024-09-06",
        seen_in="code of 0.5.3.post1 (V0)",
        mended_in="0.5.4 (7018)",
        needs=(
            "the V0 engine with the FlashAttention backend",
            "prefix caching, without chunked prefill",
            "a batch of prompts of which some have a hit and some have none",
        ),
    )
    kind = "block table"
    breaks = "A prompt without a hit gets a table of zeros when another prompt of its batch has one: it reads block 0."
    claim = (
        "If only some requests of a batch hit the prefix cache, flash attention reads all of them through block tables "
        "such as [[1, 2, 3, 4], [0, 0, 0, 0]]: wrong results, or an invalid memory access."
    )
    conclusion = Conclusion(
        answer="holds in part",
        reason=(
            "The tables follow from the code, and with them wrong results. That this is the cause of the invalid "
            "memory accesses is not shown: issue 8230 reports one in 0.5.5, after the fix."
        ),
        passages=(
            CodePassage(
                version="vllm 0.5.3.post1",
                file="vllm/attention/backends/flash_attn.py",
                line=255,
                text="if inter_data.prefix_cache_hit:",
                says="Each prompt's own hit decides whether its table is filled.",
            ),
            CodePassage(
                version="vllm 0.5.3.post1",
                file="vllm/attention/backends/flash_attn.py",
                line=536,
                text="block_table=prefill_meta.block_tables",
                says="If any table has an entry, every prompt is read through its row.",
            ),
            CodePassage(
                version="vllm 0.5.4",
                file="vllm/attention/backends/flash_attn.py",
                line=256,
                text="if prefix_cache_hit:",
                says="One hit in the batch fills every table.",
            ),
            ThreadPassage(
                source="vllm-project/vllm 8230",
                says="An invalid memory access with prefix caching in 0.5.5, with 7018 in it (2024-09-06).",
            ),
            ThreadPassage(
                source="tanishqkumar/ssd 23",
                says=(
                    "A defect of another engine, open as of 2026-07-30: with a hit the kernel gets no block table at "
                    "all."
                ),
            ),
        ),
    )
    question = "A prompt with a hit and one without in a batch: how many tokens are wrong?"
    columns = (
        Column(
            "zeros",
            "vllm",
            "Fills tables of hits only, as vLLM 0.5.3.post1: misses read block 0.",
            "EmptyTablesForMisses",
        ),
        Column("all rows", "vllm", "Fills every row's table, as vLLM since 0.5.4."),
        Column(
            "no table",
            "vllm",
            "As issue 23 of tanishqkumar/ssd has it: passes no table, the cache is read as one piece.",
            "NoTables",
        ),
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
            about_slots=True,
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
            f"{fixed['wrong tokens']} with every table filled. Without any table (tanishqkumar/ssd 23) rows with a hit "
            f"are wrong too: {contiguous['wrong tokens']} tokens."
        )


SCENARIO = TablesOfMisses()
