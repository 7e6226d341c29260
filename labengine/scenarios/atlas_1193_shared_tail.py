"""Atlas issue 1193 (and pull request 692): a prefix hit shares a block that is not full, and nothing copies it.

The prefix cache matched inside a block. The requester got the donor's last block itself, and wrote its next tokens
after the match, where the donor also writes. Equal prompts in lockstep write the same tokens, so it looked right; from
the first difference on, every sequence reads a mix.
"""

from __future__ import annotations

from labengine.events import SlotsWritten
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_misread_requests
from labengine.scenarios.scenario import Column, Scenario
from labengine.scenarios.shared_tails import SHARES_TAILS


class SharedTail(Scenario):
    """A decodes; three prompts begin with six of its seven prompt tokens and continue differently."""

    columns = (Column("vllm", SHARES_TAILS), Column("vllm"))

    def play(self, lab: Lab) -> None:
        """Run A's prompt, then three prompts that share six tokens with it, for two steps."""
        shared = list(range(1, 7))
        lab.add(token_ids=[*shared, 50], max_tokens=6)
        lab.step()
        for last in (60, 70, 80):
            lab.add(token_ids=[*shared, last], max_tokens=6)
        lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count requests that misread, and requests that wrote to another's block."""
        written: dict[int, set[int]] = {}
        for event in events_of(lab, SlotsWritten):
            for block_id, _, _ in event.runs:
                written.setdefault(block_id, set()).add(event.request_id)
        return {
            "requests": 4,
            "of them misread": num_misread_requests(lab),
            "writers of one block": max(map(len, written.values())),
        }
