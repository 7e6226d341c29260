"""Exercises of the notebook "Continuous batching" on admission: the requests in a step, and their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from labengine.core.request import Request, RequestStatus
from labengine.core.step_plan import ScheduledRequest
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.course.first_wrong_exercise import nth_event
from labengine.course.phrases import phrases
from labengine.course.predict_exercise import Instance, in_step
from labengine.course.trial import RUN, plays
from labengine.course.words import course_exercise
from labengine.events import RequestScheduled, TokenSampled

LETTER = "Here is a letter that I have written to my oldest friend about all that happened last year"


def split_budget(missing: Sequence[int], budget: int) -> list[int]:
    """Return each request's tokens: the first ones get all their missing tokens, the last one gets the rest."""
    shares = []
    for num_tokens in missing:
        shares.append(min(num_tokens, budget))
        budget -= shares[-1]
    return shares


def _all_or_nothing(missing: Sequence[int], budget: int) -> list[int]:
    shares = []
    for num_tokens in missing:
        shares.append(num_tokens if num_tokens <= budget else 0)
        budget -= shares[-1]
    return shares


course_exercise(
    "continuous-batching/budget",
    solution=split_budget,
    cases=[
        ([1, 1, 60], 16),
        ([1, 1, 60, 8], 80),
        ([1, 1], 16),
        ([20, 4], 16),
        ([6, 6, 6, 6], 16),
        ([], 8),
        ([1, 1, 1], 2),
    ],
    num_shown=2,
    num_lines=5,
    mistakes=[_all_or_nothing, lambda missing, budget: [min(num_tokens, budget) for num_tokens in missing]],
)


def _two_run_and_two_arrive(long: str, short: str) -> Instance:

    task = (
        f"A step may compute 10 tokens. A and B are being answered. C waits with a prompt of {len(long.split())} "
        f"tokens, and D behind it with {len(short.split())}. How many prompt tokens does the next step compute?"
    )
    return Instance(task, plays(("Why is that", 9), ("Who are they", 9), 2, (long, 3), (short, 3)))


course_exercise(
    "continuous-batching/next-chunk",
    play=_two_run_and_two_arrive(LETTER, "Where is the station please"),
    truth=lambda step: sum(event.num_tokens for event in step.of_kind(RequestScheduled) if event.is_prefill),
    another=lambda random: _two_run_and_two_arrive(*phrases(random, random.randrange(14, 20), random.randrange(4, 9))),
    about="number",
    rounds=3,
    num_blocks=24,
    max_num_batched_tokens=10,
    mistakes=[
        lambda step: sum(event.num_tokens for event in step.of_kind(RequestScheduled)),
        lambda step: next(event.num_tokens for event in step.of_kind(RequestScheduled) if event.is_prefill),
    ],
)


def _three_arrive(a: int, b: int, prompts: Sequence[str]) -> Instance:
    """Return the instance where A's and B's answers have a and b tokens, and C, D and E bring these prompts."""
    number = {3: "three", 4: "four", 5: "five", 6: "six"}
    c, d, e = (len(prompt.split()) for prompt in prompts)
    task = (
        f"The engine has three seats, and 9 blocks of 4 tokens. A and B are being answered: A's answer has {number[a]} "
        f"tokens, B's has {number[b]}, and each has two so far. Now C arrives with a prompt of {c} tokens, then D with "
        f"{d}, and E with {e}. Of the requests that the next step computes, which is the youngest: the one admitted "
        "last, in this step or in an earlier one?"
    )
    return Instance(
        task,
        plays(
            ("Where is the nearest bank", a),
            ("Who wrote Hamlet and Macbeth", b),
            2,
            *((prompt, 9) for prompt in prompts),
        ),
        keeps_mistakes=False,
    )


def _three_others_arrive(random: Random) -> Instance:
    prompts = phrases(random, random.randrange(14, 21), random.randrange(3, 9), random.randrange(5, 14))
    return _three_arrive(random.randrange(4, 7), random.randrange(3, 6), prompts)


C, D, E = 2, 3, 4
WHALES = "What do whales eat in the cold and dark north sea"
course_exercise(
    "continuous-batching/admitted",
    play=_three_arrive(5, 3, (f"{LETTER} so please read it", "Why is that", WHALES)),
    truth=lambda step: step.of_kind(RequestScheduled)[-1].request_id,
    another=_three_others_arrive,
    views=("tables", "pool"),
    about="request",
    rounds=4,
    num_blocks=9,
    max_num_seqs=3,
    mistakes=[
        *(in_step(3, D), in_step(3, C), in_step(4, C), in_step(4, E)),
        *(in_step(5, D), in_step(6, E), in_step(6, C)),
    ],
)


class SamplesEveryChunk(TokenBudgetScheduler):
    """A scheduler that samples a token after every chunk of a prompt."""

    def plan(self, request: Request, num_tokens: int, status: RequestStatus) -> ScheduledRequest:
        """Plan a request as usual, and always let it sample."""
        return replace(super().plan(request, num_tokens, status), samples=True)


course_exercise(
    "continuous-batching/early-token",
    broken=SamplesEveryChunk,
    play=plays(("Why is that", 6), 1, (LETTER, 4), RUN),
    first=nth_event(TokenSampled, request_id=1),
    mistakes=[nth_event(TokenSampled), nth_event(RequestScheduled, 2)],
    num_blocks=24,
    max_num_batched_tokens=10,
)
