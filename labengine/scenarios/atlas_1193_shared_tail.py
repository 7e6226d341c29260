"""Atlas issue 1193 (and pull request 692): a prefix hit shares a block that is not full, and nothing copies it.

The prefix cache matched inside a block. The requester got the donor's last block as it was, and wrote its own next
tokens behind the match, where the donor writes its own. Equal prompts in lockstep write the same, so it looked right;
with the first difference every sequence reads a mix.
"""

from __future__ import annotations

from collections.abc import Mapping

from labengine.events import BlockTouched, PrefixHit, SlotsWritten, StepEnded
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_misread_requests
from labengine.scenarios.report import Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import Column, GuideStop, Scenario, Table, sentences, settings
from labengine.scenarios.shared_tails import SHARES_TAILS


class SharedTail(Scenario):
    """A decodes; three prompts begin with six of its seven prompt tokens, and go on differently."""

    id = "atlas-1193"
    title = "A block that is not full is shared, and written by both"
    report = Report(
        repository="Avarok-Cybersecurity/atlas",
        kind="issue",
        number="1193",
        title="Prefix cache shares a partially-filled tail KV block with no copy-on-write (default ON)",
        state="closed",
        as_of="2026-09-21",
        seen_in="August 2026 (pull request 692), on by default",
        mended_in="commit 829a4c94f7: AVAROK_PREFIX_SUBBLOCK is off by default; it supersedes pull request 692",
        needs=(
            "AVAROK_PREFIX_SUBBLOCK on, the default then",
            "a hit that ends inside a block",
        ),
    )
    claim = (
        "The prefix cache hands a partially filled tail block to a second request without copy-on-write: two writers "
        "for one block, on by default."
    )
    conclusion = Conclusion(
        answer="holds",
        reason="Two sequences write one block. Equal sequences write the same; the first difference shows.",
        passages=(
            ThreadPassage(
                source="Avarok-Cybersecurity/atlas 692",
                says=(
                    "Measured: with four sequences none was right, and three gave the same wrong text. Closed as "
                    "superseded by 829a4c94f7."
                ),
            ),
            ThreadPassage(
                source="Avarok-Cybersecurity/atlas 692",
                says=(
                    "The maintainer corrects its second claim, an underflow of the count: the caller takes a "
                    "reference for the partial block."
                ),
            ),
        ),
    )
    kind = "partial tail"
    breaks = "Several requests write their own tokens to the same slots of one block."
    seen_by = ("write", "read", "named")
    question = "Four requests share six tokens, in blocks of 4: how many of them read their own KV?"
    roles = ("the bug: the tail is shared", "the fix: full blocks only")
    columns = (
        Column("tail shared", SHARES_TAILS, "A hit may end inside a block; the block is taken as it is."),
        Column("full blocks", "vllm", "A hit ends with a full block; the tokens behind it are computed again."),
    )
    settings = settings(num_blocks=12, block_size=4, hash_block_size=2)
    guide = (
        GuideStop(
            "B has six tokens in common with A. Left, the hit is all six: A's first block, and two tokens of its "
            "second, which is not full. Right, it is the first block.",
            PrefixHit,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "Left, A's second block is in B's table: two references. C and D do the same.",
            BlockTouched,
            lambda event: event.request_id == 1 and event.index == 1,
        ),
        GuideStop(
            "A writes position 7 to its second block. Its position 6 is there since the step before.",
            SlotsWritten,
            lambda event: event.request_id == 0 and event.start == 7,
        ),
        GuideStop(
            "B writes its own position 6. Left, that is the slot of A's, and C and D write it as well: the last one "
            "stays.",
            SlotsWritten,
            lambda event: event.request_id == 1,
            about_slots=True,
        ),
        GuideStop("After the step. Left, D alone has read what it wrote. Right, all four have.", StepEnded),
    )
    sentences = sentences(guide)

    def play(self, lab: Lab) -> None:
        """Run A's prompt; then three prompts that share six tokens with it, for two steps."""
        shared = list(range(1, 7))
        lab.add(token_ids=[*shared, 50], max_tokens=6)
        lab.step()
        for last in (60, 70, 80):
            lab.add(token_ids=[*shared, last], max_tokens=6)
        lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count requests that misread, and requests that wrote to a block of another."""
        written: dict[int, set[int]] = {}
        for event in events_of(lab, SlotsWritten):
            for block_id, _, _ in event.runs:
                written.setdefault(block_id, set()).add(event.request_id)
        return {
            "requests": 4,
            "of them misread": num_misread_requests(lab),
            "writers of one block": max(map(len, written.values())),
        }

    def is_wrong(self, measured: Mapping[str, int]) -> bool:
        """Return True if a block has two writers."""
        return measured["writers of one block"] > 1

    def answer(self, table: Table) -> str:
        """State who is right in the end, and what a full block costs."""
        wrong, right = (table[column.name] for column in self.columns)
        return (
            f"One block has {wrong['writers of one block']} writers, and {wrong['of them misread']} of "
            f"{wrong['requests']} requests read what the last of them wrote: the same wrong KV. Pull request 692 saw "
            f"0 of 4 right, three of them with the same wrong text. "
            f"With full blocks {right['of them misread']} misread, for two tokens "
            "each that are computed again. Pull request 692 also claims an underflow of the count; by the "
            "maintainer's correction that does not hold: the tail gets a reference like any hit."
        )


SCENARIO = SharedTail()
