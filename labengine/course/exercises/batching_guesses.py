"""Questions in the text of the notebook "Continuous batching" on seats and on the token budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.core.scheduler import Admission
from labengine.core.step_plan import StepPlan
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.course.phrases import listed, words
from labengine.course.predict_exercise import Instance, RevealedStep
from labengine.course.trial import Workload, plays
from labengine.course.words import course_exercise
from labengine.events import RequestScheduled, StepEnded, TokenSampled
from labengine.lab import Lab

QUESTIONS = {
    "Is it going to rain today": 3,
    "Tell me all about the Romans": 12,
    "Who wrote this song about Paris": 4,
    "How do I get to Rome": 6,
    "What time is it in Lima": 3,
    "Where do swallows go in winter": 5,
    "How do you bake good bread": 8,
    "Is a tomato really a fruit": 3,
}
"""The notebook's questions, and the lengths of their answers in tokens."""
ALICE = (
    "Alice was beginning to get very tired of sitting by her sister on the bank, and of having nothing to do: once or "
    "twice she had peeped into the book her sister was reading, but it had no pictures or conversations in it, “and "
    "what is the use of a book,” thought Alice “without pictures or conversations?”"
)
SEATS, SMALL_BUDGET, BUDGET = 4, 8, 16


def _ask_all(lengths: Sequence[int]) -> Workload:
    return plays(*zip(QUESTIONS, lengths, strict=True))


def _lengths(random: Random) -> list[int]:
    return [random.randrange(2, 13) for _ in QUESTIONS]


def _num_steps(step: RevealedStep) -> int:
    return len(step.of_kind(StepEnded))


# -- seats -------------------------------------------------------------------------------------------------------------


def _a_seat_is_free(lengths: Sequence[int], num_done: int) -> Instance:
    def play(lab: Lab) -> None:
        _ask_all(lengths)(lab)
        while sum(one.status == "finished" for one in lab.snapshot().requests.values()) < num_done:
            lab.step()

    told = "One is" if num_done == 1 else f"{num_done} are"
    task = (
        f"Eight questions arrive at four seats, in the order A to H; their answers have {listed(lengths)} tokens. "
        f"{told} done. Which request does the next step admit first?"
    )
    return Instance(task, play)


course_exercise(
    "continuous-batching/next-seat",
    play=_a_seat_is_free([*QUESTIONS.values()], 1),
    truth=lambda step: next(event.request_id for event in step.of_kind(RequestScheduled) if event.is_prefill),
    another=lambda random: _a_seat_is_free(_lengths(random), random.randrange(1, 4)),
    about="request",
    views=("tables",),
    mistakes=[lambda step: 7],
    num_blocks=64,
    max_num_seqs=SEATS,
)


class StaticBatching(TokenBudgetScheduler):
    """A scheduler that admits no request in a step that begins with a request still running."""

    is_open = True

    def schedule(self) -> StepPlan:
        """Note whether a new batch may begin."""
        self.is_open = not self.running
        return super().schedule()

    def admit(self, request: Request, limit: int, *, is_first: bool) -> Admission:
        """Return the tokens that a waiting request computes; None while a batch is running."""
        return super().admit(request, limit, is_first=is_first) if self.is_open else None


def _in_static_batches(lengths: Sequence[int]) -> Instance:
    task = (
        "*Static* batching with four seats: the next four begin when the last of the first four is done. The answers "
        f"of A to D have {listed(lengths[:4])} tokens, those of E to H {listed(lengths[4:])}, one token per step. "
        "After how many steps are all eight done?"
    )
    return Instance(task, _ask_all(lengths))


course_exercise(
    "continuous-batching/static-steps",
    play=_in_static_batches([*QUESTIONS.values()]),
    truth=_num_steps,
    until=lambda step: all(request.status == "finished" for request in step.after.requests.values()),
    another=lambda random: _in_static_batches(_lengths(random)),
    about="number",
    views=("tables",),
    mistakes=[
        lambda step: max(len(one.token_ids) - one.num_prompt_tokens for one in step.after.requests.values()),
        lambda step: sum(len(one.token_ids) - one.num_prompt_tokens for one in step.after.requests.values()),
    ],
    parts=Parts(scheduler=StaticBatching),
    num_blocks=64,
    max_num_seqs=SEATS,
)


# -- the budget --------------------------------------------------------------------------------------------------------


def _cut(sizes: Sequence[int]) -> Instance:

    task = (
        f"A step computes at most {BUDGET} tokens, and every request has a seat. A, B, C and D wait with prompts of "
        f"{listed(sizes)} words. How many tokens of C's prompt does the next step compute?"
    )
    return Instance(
        task,
        plays(
            *((words(f"{question} and in the end", size), 4) for question, size in zip(QUESTIONS, sizes, strict=False))
        ),
    )


def _sizes(random: Random) -> list[int]:
    return [random.randrange(4, 9) for _ in range(4)]


course_exercise(
    "continuous-batching/cut",
    play=_cut([6, 6, 6, 6]),
    truth=lambda step: next(event.num_tokens for event in step.of_kind(RequestScheduled) if event.request_id == 2),
    another=lambda random: _cut(_sizes(random)),
    about="number",
    rounds=2,
    views=("tables",),
    mistakes=[lambda step: len(step.before.requests[2].token_ids), lambda step: 0],
    num_blocks=64,
    max_num_seqs=8,
    max_num_batched_tokens=BUDGET,
)


def _alice_comes(num_words: int, task: str) -> Instance:

    return Instance(
        task.format(n=num_words),
        plays(
            ("Is this right", 14),
            ("Who is there", 14),
            ("Why not today", 14),
            4,
            (words(ALICE, num_words), 4),
        ),
    )


def _with_alice(task: str) -> Callable[[Random], Instance]:
    return lambda random: _alice_comes(random.randrange(18, 58), task)


def _d_has_begun(step: RevealedStep) -> bool:
    return any(event.request_id == 3 for event in step.of_kind(TokenSampled))


def _exactly(step: RevealedStep, share: int) -> int:
    return step.before.requests[3].num_prompt_tokens // share


STILL = (
    "A, B and C are being answered when D arrives with {n} words. A step computes at most 16 tokens, prompts *or* "
    "answers, and prompts come first (nano-vLLM). For how many steps do A, B and C stand still?"
)
FIRST = (
    "A, B and C are being answered when D arrives with {n} words. A step computes at most 8 tokens: one each for A, B "
    "and C, and the rest for D; A, B and C lack ten tokens. After how many steps does D get its first token?"
)


course_exercise(
    "continuous-batching/stand-still",
    play=_alice_comes(57, STILL),
    truth=lambda step: _num_steps(step) - sum(event.request_id == 0 for event in step.of_kind(TokenSampled)),
    until=_d_has_begun,
    another=_with_alice(STILL),
    about="number",
    views=("tables",),
    mistakes=[lambda step: _exactly(step, BUDGET), lambda step: 0],
    edition="nano-vllm",
    num_blocks=64,
    max_num_batched_tokens=BUDGET,
)


course_exercise(
    "continuous-batching/first-token",
    play=_alice_comes(57, FIRST),
    truth=_num_steps,
    until=_d_has_begun,
    another=_with_alice(FIRST),
    about="number",
    views=("tables",),
    mistakes=[lambda step: -(-_exactly(step, 1) // 5), lambda step: -(-_exactly(step, 1) // 8)],
    num_blocks=64,
    max_num_batched_tokens=SMALL_BUDGET,
)
