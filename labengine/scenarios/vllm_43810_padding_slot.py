"""vLLM issue 43810: a padded row's slot is -1, which Python's indexing takes for the last slot.

A recorded decode has a fixed number of rows. Rows without a request have slot -1, which a kernel skips. Code that
computes block -1 // block_size and offset -1 % block_size instead writes the last slot of the pool's last block.
In vLLM that was the cache of hidden states (extract_hidden_states). Here it is the KV store, so that tokens show it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from labengine.lab import Lab
from labengine.scenarios.scenario import Column
from labengine.scenarios.tiny_model import TinyModelScenario


class PaddingSlot(TinyModelScenario):
    """Three decodes in a graph of four rows, while the pool's last block holds a prompt."""

    columns = (
        Column("labengine", runner="WritesTheLastSlot"),
        Column("labengine", runner="StaticRunner"),
        Column("labengine"),
    )
    prompt = tuple(range(10, 18))

    def opening(self, lab: Lab) -> None:
        """Use and free six blocks, so that the next requests get the last six; compute prompts; decode five times."""
        lab.generate([range(60, 84)], max_tokens=1, ignore_eos=True)
        lab.add(token_ids=range(30, 35), max_tokens=6, ignore_eos=True)
        lab.add(token_ids=range(40, 45), max_tokens=6, ignore_eos=True)
        lab.add(token_ids=self.prompt, max_tokens=6, ignore_eos=True)
        lab.run()

    def play(self, lab: Lab) -> None:
        """Run the three requests, then one that hits D's remaining blocks."""
        self.opening(lab)
        for act in self.follow_up_acts():
            act(lab)

    def follow_up_acts(self) -> tuple[Callable[[Lab], Any], ...]:
        """Return the acts that run a request alone that continues D's prompt."""
        steps = (Lab.step,) * 6
        return (lambda lab: lab.add(token_ids=[*self.prompt, 20], max_tokens=6, ignore_eos=True), *steps)
