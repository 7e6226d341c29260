"""Exercises of the notebook "Guessing ahead"."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from labengine.core.proposer import FixedDrafts
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.course.base import Exercise
from labengine.course.exercise import exercise
from labengine.course.first_wrong_exercise import nth_event
from labengine.course.predict_exercise import RevealedStep, in_step
from labengine.engine.simulated import default_next_token
from labengine.events import BlockAllocated, DraftsJudged, RequestScheduled, TokensDrafted
from labengine.lab import Lab

PROMPT = (11, 12, 13, 14, 15, 16)
WRONG = 99
"""A token that the simulated model does not sample."""


def guesses(*wrong: int) -> FixedDrafts:
    """Return a proposer of four drafts for request 0: the model's own tokens, and WRONG at the positions given."""
    tokens = [*PROMPT, *(default_next_token(0, position) for position in range(len(PROMPT), 40))]
    for position in wrong:
        tokens[position] = WRONG
    return FixedDrafts(tuple(tokens), num_drafts=4)


def _prompt_computed(lab: Lab) -> None:
    lab.add(token_ids=PROMPT, max_tokens=20, ignore_eos=True)
    lab.step()


def new_tokens(drafts: Sequence[int], sampled: Sequence[int]) -> list[int]:
    """Return the tokens that a request gets in a step: the model's, up to the first that its draft does not have."""
    for place, draft in enumerate(drafts):
        if draft != sampled[place]:
            return list(sampled[: place + 1])
    return list(sampled)


def _accepted_alone(drafts: Sequence[int], sampled: Sequence[int]) -> list[int]:
    return new_tokens(drafts, sampled)[:-1]


def _keeps_every_equal_one(drafts: Sequence[int], sampled: Sequence[int]) -> list[int]:
    return [draft for draft, token in zip(drafts, sampled, strict=False) if draft == token]


def _all_sampled(drafts: Sequence[int], sampled: Sequence[int]) -> list[int]:
    return list(sampled)


def _all_drafts(drafts: Sequence[int], sampled: Sequence[int]) -> list[int]:
    return list(drafts)


def tokens() -> Exercise:
    """Fill in: what a step yields."""
    return exercise(
        "guessing/tokens",
        "A step computes a request's newest token and `drafts` behind it. `sampled` is what the model samples in each "
        "row, one token more than there are drafts: `sampled[0]` for the place of the first draft. Return the list of "
        "tokens that the request gets in this step.",
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
        hints=[
            "How far do `drafts` and `sampled` agree, from the left?",
            "Where they part, the model's own token is right, too: its row stands behind true tokens only.",
        ],
        mistakes=[
            (_accepted_alone, "One token more: what the model samples behind the last accepted draft is true."),
            (
                _keeps_every_equal_one,
                "A draft behind a rejected one does not count: it was computed behind a wrong token.",
            ),
            (_all_sampled, "Behind the first rejected draft the rows were computed on a wrong token."),
            (_all_drafts, "Guesses are nothing to rely on: compare each with what the model samples."),
        ],
    )


def _num_known(step: RevealedStep) -> int:
    return len(step.after.requests[0].token_ids)


def known() -> Exercise:
    """Predict: how many tokens a request has, three steps in a row."""
    return exercise(
        "guessing/known",
        "A's prompt of 6 tokens is computed, and A has its first token: 7 are known. Each step computes four drafts "
        "behind the newest token. Those for positions 8 and 15 are wrong (99), all others are right. How many tokens "
        "does A have after the next step?",
        play=_prompt_computed,
        truth=_num_known,
        about="number",
        rounds=3,
        hints=[
            "Positions count from 0: the first drafts are for positions 7 to 10. Which of them are accepted?",
            "A step gives one token more than it accepts.",
        ],
        mistakes=[
            (in_step(2, 8, _num_known), "The draft for position 7 is accepted, and then comes the model's own token."),
            (in_step(2, 11, _num_known), "The draft for position 8 is wrong, so those behind it do not count."),
            (in_step(3, 13, _num_known), "All four are right: four tokens, and one more behind the last."),
            (in_step(4, 15, _num_known), "The draft for position 14 is right, and the model's own token follows it."),
        ],
        num_blocks=12,
        block_size=4,
        speculation=guesses(8, 15),
    )


