"""nano-vLLM issue 219 and pull request 243: equal prompts in one step leave two copies of every full block.

Two requests hash the same content at the end of a step, and the later one takes the map's entry. The pull request
merges instead. An older version hashed at allocation, and there the copies never came to be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from labengine.core.block import Block
from labengine.core.editions import NANO_VLLM_243
from labengine.core.merge_policy import LateMerge
from labengine.core.parts import Parts
from labengine.events import (
    BlockCached,
    PrefixHit,
    RequestAdded,
    RequestFinished,
    RequestScheduled,
    SlotsWritten,
    StepEnded,
)
from labengine.lab import Lab
from labengine.record.wording import listed
from labengine.scenarios.counts import events_of, num_computed_tokens, num_misread_requests, num_rules
from labengine.scenarios.nano_vllm_243_own_tokens import Collision
from labengine.scenarios.report import CodePassage, Conclusion, Report
from labengine.scenarios.scenario import (
    Column,
    Experiment,
    FirstWrong,
    GuideStop,
    Scenario,
    Table,
    sentences,
    settings,
    wrong_at,
)

TEXT = "This is a concurrent cache test prompt. " * 200

NANO = Column("nano-vllm", "nano-vllm", "Hashes what is computed; of two equal blocks the later one takes the entry.")
PR_243 = Column("nano-vllm+243", "nano-vllm+243", "Hashes as late, and merges: the later request uses the live block.")
EARLY = Column("nano-vllm-2025-07", "nano-vllm-2025-07", "Hashes at allocation: the second request finds the first's.")
OURS = Column("labengine", "labengine", "Merges as well, and compares everything that a hash stands for.")


def _add_c(lab: Lab) -> None:
    """Add C: 30 tokens of its own, so that it takes 8 blocks."""
    lab.add(token_ids=range(1000, 1030), max_tokens=1)


def _add_d(lab: Lab) -> None:
    """Add D, which has A's prompt."""
    prompt = lab.snapshot().requests[0]
    lab.add(token_ids=prompt.token_ids[: prompt.num_prompt_tokens], max_tokens=2)


FOLLOW_UP: tuple[Callable[[Lab], Any], ...] = (Lab.step, _add_c, Lab.step, _add_d, Lab.step)
"""B ends; C takes all free blocks and ends; D asks for what A still holds."""


class SameStep(Experiment):
    """Two equal prompts in one step."""

    question = "Two equal prompts, one step: what do they hold after it?"
    columns: ClassVar[tuple[Column, ...]] = (NANO, PR_243, EARLY, OURS)
    settings = settings(num_blocks=12, block_size=4)
    num_prompt_tokens = 14

    def play(self, lab: Lab) -> None:
        """Run A and B for one step. A will write more than B, so that the later cost can be seen."""
        for max_tokens in (8, 2):
            lab.add(token_ids=self.prompt(lab), temperature=1.0, max_tokens=max_tokens, ignore_eos=True)
        lab.step()

    def prompt(self, lab: Lab) -> list[int]:
        """Return the pull request's text, cut to num_prompt_tokens."""
        return lab.encode(TEXT)[: self.num_prompt_tokens]

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count blocks, hashes, and blocks that no look-up can find."""
        snapshot = lab.snapshot()
        hashes = {block.block_hashes for block in snapshot.blocks if block.ref_count and block.block_hashes}
        return {
            "used blocks": snapshot.num_used_blocks,
            "unique hashes": len(hashes),
            "lost blocks": len(snapshot.lost_blocks),
            "peak while computing": lab.stats().peak_used_blocks,
        }


class Script(SameStep):
    """The pull request's text and block size; the length is ours, its 200 sentences cut to 801 tokens."""

    question = "The script of the pull request, cut to 2 x 801 tokens, blocks of 256"
    columns = (NANO, PR_243)
    settings = settings(num_blocks=16, block_size=256)
    num_prompt_tokens = 801


