"""vLLM pull request 7018: in a batch with a prefix hit, the block tables of prompts without a hit are zeros.

vLLM's V0 engine with FlashAttention: without hits, prompts attend to the keys at hand and need no table. With one hit
in the batch, all rows read the cache through their tables. Up to 0.5.3.post1 the tables of the misses were not filled,
except with chunked prefill. Here a tiny model of labengine stands for the kernel.
"""

from __future__ import annotations

from labengine.lab import Lab
from labengine.scenarios.scenario import Column
from labengine.scenarios.tiny_model import TinyModelScenario


class TablesOfMisses(TinyModelScenario):
    """A prompt with a hit and one without, in one batch."""

    columns = (Column("vllm", runner="EmptyTablesForMisses"), Column("vllm"), Column("vllm", runner="NoTables"))
    prefix = tuple(range(10, 20))

    def play(self, lab: Lab) -> None:
        """Run A, then B, which hits A's blocks, and C, which does not, in one batch."""
        lab.generate([self.prefix], max_tokens=1, ignore_eos=True)
        lab.add(token_ids=[*self.prefix[:8], 50, 51, 52], max_tokens=6, ignore_eos=True)
        lab.add(token_ids=range(60, 74), max_tokens=6, ignore_eos=True)
        lab.run()
