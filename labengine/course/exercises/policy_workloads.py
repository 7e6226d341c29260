"""Workloads and scores of the exercises on policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from labengine.course.branch import waits
from labengine.course.trial import RUN, plays
from labengine.events import ForwardRan
from labengine.lab import Lab

ENGINE: Mapping[str, Any] = {"num_blocks": 20, "block_size": 4, "max_num_seqs": 6, "max_num_batched_tokens": 48}
RULES = "You are a kind librarian who knows every book and never gives away how a story ends."


def unique_text(name: str, num_words: int) -> str:
    return " ".join(f"{name}-{number}" for number in range(num_words))


# -- workloads ---------------------------------------------------------------------------------------------------------


def librarian(lab: Lab) -> None:
    """Six readers ask under the same rules; between them come two long texts that nobody repeats."""
    for number in range(6):
        lab.add(f"{RULES} Question {number} is about page {number * 7}", max_tokens=3)
        lab.run()
        for part in "ab":
            lab.add(unique_text(f"note-{number}{part}", 36), max_tokens=2)
            lab.run()


def conversation(lab: Lab) -> None:
    """Each prompt is the whole conversation so far; a short text comes between prompts."""
    said = lab.encode("Shall we talk about the whales in the north sea")
    for number in range(5):
        request_id = lab.add(token_ids=said, max_tokens=6)
        lab.run()
        said = [*lab.snapshot().requests[request_id].token_ids, *lab.encode(f" and what then {number} please")]
        lab.add(unique_text(f"memo-{number}", 14), max_tokens=2)
        lab.run()


def twins(lab: Lab) -> None:
    """Twice four equal prompts at once; all eight begin with the same rules."""
    for number in range(2):
        for _ in range(4):
            lab.add(f"{RULES} Which of these {number} novels would you take to an island", max_tokens=4)
        lab.run()


triplets_and_another = plays(*[(f"{RULES} Tell me", 3)] * 3, ("Who are you and what do you do here all day", 3), RUN)
same_rules = plays(*((f"{RULES} And {number}", 3) for number in range(3)), RUN)
_LENGTHS = ((12, 16), (30, 8), (5, 4), (6, 12), (9, 14), (4, 3), (7, 10), (26, 5))
crowd = plays(*((unique_text(f"word-{i}", num_words), more) for i, (num_words, more) in enumerate(_LENGTHS)), RUN)
"""Eight requests of different lengths, all at once."""
short_and_long = plays(*((unique_text(f"text-{i}", n), 4) for i, n in enumerate([9, 90, 6, 75, 4, 100])), RUN)
"""Alternating short and long prompts, all at once."""
all_grow = plays(*((unique_text(f"short-{number}", 8), 20) for number in range(6)), RUN)
"""Short prompts and long answers: they fit at first."""


def visitor_who_leaves(lab: Lab, interrupt: Callable[[Lab], object]) -> None:
    """A request hits a text that is still being computed; its step is interrupted, and the request is aborted."""
    lab.add(f"{RULES} Who wrote the first of them", max_tokens=3)
    lab.run()
    lab.add(unique_text("draft", 36), max_tokens=4)
    lab.step()
    visitor = lab.add(f"{unique_text('draft', 36)} and so on", max_tokens=2)
    interrupt(lab)
    lab.abort(visitor)
    lab.run()
    lab.add(unique_text("letter", 36), max_tokens=2)
    lab.run()
    lab.add(f"{RULES} Who wrote the last of them", max_tokens=3)
    lab.run()


# -- scores ------------------------------------------------------------------------------------------------------------


def tokens_and_steps(lab: Lab) -> int:
    """Return the tokens computed plus the steps."""
    assert lab.timeline is not None
    return sum(event.num_tokens for event in lab.timeline.of_kind(ForwardRan)) + lab.snapshot().step


def steps_waited(lab: Lab) -> int:
    """Return the total steps that requests waited for their first tokens."""
    return sum(waits(lab))