def _garbage_block(step: RevealedStep) -> int:
    request = step.after.requests[0]
    return request.block_tables[0][-(-request.num_computed_tokens // 4)]


def garbage() -> Exercise:
    """Predict: the block that holds rejected guesses alone."""
    return exercise(
        "guessing/garbage",
        "Blocks of 4. The drafts for positions 7 and 8 are wrong, all others are right. Which block holds nothing but "
        "the keys and values of rejected guesses after the next step?",
        play=_prompt_computed,
        truth=_garbage_block,
        about="block",
        reason="A knows 8 tokens then, and 7 of them have keys and values: positions 8 to 10 hold rejected guesses.",
        hints=[
            "The step computes positions 6 to 10. Which slots of which blocks does it write?",
            "Which of these positions are of accepted tokens? The others hold garbage.",
        ],
        mistakes=[
            (0, "The prompt's first four tokens are in it."),
            (1, "Positions 4 to 7 are there: two of the prompt, and the first token of the answer."),
        ],
        num_blocks=12,
        block_size=4,
        speculation=guesses(7, 8),
    )


def propose(token_ids: Sequence[int], num_tokens: int) -> list[int]:
    """Return up to num_tokens tokens behind the latest earlier place of the last two tokens."""
    end = list(token_ids[-2:])
    for place in range(len(token_ids) - 3, -1, -1):
        if list(token_ids[place : place + 2]) == end:
            return list(token_ids[place + 2 : place + 2 + num_tokens])
    return []


def _finds_itself(token_ids: Sequence[int], num_tokens: int) -> list[int]:
    end = list(token_ids[-2:])
    for place in range(len(token_ids) - 2, -1, -1):
        if list(token_ids[place : place + 2]) == end:
            return list(token_ids[place + 2 : place + 2 + num_tokens])
    return []


def _takes_the_first(token_ids: Sequence[int], num_tokens: int) -> list[int]:
    end = list(token_ids[-2:])
    for place in range(len(token_ids) - 2):
        if list(token_ids[place : place + 2]) == end:
            return list(token_ids[place + 2 : place + 2 + num_tokens])
    return []


def _returns_the_end_too(token_ids: Sequence[int], num_tokens: int) -> list[int]:
    end = list(token_ids[-2:])
    for place in range(len(token_ids) - 3, -1, -1):
        if list(token_ids[place : place + 2]) == end:
            return list(token_ids[place : place + num_tokens])
    return []


def look_up() -> Exercise:
    """Fill in: a proposer that looks the last two tokens up."""
    return exercise(
        "guessing/look-up",
        "Write a proposer's method as a function. It looks for the text's last two tokens earlier in the text, and "
        "guesses what followed them there: up to `num_tokens` tokens. Of several places the *latest* counts. Without "
        "one, it returns an empty list.",
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
        hints=[
            "The end of the text is a place of its own last two tokens, too: begin one place before it.",
            "`range(len(token_ids) - 3, -1, -1)` are the places to look at, the latest first.",
        ],
        mistakes=[
            (_finds_itself, "You find the end of the text itself, and nothing follows that. Begin one place earlier."),
            (_takes_the_first, "That is the first place, as `NGram` has it. Here the latest one counts."),
            (_returns_the_end_too, "The two tokens themselves are known already: return what follows them."),
        ],
    )


class AcceptsEveryEqual(TokenBudgetScheduler):
    """A scheduler that counts the drafts that equal the model's tokens, wherever they stand."""

    def num_accepted(self, drafts: Sequence[int], sampled: Sequence[int]) -> int:
        """Return how many drafts equal what the model samples in their place."""
        return sum(draft == token for draft, token in zip(drafts, sampled, strict=False))


def _five_steps(lab: Lab) -> None:
    _prompt_computed(lab)
    lab.step(4)


def first_wrong() -> Exercise:
    """Find the first wrong event: a draft behind a rejected one is accepted."""
    return exercise(
        "guessing/first-wrong",
        "One method of this engine is wrong. The drafts for positions 10 and 13 are wrong (99), all others are right. "
        "From some step on A reads keys and values of a token that it does not have. Which event is the first wrong "
        "one?",
        broken=AcceptsEveryEqual,
        first=nth_event(DraftsJudged, 1),
        because=(
            "The draft for position 13 is wrong, and the one behind it equals what the model samples there. Three of "
            "four are equal, but only two stand behind true tokens. The slot of position 13 holds KV of 99, and counts "
            "as computed from here on."
        ),
        play=_five_steps,
        hints=[
            "Whenever drafts are judged: which of them are equal to the model's tokens, and where do they stop?",
            "In step 2 the wrong draft is the last one, so nothing stands behind it. Look at the next step.",
        ],
        mistakes=[
            (nth_event(DraftsJudged), "Three are equal, and the wrong one is the last: accepting three is right."),
            (nth_event(TokensDrafted, 1), "A guess may be wrong. It must not be taken for true."),
            (nth_event(RequestScheduled, 2), "To compute guesses is right, also wrong ones: the step judges them."),
            (nth_event(BlockAllocated, 3), "Drafts need slots, too, before anybody knows whether they are right."),
            ("SlotsWritten", "What this step writes is right. What it reads was counted as computed before."),
        ],
        num_blocks=12,
        block_size=4,
        speculation=guesses(10, 13),
    )


EXERCISES: Mapping[str, Callable[[], Exercise]] = {
    "guessing/tokens": tokens,
    "guessing/known": known,
    "guessing/garbage": garbage,
    "guessing/look-up": look_up,
    "guessing/first-wrong": first_wrong,
}
