"""A review of Diffulex pull request 44: do rows that a smaller batch leaves keep their slot mapping? They do not.

After a batch of four a batch of three runs in the same graph. If the fourth row's slot is not reset, the row writes
the KV of its padding token where the request that has left wrote last. That block is another request's by then. Such a
runner is played here, beside one that resets the slots. Diffulex resets them: the claim is false.
"""

from __future__ import annotations

from labengine.lab import Lab
from labengine.scenarios.scenario import Column
from labengine.scenarios.tiny_model import TinyModelScenario


class StaleSlots(TinyModelScenario):
    """Two of four requests end; a new one gets a block into which a row without a request still writes."""

    columns = (Column("labengine", runner="WritesStaleSlots"), Column("labengine", runner="StaticRunner"))

    def play(self, lab: Lab) -> None:
        """Run four, of which the first and the last end together; then one more."""
        for number, num_tokens in enumerate((4, 12, 12, 4)):
            first = 10 + 20 * number
            lab.add(token_ids=range(first, first + 6), max_tokens=num_tokens, ignore_eos=True)
        lab.step(4)
        lab.add(token_ids=range(5, 13), max_tokens=8, ignore_eos=True)
        lab.run()
