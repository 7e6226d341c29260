"""A review of Diffulex pull request 44: do rows left over by a smaller batch keep their slot mapping? They do not.

After a batch of four, a batch of three runs in the same graph. If the fourth row's slot is not reset, the row writes
the KV of its padding token where the departed request wrote last. By then, that block belongs to another request. This
scenario plays such a runner beside one that resets the slots. Diffulex resets them: the claim is false.
"""

from __future__ import annotations

from labengine.lab import Lab
from labengine.scenarios.scenario import Column
from labengine.scenarios.tiny_model import TinyModelScenario


class StaleSlots(TinyModelScenario):
    """Two of four requests end; a new request gets a block to which a row without a request still writes."""

    columns = (Column("labengine", runner="WritesStaleSlots"), Column("labengine", runner="StaticRunner"))

    def play(self, lab: Lab) -> None:
        """Run four requests, the first and last of which end together; then one more."""
        for number, num_tokens in enumerate((4, 12, 12, 4)):
            first = 10 + 20 * number
            lab.add(token_ids=range(first, first + 6), max_tokens=num_tokens, ignore_eos=True)
        lab.step(4)
        lab.add(token_ids=range(5, 13), max_tokens=8, ignore_eos=True)
        lab.run()
