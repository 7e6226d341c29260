"""Exercises of the notebook "Continuous batching" on admission: who is in a step, and with how many tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from labengine.core.request import Request, RequestStatus
from labengine.core.step_plan import ScheduledRequest
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.course.base import Exercise
from labengine.course.first_wrong_exercise import nth_event
from labengine.course.phrases import phrases
from labengine.course.predict_exercise import Instance, RevealedStep, in_step
from labengine.course.words import Make, course_exercise
from labengine.events import RequestScheduled, TokenSampled
from labengine.lab import Lab

LETTER = "Here is a letter that I have written to my oldest friend about all that happened last year"


def split_budget(missing: Sequence[int], budget: int) -> list[int]:
    """Return each request's tokens: the first ones get all that they miss, and the last one what is left."""
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


def _forgets_what_is_spent(missing: Sequence[int], budget: int) -> list[int]:
    return [min(num_tokens, budget) for num_tokens in missing]


@course_exercise("continuous-batching/budget")
def budget(make: Make) -> Exercise:
    """Fill in: a step's budget, split over requests."""
    return make(
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
        mistakes=[_all_or_nothing, _forgets_what_is_spent],
    )


def _two_run_and_two_arrive(long: str, short: str) -> Instance:
    def play(lab: Lab) -> None:
        for prompt in ("Why is that", "Who are they"):
            lab.add(prompt, max_tokens=9)
        lab.step(2)
        lab.add(long, max_tokens=3)
        lab.add(short, max_tokens=3)

    task = (
        f"A step may compute 10 tokens. A and B are being answered. C waits with a prompt of {len(long.split())} "
        f"tokens, and D behind it with {len(short.split())}. How many prompt tokens does the next step compute?"
    )
    return Instance(task, play)


def _two_others_arrive(random: Random) -> Instance:
    return _two_run_and_two_arrive(*phrases(random, random.randrange(14, 20), random.randrange(4, 9)))


def _prompt_tokens(step: RevealedStep) -> int:
    return sum(event.num_tokens for event in step.of_kind(RequestScheduled) if event.is_prefill)


def _without_the_running(step: RevealedStep) -> int:
    return sum(event.num_tokens for event in step.of_kind(RequestScheduled))


def _one_prompt_alone(step: RevealedStep) -> int:
    return next(event.num_tokens for event in step.of_kind(RequestScheduled) if event.is_prefill)


@course_exercise("continuous-batching/next-chunk")
def next_chunk(make: Make) -> Exercise:
    """Predict: the prompt tokens of each of three steps."""
    first = _two_run_and_two_arrive(LETTER, "Where is the station please")
    return make(
        task=first.task,
        play=first.play,
        truth=_prompt_tokens,
        another=_two_others_arrive,
        about="number",
        rounds=3,
        num_blocks=24,
        block_size=4,
        max_num_batched_tokens=10,
        mistakes=[_without_the_running, _one_prompt_alone],
    )


def _three_arrive(a: int, b: int, prompts: Sequence[str]) -> Instance:
    """Return the instance in which A's and B's answers have that many tokens, and C, D and E bring these prompts."""

    def play(lab: Lab) -> None:
        lab.add("Where is the nearest bank", max_tokens=a, ignore_eos=True)
        lab.add("Who wrote Hamlet and Macbeth", max_tokens=b, ignore_eos=True)
        lab.step(2)
        for prompt in prompts:
            lab.add(prompt, max_tokens=9, ignore_eos=True)

    number = {3: "three", 4: "four", 5: "five", 6: "six"}
    c, d, e = (len(prompt.split()) for prompt in prompts)
    task = (
        f"The engine has three seats, and 9 blocks of 4 tokens. A and B are being answered: A's answer has {number[a]} "
        f"tokens, B's has {number[b]}, and each has two so far. Now C arrives with a prompt of {c} tokens, then D with "
        f"{d}, and E with {e}. Of the requests that the next step computes, which is the youngest: the one admitted "
        "last, in this step or in an earlier one?"
    )
    return Instance(task, play, keeps_mistakes=False)


def _three_others_arrive(random: Random) -> Instance:
    prompts = phrases(random, random.randrange(14, 21), random.randrange(3, 9), random.randrange(5, 14))
    return _three_arrive(random.randrange(4, 7), random.randrange(3, 6), prompts)


def _admitted_last(step: RevealedStep) -> int:
    return step.of_kind(RequestScheduled)[-1].request_id


@course_exercise("continuous-batching/admitted")
def admitted(make: Make) -> Exercise:
    """Predict: who is admitted, and who waits, in four steps."""
    c, d, e = 2, 3, 4
    whales = "What do whales eat in the cold and dark north sea"
    first = _three_arrive(5, 3, (f"{LETTER} so please read it", "Why is that", whales))
    return make(
        task=first.task,
        play=first.play,
        truth=_admitted_last,
        another=_three_others_arrive,
        views=("tables", "pool"),
        about="request",
        rounds=4,
        num_blocks=9,
        block_size=4,
        max_num_seqs=3,
        mistakes=[
            in_step(3, d, _admitted_last),
            in_step(3, c, _admitted_last),
            in_step(4, c, _admitted_last),
            in_step(4, e, _admitted_last),
            in_step(5, d, _admitted_last),
            in_step(6, e, _admitted_last),
            in_step(6, c, _admitted_last),
        ],
    )


class SamplesEveryChunk(TokenBudgetScheduler):
    """A scheduler that samples a token after every chunk of a prompt."""

    def plan(self, request: Request, num_tokens: int, status: RequestStatus) -> ScheduledRequest:
        """Plan a request as usual, and have it sample in any case."""
        return replace(super().plan(request, num_tokens, status), samples=True)


def _long_letter(lab: Lab) -> None:
    lab.add("Why is that", max_tokens=6)
    lab.step()
    lab.add(LETTER, max_tokens=4)
    lab.run()


def _first_sampled_early(lab: Lab) -> int:
    assert lab.timeline is not None
    events = enumerate(lab.timeline.events(), lab.timeline.num_dropped)
    return next(n for n, event in events if isinstance(event, TokenSampled) and event.request_id == 1)


@course_exercise("continuous-batching/early-token")
def early_token(make: Make) -> Exercise:
    """Find the first wrong event: a token sampled in the middle of a prompt."""
    return make(
        broken=SamplesEveryChunk,
        play=_long_letter,
        first=_first_sampled_early,
        mistakes=[nth_event(TokenSampled), nth_event(RequestScheduled, 2)],
        num_blocks=24,
        block_size=4,
        max_num_batched_tokens=10,
    )
