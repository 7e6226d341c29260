"""nano-vLLM issue 190: the block table of a recorded decode is one column short.

The table is captured with as many columns as the longest prompt fills. The first token after such a prompt begins one
more block. The report's second point is that columns are not cleared between steps.
"""

from __future__ import annotations

from labengine.lab import Lab
from labengine.scenarios.scenario import Column
from labengine.scenarios.tiny_model import TinyModelScenario


class GraphTable(TinyModelScenario):
    """Prompts of 16 tokens in blocks of 4, and a table of 4 columns."""

    columns = (
        Column("nano-vllm", runner="OneColumnShort"),
        Column("nano-vllm", runner="StaticRunner"),
        Column("nano-vllm", runner="WideAndCleared"),
        Column("nano-vllm", runner="OneColumnMore"),
    )

    def play(self, lab: Lab) -> None:
        """Run two long prompts and a short one, then two short ones in the rows they leave."""
        for first, length in ((10, 16), (40, 16), (80, 5)):
            lab.add(token_ids=range(first, first + length), max_tokens=9, ignore_eos=True)
        lab.run()
        for first in (60, 70):
            lab.add(token_ids=range(first, first + 5), max_tokens=6, ignore_eos=True)
        lab.run()
