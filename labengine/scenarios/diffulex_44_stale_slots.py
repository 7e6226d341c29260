"""Diffulex pull request 44: rows that a smaller batch leaves in a graph keep their slot mapping.

After a batch of four a batch of three runs in the same graph. If the fourth row's slot is not reset, the row writes
the KV of its padding token where the request that has left wrote last. That block is another request's by then.
"""

from __future__ import annotations

from labengine.events import BlockAllocated, RequestFinished, StepEnded, TokenSampled
from labengine.lab import Lab
from labengine.scenarios.scenario import Column, GuideStop, Table, sentences, settings
from labengine.scenarios.tiny_model import TinyModelScenario


class StaleSlots(TinyModelScenario):
    """Two of four requests end; a new one gets a block into which a row without a request still writes."""

    id = "diffulex-44"
    title = "A row without a request writes its old slot"
    url = "https://github.com/SJTU-DENG-Lab/Diffulex/pull/44"
    upstream = "Pull request 44 resets the slot mapping of the rows that a smaller batch leaves. State not known."
    kind = "padding"
    breaks = "The slot mapping of a graph's padded row is stale: a block that another request has now is overwritten."
    claim = (
        "After the replay of a larger batch, trailing slots and page tables of padded rows stay as they were, so that "
        "these rows become active again and use stale KV slots; filling the slots with -1 mends it."
    )
    question = "Four requests, then three in the same graph: how many tokens are wrong?"
    columns = (
        Column(
            "stale",
            "labengine",
            "Resets token, position and context of a padded row, not its slot.",
            "WritesStaleSlots",
        ),
        Column("reset", "labengine", "Resets the slot too: -1, which is not written.", "StaticRunner"),
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
            f"{fixed['wrong tokens']} with -1. The thread is a review that read the code; nobody ran it there. It also "
            f"names stale page tables: those do no harm where the context of a padded row is 0."
        )


SCENARIO = StaleSlots()
