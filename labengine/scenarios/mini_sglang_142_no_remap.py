"""mini-sglang pull request 142: a duplicate is freed, and the page table still points to it."""

from __future__ import annotations

from labengine.lab import Lab
from labengine.scenarios.counts import num_misread_requests, num_rules
from labengine.scenarios.scenario import Column, Scenario


class NoRemap(Scenario):
    """Two equal requests, of which one ends at once, and a third that takes the freed blocks of the other."""

    columns = (Column("mini-sglang"), Column("mini-sglang+142"))
    figures = {
        "rules broken": num_rules,
        "requests that misread": num_misread_requests,
    }

    def play(self, lab: Lab) -> None:
        """Run A and B for a step, then C's only step, and then a step in which B reads."""
        for max_tokens in (1, 4):
            lab.add(token_ids=range(1, 10), max_tokens=max_tokens)
        lab.step()
        lab.add(token_ids=range(101, 114), max_tokens=1)
        lab.step(2)
