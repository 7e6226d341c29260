"""vLLM issue 55600: when a request continues after a hit, its state's column is counted in another group's blocks.

vLLM 0.31.0's worker finds the state from which a prefix hit continues by its column in the state group's block table:
(computed tokens - 1) // cache_config.block_size. By then that is the smallest block size of the groups that take part
in prefix caching, but a column of the table is as long as the state group's blocks. With blocks of 4 and 16 a hit of 32
tokens asks for column 7 instead of 1. A row of the worker's table begins with zeros, so column 7 holds the null block,
or an id that an earlier request left in the row; beyond the row's end the copy reads other memory. 0.32.0 counts in
mamba_block_size.
"""

from __future__ import annotations

from labengine.core.request import Request, RequestStatus
from labengine.core.vllm.state_group import VllmStateGroup
from labengine.lab import Lab
from labengine.scenarios.counts import num_hit_tokens, num_misread_blocks
from labengine.scenarios.scenario import Column, Scenario


class CountsInSmallestBlocks(VllmStateGroup):
    """Finds a hit's state by a column counted in blocks of the smallest group."""

    def state_entry(self, request: Request) -> int:
        """Return that column, or a null entry if the table lacks it."""
        if request.status is RequestStatus.RUNNING:
            return super().state_entry(request)
        table, num_tokens = request.block_tables[self.index], request.num_computed_tokens
        column = (num_tokens - 1) // min(group.block_size for group in self._config.groups)
        return column if column < len(table) else table.index(self._pool.null_block)


class StateColumn(Scenario):
    """Two equal prompts of 33 tokens, one after the other; blocks of 4 for attention and of 16 for states."""

    columns = (Column("vllm", CountsInSmallestBlocks), Column("vllm"))
    figures = {
        "states misread": num_misread_blocks,
        "tokens hit by B": lambda lab: num_hit_tokens(lab, 1),
    }

    def play(self, lab: Lab) -> None:
        """Run A to its end, then B with the same prompt."""
        for _ in range(2):
            lab.add(token_ids=range(1, 34), max_tokens=3)
            lab.run()
