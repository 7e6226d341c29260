"""The picture that opens the front page: two equal questions in one step of one engine, with seven sentences."""

from __future__ import annotations

import json
from collections.abc import Sequence
from gzip import compress

from labengine import events as ev
from labengine.lab import Lab
from labengine.record.timeline import Timeline
from labengine_widgets.pages.whole_recording import recording_payload
from labengine_widgets.words.mentions import Sentence, the_block, the_blocks, the_request

QUESTION = "Why is the sky blue in the day and red in the evening?"
NUM_BLOCKS, BLOCK_SIZE = 12, 4

Told = tuple[int, Sentence]
"""A moment and its sentence."""


def opening() -> bytes:
    """Return the recording, its captions and the question, as gzipped JSON.

    asked: the moment of the question; plays_to: the moment after which it is answered; used: the answer.
    """
    with Lab("simulated", num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE) as lab:
        for _ in range(2):
            lab.add(QUESTION, max_tokens=8)
        timeline = lab.timeline
        assert timeline is not None
        asked = timeline.end
        lab.step()
        told = sentences(timeline, asked)
        payload = json.loads(recording_payload(lab.view_source(), has_words=False))
        document = {
            "asked": asked,
            "plays_to": told[-1][0],
            "peak": max(timeline.state(moment).num_used_blocks for moment, _ in told),
            "told": [[moment, words.row(), None] for moment, words in told],
            "used": lab.snapshot().num_used_blocks,
            "recording": payload,
        }
    return compress(json.dumps(document, separators=(",", ":")).encode(), mtime=0)


def sentences(timeline: Timeline, asked: int) -> list[Told]:
    """Return the sentences on the step, from the moment of the question."""
    step = list(enumerate(timeline.events(asked), asked + 1))
    a, b = (the_request(request_id) for request_id in (0, 1))

    def last(kind: type[ev.Event]) -> int:
        return max(moment for moment, event in step if isinstance(event, kind))

    allocated = [event for _, event in step if isinstance(event, ev.BlockAllocated)]
    merges = [(moment, event) for moment, event in step if isinstance(event, ev.BlockMerged)]
    count, length = len(allocated) // 2, len(QUESTION.split())
    own = [allocated[count - 1].block_id, allocated[-1].block_id]
    twins = [event.block_id for _, event in merges]
    return [
        (asked, Sentence(a, " and ", b, f" wait. All {NUM_BLOCKS} blocks are free.")),
        (
            last(ev.BlockAllocated),
            Sentence(
                *(
                    f"{length} words need {count} blocks, and the last one is almost empty: {count} are reserved for ",
                    a,
                ),
                *(f", {count} for ", b, f". That makes {len(allocated)}."),
            ),
        ),
        (
            merges[0][0] - 1,
            Sentence(
                *(
                    "Both questions are read, and the same work is done twice: ",
                    the_blocks(twins),
                    " have the same content as ",
                ),
                *(the_blocks(event.into_block_id for _, event in merges), "."),
            ),
        ),
        *_merged(merges, step, b),
        (
            last(ev.StepEnded),
            Sentence(
                *(
                    the_block(own[0]),
                    " and ",
                    the_block(own[1]),
                    " are not full, so they are not merged: ",
                    a,
                    "'s answer",
                ),
                *(" continues in ", the_block(own[0]), ", ", b, "'s in ", the_block(own[1]), ", and they may differ."),
            ),
        ),
    ]


def _merged(
    merges: Sequence[tuple[int, ev.BlockMerged]], step: Sequence[tuple[int, ev.Event]], name: Sentence
) -> list[Told]:
    """Return a sentence per merge, at the moment when its copy is freed; the first one explains a merge."""
    freed = {event.block_id: moment for moment, event in step if isinstance(event, ev.BlockFreed)}
    told: list[Told] = []
    for _, event in merges:
        copy, kept = the_block(event.block_id), the_block(event.into_block_id)
        words = (
            Sentence(copy, " is merged the same way: ", kept, " has two users, too.")
            if told
            else Sentence(
                *("One copy is enough: ", name, " uses ", kept, " too, and ", copy, " is free again. That is a "),
                "merge.",
            )
        )
        told.append((freed[event.block_id], words))
    return told