class LostReuse(SameStep):
    """A goes on; B ends, C takes all free blocks, and D asks for what A still holds."""

    question = "A holds the prefix, its twin B is gone: how much of it does D find?"

    def play(self, lab: Lab) -> None:
        """Play the step, and what comes after it."""
        super().play(lab)
        for act in FOLLOW_UP:
            act(lab)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the full blocks of D's prompt that A holds, and those that D's look-up finds."""
        [hit] = [event for event in events_of(lab, PrefixHit) if event.request_id == 3]
        snapshot = lab.snapshot()
        table = snapshot.requests[0].block_tables[0][: self.num_prompt_tokens // 4]
        held = sum(bool(snapshot.blocks[block_id].block_hashes) for block_id in table)
        return {"full blocks that A holds": held, "full blocks that D finds": len(hit.block_ids[0])}

    def answer(self, table: Table) -> str:
        """State how much of the living blocks D can reuse."""
        found = [f"{column['full blocks that D finds']} with {name}" for name, column in table.columns.items()]
        held = table[NANO.name]["full blocks that A holds"]
        return f"Lost reuse: A holds {held} full blocks of D's prompt; D finds {listed(found)}."


class TradeOff(Experiment):
    """Eight equal requests: the effect of merging on memory and on compute."""

    question = "Is the overwrite a trade-off? 8 equal requests of 65 tokens, blocks of 16"
    columns = (EARLY, NANO, PR_243, OURS)
    settings = settings(num_blocks=48, block_size=16)

    def play(self, lab: Lab) -> None:
        """Run one step."""
        for _ in range(8):
            lab.add(token_ids=range(1, 66), max_tokens=4)
        lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the peak, the blocks after the step, and the computed and saved tokens."""
        computed = num_computed_tokens(lab)
        return {
            "peak while computing": lab.stats().peak_used_blocks,
            "blocks after the step": lab.snapshot().num_used_blocks,
            "tokens computed": computed,
            "tokens saved": 8 * 65 - computed,
        }

    def answer(self, table: Table) -> str:
        """State that overwriting gains nothing, and that hashing late is the trade-off."""
        early, nano, merged = (table[column.name] for column in (EARLY, NANO, PR_243))
        return (
            f"Is the overwrite a trade-off? It buys nothing but brevity: a merge takes the blocks after the step from "
            f"{nano['blocks after the step']} to {merged['blocks after the step']}. The trade-off is to hash late. "
            f"That promises no KV before it is computed, and pays with what no merge gives back: a peak of "
            f"{merged['peak while computing']} blocks, where hashing at allocation has "
            f"{early['peak while computing']}, and {merged['tokens computed']} tokens computed instead of "
            f"{early['tokens computed']}."
        )


class NoAliveCheck(LateMerge):
    """Merges into any block that the map names."""

    def is_alive(self, other: Block) -> bool:
        """Accept a freed block that the map still names: it gets a reference and stays in the free queue."""
        return True


