"""Exercises of the notebook "States instead of keys"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from labengine.config import GroupSpec
from labengine.core.request import Request
from labengine.core.state_group import StateGroup
from labengine.course.base import Exercise
from labengine.course.exercise import exercise
from labengine.course.first_wrong_exercise import nth_event
from labengine.course.predict_exercise import RevealedStep
from labengine.events import BlockAllocated, PrefixHit, StateAdvanced, StateCopied
from labengine.lab import Lab

PROMPT = range(100, 122)
"""22 tokens: five blocks of 4, and 2 more."""
STATE_GROUP = 1


def _settings(**settings: Any) -> dict[str, Any]:
    """Return the lab of the notebook: attention and states, both in blocks of 4."""
    return {"num_blocks": 24, "groups": (GroupSpec(4), GroupSpec(4, "state")), **settings}


def chunks(num_tokens: int, block_size: int, budget: int) -> list[int]:
    """Return the tokens of each chunk of a prompt. budget: tokens of a step, at least block_size."""
    last = (num_tokens - 1) // block_size * block_size
    start, sizes = 0, []
    while start < num_tokens:
        end = min(start + budget, num_tokens)
        if end < num_tokens:
            end -= end % block_size
        if start < last < end:
            end = last
        sizes.append(end - start)
        start = end
    return sizes


def _whole_budgets(num_tokens: int, block_size: int, budget: int) -> list[int]:
    return [min(budget, num_tokens - start) for start in range(0, num_tokens, budget)]


def _no_last_state(num_tokens: int, block_size: int, budget: int) -> list[int]:
    return _whole_budgets(num_tokens, block_size, budget // block_size * block_size)


def _leaves_no_token(num_tokens: int, block_size: int, budget: int) -> list[int]:
    return (
        chunks(num_tokens + 1, block_size, budget)[:-1]
        if not num_tokens % block_size
        else chunks(num_tokens, block_size, budget)
    )


def chunk_sizes() -> Exercise:
    """Fill in: where a prompt is cut."""
    return exercise(
        "states/chunks",
        "A prompt of `num_tokens` tokens is computed alone, `budget` tokens a step at most; `budget` is at least "
        "`block_size`. States are cached at multiples of `block_size`. A chunk that does not finish the prompt ends at "
        "such a place. And one chunk ends at the last place at which an equal prompt can hit: that one has to compute "
        "at least its last token. Return the list of chunk sizes.",
        solution=chunks,
        cases=[(22, 4, 12), (20, 4, 1000), (3, 4, 1000), (22, 4, 11), (21, 8, 9), (16, 16, 16), (1, 4, 8), (33, 8, 16)],
        num_shown=3,
        num_lines=9,
        hints=[
            "The last place at which an equal prompt can hit is `(num_tokens - 1) // block_size * block_size`.",
            "Go on from `start` in a loop: the end by the budget; then down to a multiple, unless the prompt ends "
            "there; then not past the last place.",
        ],
        mistakes=[
            (_whole_budgets, "So most chunks end inside a block, and leave a state that nobody can find."),
            (_no_last_state, "An equal prompt wants a state as late as possible: one chunk has to end there."),
            (
                _leaves_no_token,
                "A hit on the whole prompt leaves nothing to compute, and no logits for the next token. If the prompt "
                "ends with a block, the place is one block earlier.",
            ),
        ],
    )


def _first_chunk(lab: Lab) -> None:
    lab.add(token_ids=PROMPT, max_tokens=8, ignore_eos=True)
    lab.step()


def _num_held(step: RevealedStep) -> int:
    return sum(block_id >= 0 for block_id in step.after.requests[0].block_tables[STATE_GROUP])


def _num_entries(step: RevealedStep) -> int:
    return len(step.after.requests[0].block_tables[STATE_GROUP])


def held() -> Exercise:
    """Predict: blocks of the state group, step by step."""
    return exercise(
        "states/held",
        "The first lab of the notebook: a prompt of 22 tokens, blocks of 4, and a budget of 12. Its first 12 tokens "
        "are computed. The next step computes 8 more, the step behind it the last 2. How many blocks does the state "
        "group's table hold after the next step? (Entries without a block do not count.)",
        play=_first_chunk,
        truth=_num_held,
        about="number",
        rounds=3,
        hints=[
            "The state that a step begins with stays until the next step takes its blocks: it was copied.",
            "A step that goes on in the same block copies nothing.",
        ],
        mistakes=[
            (_num_entries, "So many entries has the table. Most of them have never had a block: null."),
            (lambda step: 3, "A state that was copied two steps ago is given back before a new block is taken."),
        ],
        **_settings(max_num_batched_tokens=12),
    )


def _equal_prompts(lab: Lab) -> None:
    lab.add(token_ids=PROMPT, max_tokens=2, ignore_eos=True)
    lab.run()
    lab.add(token_ids=PROMPT, max_tokens=2, ignore_eos=True)


def _num_hit(step: RevealedStep) -> int:
    return step.first(PrefixHit).num_tokens


def hit() -> Exercise:
    """Predict: a hit where states have larger blocks than attention."""
    return exercise(
        "states/hit",
        "Blocks of 4 for attention, and of 8 for states. A prompt of 22 tokens was computed, and is done. Now it comes "
        "once more. How many of its tokens are found?",
        play=_equal_prompts,
        truth=_num_hit,
        about="number",
        reason="Attention has 20 tokens, and the states are cached at multiples of 8: the last one is at 16.",
        hints=[
            "At which numbers of tokens can a state be cached? Which is the last one that leaves a token to compute?",
            "Both groups have to agree on one length.",
        ],
        mistakes=[
            (20, "Attention has 20. But at 20 no state is cached, and the layers with states cannot begin there."),
            (22, "The last token is always computed, and a hit ends with a block."),
            (24, "The prompt has 22 tokens."),
        ],
        **_settings(groups=(GroupSpec(4), GroupSpec(8, "state"))),
    )


class EndsAtEachBlock(StateGroup):
    """A group that leaves a state at the end of every block."""

    def chunk_end(self, request: Request, start: int, end: int) -> int:
        """Return the end of the block in which the chunk begins, or the chunk's own end if that comes first."""
        return min(end, (start // self.block_size + 1) * self.block_size)


class _NeverClips(StateGroup):
    def chunk_end(self, request: Request, start: int, end: int) -> int:
        return end


class _EverySecondBlock(StateGroup):
    def chunk_end(self, request: Request, start: int, end: int) -> int:
        return min(end, (start // (2 * self.block_size) + 1) * 2 * self.block_size)


def one_beginning(lab: Lab) -> None:
    """Four prompts share ten tokens, one after the other."""
    for number in range(1, 5):
        own = range(100 * number, 100 * number + 4)
        lab.add(token_ids=[*range(1, 11), *own], max_tokens=2, ignore_eos=True)
        lab.run()


def two_beginnings(lab: Lab) -> None:
    """Prompts that part after 6 tokens, and after 17."""
    for number, num_shared in enumerate((6, 6, 17, 17), 1):
        own = range(100 * number, 100 * number + 22 - num_shared)
        lab.add(token_ids=[*range(1, num_shared + 1), *own], max_tokens=2, ignore_eos=True)
        lab.run()


def checkpoints() -> Exercise:
    """Make it better: where states are left."""
    return exercise(
        "states/checkpoints",
        "Prompts share their beginnings, and part anywhere. The engine leaves a state where it saw prompts part, so it "
        "misses once each time. Write a `chunk_end` with which the second prompt hits already. It returns where a "
        "chunk ends that begins at `start` and would compute the tokens up to `end`: more than `start`, and at most "
        "`end`. (`self.block_size` is the size of a state's block.) Fewer tokens are computed. What does it cost?",
        solution=EndsAtEachBlock,
        workloads=[one_beginning, two_beginnings],
        score="tokens computed",
        goal=104,
        num_lines=1,
        hints=[
            "Only the state at a chunk's end is left. Where would you like to have one?",
            "The end of the block in which `start` lies is `(start // self.block_size + 1) * self.block_size`.",
        ],
        mistakes=[
            (StateGroup, "This is the engine as it was: it leaves a state where prompts were seen to part."),
            (_NeverClips, "Without a cut the only states are those at the prompts' ends, and no prompt finds one."),
            (_EverySecondBlock, "A prompt that parts in the first of two blocks finds no state near it."),
        ],
        **_settings(num_blocks=64),
    )


class WritesWhereItBegan(StateGroup):
    """A group that looks up the block of the running state by the chunk's first token."""

    def slots(self, request: Request, start: int, end: int) -> tuple[tuple[int, int, int], ...]:
        """Return the block of the entry in which the chunk's state was before."""
        return ((request.block_tables[self.index][(start - 1) // self.block_size], 0, 1),)


def _three_chunks(lab: Lab) -> None:
    lab.add(token_ids=PROMPT, max_tokens=4, ignore_eos=True)
    lab.step(4)


def first_wrong() -> Exercise:
    """Find the first wrong event: a cached state is overwritten."""
    return exercise(
        "states/first-wrong",
        "One method of this engine is wrong. A prompt of 22 tokens is computed in chunks of 12, 8 and 2 tokens. In the "
        "third one A goes on from a state that has seen too little. Which event is the first wrong one?",
        broken=WritesWhereItBegan,
        first=nth_event(StateAdvanced, 1),
        because=(
            "Block #3 holds the state after 12 tokens, and is in the map as that. It was copied so that the copy goes "
            "on, and now it is the original that is advanced. An equal prompt would find a state of 20 tokens there, "
            "and A itself goes on from the copy, which still has 12."
        ),
        play=_three_chunks,
        hints=[
            "A chunk copies a state and then advances one of the two blocks. Which one should it be?",
            "Look at step 2: the block that StateCopied names last, and the one that StateAdvanced names.",
        ],
        mistakes=[
            (nth_event(StateAdvanced), "The first chunk begins with the zero state, in the block that it has taken."),
            (nth_event(StateCopied), "The copy is right: the state after 12 tokens goes into the chunk's own block."),
            (nth_event(StateAdvanced, 2), "This block has missed the second chunk. Which block got that in its place?"),
            (nth_event(BlockAllocated, 6), "The second chunk needs a block for its state, and this is it."),
        ],
        **_settings(max_num_batched_tokens=12),
    )


EXERCISES: Mapping[str, Callable[[], Exercise]] = {
    "states/chunks": chunk_sizes,
    "states/held": held,
    "states/hit": hit,
    "states/checkpoints": checkpoints,
    "states/first-wrong": first_wrong,
}
