"""imp issue 963, fixed by pull request 967: a window kept in whole blocks from the end is one block short.

When the pool was nearly full, imp kept the last ceil(window / block_size) blocks of a request (StreamingLLM: 4 sinks
and a window of 4,096). Attention reads `window` tokens back from the newest one, and unless that one ends a block, they
lie in one block more. With the GPU's memory full the read ended in an illegal access. With memory to spare it was
silent garbage: the issue calls that model unaffected.
"""

from __future__ import annotations

from labengine.config import GroupSpec
from labengine.core.editions import LABENGINE
from labengine.core.parts import Parts
from labengine.core.sliding_window import SlidingWindowGroup
from labengine.events import BlockFreed, RequestScheduled, SlotsWritten
from labengine.lab import Lab
from labengine.scenarios.report import Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import Column, GuideStop, Scenario, Table, sentences, settings

WINDOW, BLOCK_SIZE = 8, 4


class WindowRoundedUp(SlidingWindowGroup):
    """Keeps the last blocks, as many as a window fills."""

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """Return all tokens before the last ceil(window / block_size) blocks, the next token's block included."""
        num_blocks = self._num_blocks(num_computed_tokens + 1)
        return max(0, num_blocks - self._num_blocks(self.window)) * self.block_size


WINDOW_ROUNDED_UP = Parts(name="labengine, window rounded up", sliding_window_group=WindowRoundedUp).overriding(
    LABENGINE
)


class RoundedUp(Scenario):
    """One request that decodes behind a prompt of whole blocks."""

    id = "imp-963"
    title = "A window in whole blocks is one block short"
    report = Report(
        repository="kekzl/imp",
        kind="issue",
        number="963",
        title="Qwen3.6-35B-A3B-NVFP4: illegal memory access at 16k context (works at 14336; GGUF variant unaffected)",
        state="closed",
        as_of="2026-07-11",
        seen_in="July 2026",
        mended_in="pull request 967, which keeps one block more",
        needs=(
            (
                "a prompt that fills 90 % of the KV pool: StreamingLLM then turns itself on, with 4 sinks and "
                "a window of 4,096"
            ),
        ),
    )
    claim = (
        "Eviction keeps ceil(window / block_size) blocks from the end, while attention starts at the window's first "
        "token rounded down to a block: on every step whose length is no multiple of the block size it reads a block "
        "that was freed."
    )
    conclusion = Conclusion(
        answer="holds",
        reason=(
            "Eviction counted blocks from the end, the kernels from the window's first token rounded "
            "down: they differ by a block unless the length ends one."
        ),
        passages=(
            ThreadPassage(
                source="kekzl/imp 967",
                says=(
                    "It states both formulas, and that the file in another format read the same freed blocks, "
                    "from memory that was mapped."
                ),
            ),
        ),
    )
    kind = "window"
    breaks = "The first block of the window is freed while its last tokens are still read."
    wrong_figure = "of them with a block missing"
    seen_by = ("window", "read")
    question = "A window of 8 tokens in blocks of 4: in how many of 8 decode steps is it there?"
    roles = ("the bug: two blocks from the end", "correct: from the window's first token")
    columns = (
        Column(
            "blocks from the end",
            WINDOW_ROUNDED_UP,
            "Keeps ceil(window / block_size) blocks: two, for a window of 8.",
        ),
        Column(
            "window's first token", "labengine", "Keeps each block that a token of the window lies in: three at most."
        ),
    )
    settings = settings(num_blocks=8, groups=(GroupSpec(BLOCK_SIZE, "sliding_window", WINDOW),))
    guide = (
        GuideStop(
            "The prompt fills two blocks. Position 8 opens a third one.",
            RequestScheduled,
            lambda event: event.start == 0,
        ),
        GuideStop(
            "Left, two blocks are enough for a window of 8: the first is freed. The window of position 8 begins at "
            "position 1, in that block.",
            BlockFreed,
            lambda event: event.reason == "window" and event.index == 0,
        ),
        GuideStop(
            "The decode runs. Left, entry 0 of the table is null, and attention reads through it.",
            SlotsWritten,
            lambda event: event.start == 8,
        ),
        GuideStop(
            "Position 11 ends a block: its window begins at position 4, and nothing is missing, on either side.",
            SlotsWritten,
            lambda event: event.start == 11,
        ),
        GuideStop(
            "Position 12 opens the next block, and left the window is one block short again.",
            SlotsWritten,
            lambda event: event.start == 12,
        ),
    )
    sentences = sentences(guide)

    def play(self, lab: Lab) -> None:
        """Run a prompt of two blocks, and eight decodes."""
        lab.add(token_ids=range(1, 9), max_tokens=9)
        for _ in range(9):
            lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the decode steps, and those that read a block which was freed before."""
        assert lab.timeline is not None
        num_freed, num_decodes, num_short = 0, 0, 0
        for event in lab.timeline.events():
            if isinstance(event, BlockFreed) and event.reason == "window":
                num_freed = max(num_freed, event.index + 1)
            if isinstance(event, RequestScheduled) and not event.is_prefill:
                num_decodes += 1
                num_short += max(0, event.start - WINDOW + 1) // BLOCK_SIZE < num_freed
        return {"decode steps": num_decodes, "of them with a block missing": num_short}

    def answer(self, table: Table) -> str:
        """State in which steps a block is missing."""
        wrong, right = (table[column.name] for column in self.columns)
        return (
            f"In {wrong['of them with a block missing']} of {wrong['decode steps']} decode steps a block of the window "
            f"is missing, and in {right['of them with a block missing']} with the window's own first token: only a "
            "token that ends a block has a window of whole blocks. The issue says that a second file of the model, in "
            "another format, is unaffected; pull request 967 found that it read the same freed blocks without a fault."
        )


SCENARIO = RoundedUp()
