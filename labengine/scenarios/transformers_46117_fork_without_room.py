"""transformers pull request 46117: a fork takes its blocks child by child, and fails when they run out.

Continuous batching of transformers makes a fork's copy of a partly filled block at once, for one child after the other.
Where no block is left the call returns None, and its caller raises: what the children before have taken stays taken.
Here the copy at once is played in an engine whose steps are all or nothing: the step fails, now and at every attempt.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from labengine.core.editions import LABENGINE
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.events import BlockCopied, RequestAdded, RequestForked, RequestScheduled, StepFailed, StepRolledBack
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_finished
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import Column, GuideStop, Scenario, Table, sentences, settings, symptom


class CopiesAtTheFork(KVCacheManager):
    """A fork has its own copy of a partly filled block from the beginning."""

    def fork(self, request: Request, parent: Request) -> None:
        """Share the full blocks, and copy the last one at once if it is filled in part, whether a block is free or
        not.
        """
        super().fork(request, parent)
        for group in self.groups:
            if request.num_computed_tokens % group.block_size:
                self.copy(group, request, request.num_computed_tokens // group.block_size)


class ForkWithoutRoom(Scenario):
    """Three answers to a prompt of six tokens, in blocks of four; one block is free when they fork."""

    id = "transformers-46117"
    title = "A fork takes its blocks one by one, and fails midway"
    report = Report(
        repository="huggingface/transformers",
        kind="pull request",
        number="46117",
        title="[Generation] Fix continuous batching crash when out of memory during …",
        state="closed",
        as_of="2026-06-04",
        seen_in="5.8.0 and 5.10.0 to 5.10.2, the releases that were read",
        mended_in=(
            "5.11.0 (46251, not this pull request): as many children are forked as there are blocks for, and the "
            "others are queued as new requests"
        ),
        needs=(
            "continuous batching with num_return_sequences",
            "a prompt that ends inside a block, or blocks that are not shareable",
            "fewer free blocks than the copies need",
        ),
    )
    claim = (
        "If a request is forked and too few cache blocks are free for its children, continuous batching crashes. "
        "Forking should be atomic, and a child without room be computed as a new request."
    )
    conclusion = Conclusion(
        answer="holds",
        reason=(
            "The blocks are taken child by child, and a child that gets none ends the call with None, which its "
            "caller turns into a ValueError. The references and blocks of the children before are not given back, and "
            "all children are among the active requests by then."
        ),
        passages=(
            CodePassage(
                version="transformers 5.8.0",
                file="transformers/generation/continuous_batching/cache_manager.py",
                line=159,
                text="block.ref_count += num_forks",
                says="The references of all children are counted before any of them has its blocks.",
            ),
            CodePassage(
                version="transformers 5.8.0",
                file="transformers/generation/continuous_batching/cache_manager.py",
                line=178,
                text="return None, [], []",
                says="Where no block is left the call ends, and forgets what it has taken.",
            ),
            CodePassage(
                version="transformers 5.8.0",
                file="transformers/generation/continuous_batching/cache_manager.py",
                line=340,
                text='raise ValueError(f"Failed to fork blocks for request {parent_request_id}")',
                says="The caller raises.",
            ),
            CodePassage(
                version="transformers 5.11.0",
                file="transformers/generation/continuous_batching/continuous_api.py",
                line=457,
                text="num_to_fork = min(num_children, self.cache.compute_max_num_forks(state_to_fork.request_id))",
                says="Since the fix the children that fit are counted first.",
            ),
            ThreadPassage(
                source="huggingface/transformers 46251",
                says="The fix says of itself that a fork crashed where too few blocks were free.",
            ),
        ),
    )
    kind = "partial tail"
    breaks = "A fork needs blocks that nobody has counted."
    wrong_figure = "steps that failed"
    seen_by = ("granted",)
    question = "B and C fork from A, and one block is free: how many of the three get an answer?"
    roles = ("the bug: a fork copies at once", "labengine's way: a fork shares, and copies when it writes")
    columns = (
        Column(
            "copied at the fork",
            Parts(name="labengine, copies at the fork", kv_cache_manager=CopiesAtTheFork).overriding(LABENGINE),
            "Each child takes a block for its copy of the last one, without asking how many are free.",
        ),
        Column(
            "copied at the write",
            "labengine",
            "A fork takes no block. A request that writes needs one, and may have to wait for it. transformers' fix "
            "counts, and queues the children without room.",
        ),
    )
    settings = settings(num_blocks=3, block_size=4, max_num_batched_tokens=4)
    guide = (
        GuideStop(
            "Three answers to one prompt of six tokens: A computes it.",
            RequestAdded,
            lambda event: event.request_id == 0,
        ),
        GuideStop(
            "B and C have the same tokens, and wait until A has computed them.",
            RequestAdded,
            lambda event: event.request_id == 2,
        ),
        GuideStop("A step computes four tokens at most: the first block of the prompt.", RequestScheduled),
        GuideStop(
            "A's prompt fills a block and half of the next one, and one block is free. B forks from A.",
            RequestForked,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "Left, B has its own copy of the half-filled block at once: it was the last free block.",
            BlockCopied,
            lambda event: event.request_id == 1,
        ),
        GuideStop("Left, C needs a copy too, and no block is left: the step fails.", StepFailed),
        GuideStop(
            "Left, the step is taken back: not even A has a token. So it is at every attempt. Right, all three share "
            "both blocks: a fork needs none.",
            StepRolledBack,
        ),
    )
    sentences = sentences(guide[:3])

    def play(self, lab: Lab) -> None:
        """Take the first step, then twelve more; an error may end each of these."""
        self.opening(lab)
        for _ in range(12):
            symptom(lab.step)

    def opening(self, lab: Lab) -> None:
        """Ask for three answers to one prompt, and compute its first block."""
        lab.add(token_ids=range(1, 7), n=3, max_tokens=3)
        lab.step()

    def follow_up_acts(self) -> tuple[Callable[[Lab], Any], ...]:
        """Take the step in which the forks begin, which an error may end."""
        return (lambda lab: symptom(lab.step),)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count failed steps and finished requests."""
        return {"steps that failed": len(events_of(lab, StepRolledBack)), "answers": num_finished(lab)}

    def answer(self, table: Table) -> str:
        """State how many answers there are."""
        wrong, right = (table[column.name] for column in self.columns)
        return (
            f"Twelve steps were tried behind the first. With a copy at the fork {wrong['steps that failed']} fail, and "
            f"{wrong['answers']} of 3 requests have an answer; with a copy at the write {right['answers']}: a request "
            "that lacks a block for its copy waits for another one to end, as for any block."
        )


SCENARIO = ForkWithoutRoom()
