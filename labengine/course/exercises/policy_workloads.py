"""Workloads and scores of the exercises on policies: what an engine is given, and what it is judged by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from labengine.events import ForwardRan, RequestAdded, StepStarted, TokenSampled
from labengine.lab import Lab

ENGINE: Mapping[str, Any] = {"num_blocks": 20, "block_size": 4, "max_num_seqs": 6, "max_num_batched_tokens": 48}
RULES = "You are a kind librarian who knows every book and never gives away how a story ends."


def unique_text(name: str, num_words: int) -> str:
    return " ".join(f"{name}-{number}" for number in range(num_words))


# -- workloads ---------------------------------------------------------------------------------------------------------


def librarian(lab: Lab) -> None:
    """Six readers ask under the same rules; between two of them come two long texts that nobody repeats."""
    for number in range(6):
        lab.add(f"{RULES} Question {number} is about page {number * 7}", max_tokens=3)
        lab.run()
        for part in "ab":
            lab.add(unique_text(f"note-{number}{part}", 36), max_tokens=2)
            lab.run()


def conversation(lab: Lab) -> None:
    """Each prompt is everything said so far; a short text comes between two of them."""
    said = lab.encode("Shall we talk about the whales in the north sea")
    for number in range(5):
        request_id = lab.add(token_ids=said, max_tokens=6)
        lab.run()
        said = [*lab.snapshot().requests[request_id].token_ids, *lab.encode(f" and what then {number} please")]
        lab.add(unique_text(f"memo-{number}", 14), max_tokens=2)
        lab.run()


def twins(lab: Lab) -> None:
    """Four equal prompts at once, twice; all eight begin with the same rules."""
    for number in range(2):
        for _ in range(4):
            lab.add(f"{RULES} Which of these {number} novels would you take to an island", max_tokens=4)
        lab.run()


def triplets_and_another(lab: Lab) -> None:
    for _ in range(3):
        lab.add(f"{RULES} Tell me", max_tokens=3)
    lab.add("Who are you and what do you do here all day", max_tokens=3)
    lab.run()


def same_rules(lab: Lab) -> None:
    for number in range(3):
        lab.add(f"{RULES} And {number}", max_tokens=3)
    lab.run()


def crowd(lab: Lab) -> None:
    """Eight requests of different lengths, all at once."""
    for number, (num_words, max_tokens) in enumerate(
        [(12, 16), (30, 8), (5, 4), (6, 12), (9, 14), (4, 3), (7, 10), (26, 5)]
    ):
        lab.add(unique_text(f"word-{number}", num_words), max_tokens=max_tokens)
    lab.run()


def short_and_long(lab: Lab) -> None:
    """Short and long prompts in turns, all at once."""
    for number, num_words in enumerate([9, 90, 6, 75, 4, 100]):
        lab.add(unique_text(f"text-{number}", num_words), max_tokens=4)
    lab.run()


def all_grow(lab: Lab) -> None:
    """Short prompts and long answers: they fit at first."""
    for number in range(6):
        lab.add(unique_text(f"short-{number}", 8), max_tokens=20)
    lab.run()


def visitor_who_leaves(lab: Lab, interrupt: Callable[[Lab], object]) -> None:
    """Someone asks for a text that is being read, and is gone before the step that finds it has ended."""
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
    """Return the steps from each request's arrival to its first token, summed over all requests."""
    assert lab.timeline is not None
    step, arrived, waited = 0, dict[int, int](), dict[int, int]()
    for event in lab.timeline.events():
        match event:
            case StepStarted():
                step = event.step
            case RequestAdded():
                arrived[event.request_id] = step
            case TokenSampled():
                waited.setdefault(event.request_id, step - arrived[event.request_id])
    return sum(waited.values())
