"""Exercises of the notebook "Guessing ahead"."""

from __future__ import annotations

from collections.abc import Sequence

from labengine.core.drafts import Drafts
from labengine.core.proposer import FixedDrafts
from labengine.course.first_wrong_exercise import nth_event
from labengine.course.predict_exercise import RevealedStep, in_step
from labengine.course.trial import plays
from labengine.course.words import course_exercise
from labengine.engine.simulated import default_next_token
from labengine.events import BlockAllocated, DraftsJudged, RequestScheduled, TokensDrafted
from labengine.lab import Lab

PROMPT = (11, 12, 13, 14, 15, 16)
WRONG = 99
"""A token that the simulated model does not sample."""


def guesses(*wrong: int) -> FixedDrafts:
    """Return a proposer of four drafts for request 0: the model's own tokens, with WRONG at the given positions."""
    tokens = [*PROMPT, *(default_next_token(0, position) for position in range(len(PROMPT), 40))]
    for position in wrong:
        tokens[position] = WRONG
    return FixedDrafts(tuple(tokens), num_drafts=4)


_prompt_computed = plays((PROMPT, 20), 1)


def new_tokens(drafts: Sequence[int], sampled: Sequence[int]) -> list[int]:
    """Return the tokens that a request gets in a step: the model's, up to the first that differs from its draft."""
    for place, draft in enumerate(drafts):
        if draft != sampled[place]:
            return list(sampled[: place + 1])
    return list(sampled)


course_exercise(
    "guessing/tokens",
    solution=new_tokens,
    cases=[
        ([7, 8, 9], [7, 8, 5, 6]),
        ([7, 8], [7, 8, 9]),
        ([7, 8], [3, 8, 9]),
        ([], [4]),
        ([1, 1, 2, 1], [1, 1, 1, 1, 5]),
        ([5], [6, 7]),
    ],
    num_shown=3,
    num_lines=4,
    mistakes=[
        lambda drafts, sampled: new_tokens(drafts, sampled)[:-1],
        lambda drafts, sampled: [draft for draft, token in zip(drafts, sampled, strict=False) if draft == token],
        lambda drafts, sampled: list(sampled),
        lambda drafts, sampled: list(drafts),
    ],
)


def _num_known(step: RevealedStep) -> int:
    return len(step.after.requests[0].token_ids)


course_exercise(
    "guessing/known",
    play=_prompt_computed,
    truth=_num_known,
    about="number",
    rounds=3,
    mistakes=[in_step(2, 8), in_step(2, 11), in_step(3, 13), in_step(4, 15)],
    num_blocks=12,
    speculation=guesses(8, 15),
)


def _garbage_block(step: RevealedStep) -> int:
    request = step.after.requests[0]
    return request.block_tables[0][-(-request.num_computed_tokens // 4)]


course_exercise(
    "guessing/garbage",
    play=_prompt_computed,
    truth=_garbage_block,
    about="block",
    mistakes=[0, 1],
    num_blocks=12,
    speculation=guesses(7, 8),
)


def propose(token_ids: Sequence[int], num_tokens: int) -> list[int]:
    """Return up to num_tokens tokens after the latest earlier occurrence of the last two tokens."""
    end = list(token_ids[-2:])
    for place in range(len(token_ids) - 3, -1, -1):
        if list(token_ids[place : place + 2]) == end:
            return list(token_ids[place + 2 : place + 2 + num_tokens])
    return []


def _behind(token_ids: Sequence[int], num_tokens: int, places: Sequence[int], num_skipped: int = 2) -> list[int]:
    """Return the tokens after the first of these places that has the last two tokens."""
    for place in places:
        if token_ids[place : place + 2] == token_ids[-2:]:
            return list(token_ids[place + num_skipped : place + num_skipped + num_tokens])
    return []


course_exercise(
    "guessing/look-up",
    solution=propose,
    cases=[
        ([1, 2, 3, 4, 1, 2], 2),
        ([1, 2, 3, 4], 4),
        ([1, 2, 5, 1, 2, 6, 1, 2], 1),
        ([1, 2, 3, 1, 2], 8),
        ([9, 9, 9], 3),
        ([7], 4),
        ([], 4),
        ([4, 5, 6, 5, 4, 5], 2),
    ],
    num_shown=3,
    num_lines=5,
    mistakes=[
        lambda tokens, n: _behind(tokens, n, range(len(tokens) - 2, -1, -1)),
        lambda tokens, n: _behind(tokens, n, range(len(tokens) - 2)),
        lambda tokens, n: _behind(tokens, n, range(len(tokens) - 3, -1, -1), 0),
    ],
)


class AcceptsEveryEqual(Drafts):
    """Counts every draft that equals the model's token, even after a wrong one."""

    def num_accepted(self, drafts: Sequence[int], sampled: Sequence[int]) -> int:
        """Return how many drafts equal the model's token at their position."""
        return sum(draft == token for draft, token in zip(drafts, sampled, strict=False))


def _five_steps(lab: Lab) -> None:
    _prompt_computed(lab)
    lab.step(4)


course_exercise(
    "guessing/first-wrong",
    broken=AcceptsEveryEqual,
    first=nth_event(DraftsJudged, 1),
    play=_five_steps,
    mistakes=[
        nth_event(DraftsJudged),
        nth_event(TokensDrafted, 1),
        nth_event(RequestScheduled, 2),
        nth_event(BlockAllocated, 3),
        "SlotsWritten",
    ],
    num_blocks=12,
    speculation=guesses(10, 13),
)
