"""Exercises of the notebook "The off-by-one that was none"."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from labengine.core.kv_cache_group import KVCacheGroup
from labengine.core.request import Request
from labengine.course.base import Exercise
from labengine.course.exercise import exercise
from labengine.course.first_wrong_exercise import nth_event
from labengine.course.predict_exercise import RevealedStep
from labengine.events import BlockAllocated, SlotsWritten
from labengine.lab import Lab
from labengine.scenarios import bug


def num_missing_blocks(self: KVCacheGroup, request: Request, num_tokens: int) -> int:
    """Return how many blocks the table lacks for num_tokens tokens: the newest one is written in this step."""
    num_needed = -(-num_tokens // self.block_size)
    return num_needed - len(request.block_tables[self.index])


def _one_early(self: KVCacheGroup, request: Request, num_tokens: int) -> int:
    return num_tokens // self.block_size + 1 - len(request.block_tables[self.index])


def _one_late(self: KVCacheGroup, request: Request, num_tokens: int) -> int:
    return num_tokens // self.block_size - len(request.block_tables[self.index])


def _all_anew(self: KVCacheGroup, request: Request, num_tokens: int) -> int:
    return -(-num_tokens // self.block_size)


def _at_remainder_1(self: KVCacheGroup, request: Request, num_tokens: int) -> int:
    return int(num_tokens % self.block_size == 1)


def _at_remainder_0(self: KVCacheGroup, request: Request, num_tokens: int) -> int:
    return int(num_tokens % self.block_size == 0)


for _mistake in (_one_early, _one_late, _all_anew, _at_remainder_1, _at_remainder_0):
    _mistake.__name__ = num_missing_blocks.__name__


def _grow(num_prompt_tokens: int, max_tokens: int) -> Callable[[Lab], None]:
    def play(lab: Lab) -> None:
        lab.add(token_ids=range(num_prompt_tokens), max_tokens=max_tokens, ignore_eos=True)
        lab.run()

    return play


def missing_blocks() -> Exercise:
    """Fill in: when a request needs another block."""
    return exercise(
        "off-by-one/missing-blocks",
        "Every token that is computed needs a slot. In a step a request has `num_tokens` tokens, the newest one "
        "included, whose KV is written in this very step. `request.block_tables[self.index]` is its table, "
        "`self.block_size` the size of a block. Return how many blocks the table lacks. The same method is asked for a "
        "whole prompt, which may lack several blocks at once.",
        solution=num_missing_blocks,
        workloads=[_grow(3, 2), _grow(3, 7), _grow(4, 1), _grow(8, 9)],
        num_lines=2,
        hints=[
            "How many blocks do `num_tokens` tokens need? Try 3, 4 and 5 of them, with blocks of 4.",
            "`-(-a // b)` divides and rounds up.",
        ],
        mistakes=[
            (
                _one_early,
                "4 tokens fill one block of 4, and need no second one. This rule takes a block one step too early; an "
                "engine that writes into the last block of its table is wrong then.",
            ),
            (
                _one_late,
                "The newest token has to be written in this step: 5 tokens need two blocks of 4. Round up.",
            ),
            (
                _at_remainder_1,
                "That is right from one decode to the next. But a prompt of 3 tokens comes with an empty table, and "
                "one of 8 lacks two blocks at once: compare what the tokens need with what the table has.",
            ),
            (
                _at_remainder_0,
                "4 tokens just fill a block, and the fifth needs the next one: in a decode that is `== 1`. And a "
                "prompt may lack several blocks at once: compare what the tokens need with what the table has.",
            ),
            (_all_anew, "That is what the tokens need. The table may have some of these blocks already."),
        ],
        num_blocks=12,
        block_size=4,
    )


def first_wrong() -> Exercise:
    """Find the first wrong event: the engine with the proposed rule."""
    return exercise(
        "off-by-one/first-wrong",
        "The engine with the proposed rule, `len % block_size == 0`, and blocks of 4, as above. This request has *6* "
        "prompt tokens. Which event is the first that is wrong?",
        broken=bug("nano-vllm-71").column("PR 71").parts,
        because=(
            "Position 7 is the last of the request's second block, #1: slot 7. But the table ends with #2 "
            "already, and this engine writes into the last block of the table."
        ),
        play=_grow(6, 6),
        hints=[
            "Position p belongs in block p // 4 of the request, at offset p % 4. Go from write to write.",
            "The second decode writes position 7. Which slot does it go to?",
        ],
        mistakes=[
            (
                nth_event(BlockAllocated, 2),
                "A block more than is needed is a waste, and no more: all rules hold still. What is written where?",
            ),
        ],
        num_blocks=12,
        block_size=4,
    )


def _two_before_their_first_decode(lab: Lab) -> None:
    for token_ids in ([1, 2, 3], [4, 5, 6]):
        lab.add(token_ids=token_ids, max_tokens=12, ignore_eos=True)
    lab.step()


def _block_written_by_b(step: RevealedStep) -> int:
    return next(event.runs[0][0] for event in step.of_kind(SlotsWritten) if event.request_id == 1)


def wrong_slot() -> Exercise:
    """Predict: the block that position 3 is written to, with the proposed rule."""
    return exercise(
        "off-by-one/wrong-slot",
        "The proposed rule, blocks of 4, and two requests: A's 3 tokens are in block #0, and B's 3 in #1. The next "
        "step appends a block to each table, because len is 4, and writes position 3 of each request. Into which "
        "block does B's position 3 go?",
        play=_two_before_their_first_decode,
        truth=_block_written_by_b,
        about="block",
        hints=["This engine does not divide: it takes the last block of the table, at the newest token's offset."],
        mistakes=[
            (1, "That is where it belongs. This engine takes the last block of the table, and there are two by then."),
            (2, "A is served first: the head of the free queue is appended to A's table."),
        ],
        parts=bug("nano-vllm-71").column("PR 71").parts,
        num_blocks=8,
        block_size=4,
    )


def _num_entries(step: RevealedStep) -> int:
    return len(step.after.requests[0].block_tables[0])


def _by_known_tokens(step: RevealedStep) -> int:
    return -(-len(step.after.requests[0].token_ids) // 3)


def _before_its_first_decode(lab: Lab) -> None:
    lab.add(token_ids=range(5), max_tokens=12, ignore_eos=True)
    lab.step()


def num_blocks() -> Exercise:
    """Predict: the length of the table after each of three steps."""
    return exercise(
        "off-by-one/num-blocks",
        "The original rule, and blocks of 3 tokens. The prompt's 5 tokens are computed, and a sixth has been "
        "sampled. How many blocks does the request have after the next step?",
        play=_before_its_first_decode,
        truth=_num_entries,
        about="number",
        rounds=2,
        hints=["The step writes the newest token that is known before it. How many are written after it?"],
        mistakes=[
            (
                _by_known_tokens,
                "You count the token that this step samples. It is known then, and written one step later.",
            ),
        ],
        edition="nano-vllm-2025-07",
        num_blocks=8,
        block_size=3,
    )


def first_bad_length(remainder: int, num_prompt_tokens: int, block_size: int) -> int | None:
    """Grow a request by two blocks, token by token, and return the first length with a wrong number of blocks."""
    num_blocks = -(-num_prompt_tokens // block_size)
    for length in range(num_prompt_tokens + 1, num_prompt_tokens + 2 * block_size + 1):
        if length % block_size == remainder:
            num_blocks += 1
        if num_blocks != -(-length // block_size):
            return length
    return None


def _tries_one_length(remainder: int, num_prompt_tokens: int, block_size: int) -> int | None:
    length = num_prompt_tokens + 1
    is_appended, is_needed = length % block_size == remainder, length % block_size == 1
    return length if is_appended != is_needed else None


def _sees_only_a_lack(remainder: int, num_prompt_tokens: int, block_size: int) -> int | None:
    num_blocks = -(-num_prompt_tokens // block_size)
    for length in range(num_prompt_tokens + 1, num_prompt_tokens + 2 * block_size + 1):
        num_blocks += length % block_size == remainder
        if num_blocks < -(-length // block_size):
            return length
    return None


def _appends_for_the_prompt(remainder: int, num_prompt_tokens: int, block_size: int) -> int | None:
    num_blocks = -(-num_prompt_tokens // block_size)
    for length in range(num_prompt_tokens, num_prompt_tokens + 2 * block_size + 1):
        num_blocks += length % block_size == remainder
        if num_blocks != -(-length // block_size):
            return length
    return None


def experiment() -> Exercise:
    """Fill in: the experiment that judges a rule."""
    return exercise(
        "off-by-one/experiment",
        "The experiment that was missing. A rule appends a block at each length with `length % block_size == "
        "remainder`. A prompt of `num_prompt_tokens` tokens has just the blocks that it needs. Let the request grow, "
        "token by token, by `2 * block_size` tokens. Return the first length at which it has more blocks than `length` "
        "tokens need, or fewer; None if the rule is right all the way.",
        solution=first_bad_length,
        cases=[(1, 3, 4), (0, 3, 4), (0, 256, 256), (1, 256, 256), (2, 3, 4), (0, 5, 3), (3, 6, 4)],
        num_shown=3,
        num_lines=7,
        hints=[
            "Keep two numbers: `length`, and how many blocks the request has. Change the second as the rule says.",
            "`length` tokens need `-(-length // block_size)` blocks: compare after each length.",
        ],
        mistakes=[
            (_tries_one_length, "You try the first length alone. The rule may go wrong at a later one."),
            (
                _appends_for_the_prompt,
                "You ask the rule about the prompt's own length, too. It has its blocks; the first new length "
                "is one more.",
            ),
            (
                _sees_only_a_lack,
                "A block that is missing is wrong, and one that is there too early is, too: this engine writes into "
                "the last block of the table.",
            ),
        ],
    )


EXERCISES: Mapping[str, Callable[[], Exercise]] = {
    "off-by-one/num-blocks": num_blocks,
    "off-by-one/missing-blocks": missing_blocks,
    "off-by-one/wrong-slot": wrong_slot,
    "off-by-one/first-wrong": first_wrong,
    "off-by-one/experiment": experiment,
}