class DanglingEntry(Experiment):
    """A ends in the step in which its equal B is hashed: the map leads B to a free block."""

    question = "The map names a block that was just freed: may B take it?"
    columns = (
        PR_243,
        Column(
            "no alive check",
            Parts(name="nano-vllm+243, no alive check", merge_policy=NoAliveCheck).overriding(NANO_VLLM_243),
            "Merges into the free block, which waits in the free queue for its next request.",
        ),
    )
    settings = settings(num_blocks=8, block_size=4)

    def play(self, lab: Lab) -> None:
        """Run A and B; then C, with blocks from the queue; then a step in which B reads the block it merged into."""
        prompt = list(range(1, 10))
        lab.add(token_ids=prompt, max_tokens=1)
        lab.add(token_ids=prompt, max_tokens=6)
        lab.step()
        lab.add(token_ids=range(101, 118), max_tokens=6)
        lab.step()
        lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count broken rules and misreads."""
        return {"rules broken": num_rules(lab), "wrong reads": num_misread_requests(lab)}

    def answer(self, table: Table) -> str:
        """State that B may not take the freed block."""
        rules = table["no alive check"]["rules broken"]
        return (
            f"A dangling entry must not be reused without asking whether the block is alive: B would count on a block "
            f"that waits in the free queue, C gets the same block, and B reads C's KV ({rules} rules broken). Taken as "
            f"a miss, and overwritten, it is harmless ({table[PR_243.name]['rules broken']} broken)."
        )


class DuplicateBlocks(SameStep, Scenario):
    """Issue 219, with the pull request's fix and two engines that do not have the defect."""

    id = "nano-vllm-219"
    title = "Equal prompts in one step leave two copies of every block"
    report = Report(
        repository="GeeeekExplorer/nano-vllm",
        kind="issue",
        number="219",
        title="[Discussion] Duplicate blocks for same-step prefix sharing",
        state="open",
        as_of="2026-06-15",
        seen_in="commit bb823b3 (2026-04-26), where pull request 218 moved hashing behind the computation",
        needs=("two equal prefixes of at least one full block, prefilled in one step",),
    )
    claim = (
        "Requests with the same prefix that are scheduled in the same step overwrite each other's entries in the hash "
        "map: two identical blocks stay in memory, and the one without an entry can no longer be reused."
    )
    conclusion = Conclusion(
        answer="holds",
        reason=(
            "Each request that hashes a block sets the map's entry to its own, so that the later one of two equal "
            "blocks is found, and the earlier one is not. Pull request 243, open as well, merges them."
        ),
        passages=(
            CodePassage(
                version="nano-vllm bb823b3",
                file="nanovllm/engine/block_manager.py",
                line=120,
                text="self.hash_to_block_id[h] = block.block_id",
                says="The entry is set without a look at the one that is there.",
            ),
        ),
    )
    kind = "duplicate"
    breaks = "A live block loses its map entry to an equal one: memory holds both, and look-ups find only the later."
    wrong_figure = "lost blocks"
    why_unseen = (
        "Each block is referenced, registered and read correctly: two copies cost memory, and no rule forbids them in "
        "an edition that does not merge."
    )
    roles = ("the bug: as issue 219 found it", "the fix: with pull request 243")
    guide = (
        GuideStop(
            "Two requests with the same prompt, A and B, are in the waiting queue. All 12 blocks are free.",
            RequestAdded,
        ),
        GuideStop(
            "A and B look their prompt up before either is computed: both miss. Each takes 4 blocks: 8 used.",
            RequestScheduled,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "The same keys and values are computed twice. The same letter is the same content: p, q and r are there in "
            "two copies.",
            SlotsWritten,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "A's full blocks are registered first: the prefix map leads to #0, #1 and #2. Up to here both engines do "
            "the same.",
            BlockCached,
            lambda event: event.request_id == 0 and event.index == 2,
            "How many blocks will be used after this step?",
        ),
        GuideStop(
            "Next comes B's block #4 with content p, whose hash is in the map already: the first difference. Left, #4 "
            "takes the entry of A's #0. Right, B frees its own block and shares #0.",
            BlockCached,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "After the step. Left: 8 blocks used, 3 of them lost. Right: 5 used, none lost. What the fix cannot save: "
            "while the step ran, both used 8 blocks and computed all 28 tokens.",
            StepEnded,
        ),
        GuideStop(
            "A step later, each has sampled two tokens. B is finished and its blocks are freed: on the left "
            "they are the only ones that the map leads to.",
            RequestFinished,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "C, with another prompt, takes all 8 free blocks. On the left B's old blocks are among them, and with them "
            "the map's entries for p, q and r are evicted, though A still holds all three.",
            RequestScheduled,
            lambda event: event.request_id == 2,
        ),
        GuideStop(
            "C is done, and its blocks are free again. D comes with A's prompt. Left, it finds none of it. Right, it "
            "finds 3 blocks: they are still in the map.",
            PrefixHit,
            lambda event: event.request_id == 3,
        ),
        GuideStop(
            "What the bug has cost. Left, D takes 4 new blocks and computes 14 tokens; right, 1 block and 2 tokens. So "
            "8 blocks are used now, and not 5; and 74 tokens were computed since the start, and not 62.",
            StepEnded,
        ),
    )
    sentences = sentences(guide[:6])
    experiments: Mapping[str, Experiment] = {
        "script": Script(),
        "lost reuse": LostReuse(),
        "trade-off": TradeOff(),
        "dangling entry": DanglingEntry(),
        "collision": Collision(),
    }

    def follow_up_acts(self) -> tuple[Callable[[Lab], Any], ...]:
        """End B; have C take all free blocks and end; add D, whose prompt A still holds."""
        return FOLLOW_UP

    def answer(self, table: Table) -> str:
        """State the blocks after the step, and the peak, which the pull request's table leaves out."""
        before, after = (table[column.name] for column in (NANO, PR_243))
        return (
            f"After the step {before['used blocks']} blocks are in use, and {after['used blocks']} with the merge, for "
            f"{after['unique hashes']} hashes. While the step is computed it is {after['peak while computing']} in "
            f"both."
        )

    def first_wrong(self, lab: Lab) -> FirstWrong | None:
        """Return the first hash that takes a live block's map entry: it breaks no rule, but a block is lost."""
        timeline = lab.timeline
        assert timeline is not None
        for moment, event in enumerate(timeline.events(), timeline.num_dropped):
            if isinstance(event, BlockCached) and timeline.state(moment + 1).snapshot().lost_blocks:
                [lost] = timeline.state(moment + 1).snapshot().lost_blocks
                new, old = "AB"[event.request_id], "BA"[event.request_id]
                return wrong_at(
                    lab,
                    moment,
                    f"{new}'s block {event.block_id} takes the map's entry from {old}'s equal block {lost}: "
                    f"block {lost} is alive, and no look-up can find it any more.",
                )
        return None


SCENARIO = DuplicateBlocks()
