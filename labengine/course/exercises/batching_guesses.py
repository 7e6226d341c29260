"""Questions in the text of the notebook "Continuous batching" on seats and on the token budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from labengine.core.parts import Parts
from labengine.course.base import Exercise
from labengine.course.phrases import listed, words
from labengine.course.predict_exercise import Instance, RevealedStep
from labengine.course.static_batching import StaticBatching
from labengine.course.words import Make, course_exercise
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
"""The notebook's questions, and the numbers of tokens of their answers."""
ALICE = (
    "Alice was beginning to get very tired of sitting by her sister on the bank, and of having nothing to do: once or "
    "twice she had peeped into the book her sister was reading, but it had no pictures or conversations in it, “and "
    "what is the use of a book,” thought Alice “without pictures or conversations?”"
)
SEATS, SMALL_BUDGET, BUDGET = 4, 8, 16


def _ask_all(lab: Lab, lengths: Sequence[int]) -> None:
    for question, length in zip(QUESTIONS, lengths, strict=False):
        lab.add(question, max_tokens=length, ignore_eos=True)


def _lengths(random: Random) -> list[int]:
    return [random.randrange(2, 13) for _ in QUESTIONS]


def _all_done(step: RevealedStep) -> bool:
    return all(request.status == "finished" for request in step.after.requests.values())


def _num_steps(step: RevealedStep) -> int:
    return len(step.of_kind(StepEnded))


# -- seats -------------------------------------------------------------------------------------------------------------


def _a_seat_is_free(lengths: Sequence[int], num_done: int) -> Instance:
    def play(lab: Lab) -> None:
        _ask_all(lab, lengths)
        while sum(one.status == "finished" for one in lab.snapshot().requests.values()) < num_done:
            lab.step()

    told = "One is" if num_done == 1 else f"{num_done} are"
    task = (
        f"Eight questions arrive at four seats, in the order A to H; their answers get {listed(lengths)} tokens. "
        f"{told} done. Which request does the next step admit first?"
    )
    return Instance(task, play)


def _admitted_first(step: RevealedStep) -> int:
    return next(event.request_id for event in step.of_kind(RequestScheduled) if event.is_prefill)


@course_exercise("continuous-batching/next-seat")
def next_seat(make: Make) -> Exercise:
    """Predict: the request that gets a free seat."""
    first = _a_seat_is_free([*QUESTIONS.values()], 1)
    return make(
        task=first.task,
        play=first.play,
        truth=_admitted_first,
        another=lambda random: _a_seat_is_free(_lengths(random), random.randrange(1, 4)),
        about="request",
        views=("tables",),
        mistakes=[lambda step: 7],
        num_blocks=64,
        block_size=4,
        max_num_seqs=SEATS,
    )


def _in_static_batches(lengths: Sequence[int]) -> Instance:
    task = (
        "*Static* batching with four seats: the next four begin when the last of the first four is done. The answers "
        f"of A to D get {listed(lengths[:4])} tokens, those of E to H {listed(lengths[4:])}, one token in each step. "
        "After how many steps are all eight done?"
    )
    return Instance(task, lambda lab: _ask_all(lab, lengths))


@course_exercise("continuous-batching/static-steps")
def static_steps(make: Make) -> Exercise:
    """Predict: the steps of static batching."""
    first = _in_static_batches([*QUESTIONS.values()])
    return make(
        task=first.task,
        play=first.play,
        truth=_num_steps,
        until=_all_done,
        another=lambda random: _in_static_batches(_lengths(random)),
        about="number",
        views=("tables",),
        mistakes=[
            lambda step: max(len(one.token_ids) - one.num_prompt_tokens for one in step.after.requests.values()),
            lambda step: sum(len(one.token_ids) - one.num_prompt_tokens for one in step.after.requests.values()),
        ],
        parts=Parts(scheduler=StaticBatching),
        num_blocks=64,
        block_size=4,
        max_num_seqs=SEATS,
    )


# -- the budget --------------------------------------------------------------------------------------------------------


def _cut(sizes: Sequence[int]) -> Instance:
    def play(lab: Lab) -> None:
        for question, size in zip(QUESTIONS, sizes, strict=False):
            lab.add(words(f"{question} and in the end", size), max_tokens=4, ignore_eos=True)

    task = (
        f"A step computes at most {BUDGET} tokens, and every request has a seat. A, B, C and D wait with prompts of "
        f"{listed(sizes)} words. How many tokens of C's prompt does the next step compute?"
    )
    return Instance(task, play)


def _sizes(random: Random) -> list[int]:
    return [random.randrange(4, 9) for _ in range(4)]


def _of_c(step: RevealedStep) -> int:
    return next(event.num_tokens for event in step.of_kind(RequestScheduled) if event.request_id == 2)


@course_exercise("continuous-batching/cut")
def cut(make: Make) -> Exercise:
    """Predict: the tokens of a prompt that is cut in two."""
    first = _cut([6, 6, 6, 6])
    return make(
        task=first.task,
        play=first.play,
        truth=_of_c,
        another=lambda random: _cut(_sizes(random)),
        about="number",
        rounds=2,
        views=("tables",),
        mistakes=[lambda step: len(step.before.requests[2].token_ids), lambda step: 0],
        num_blocks=64,
        block_size=4,
        max_num_seqs=8,
        max_num_batched_tokens=BUDGET,
    )


def _alice_comes(num_words: int, task: str) -> Instance:
    def play(lab: Lab) -> None:
        for question in ("Is this right", "Who is there", "Why not today"):
            lab.add(question, max_tokens=14, ignore_eos=True)
        lab.step(4)
        lab.add(words(ALICE, num_words), max_tokens=4, ignore_eos=True)

    return Instance(task.format(n=num_words), play)


def _with_alice(task: str) -> Callable[[Random], Instance]:
    return lambda random: _alice_comes(random.randrange(18, 58), task)


def _d_has_begun(step: RevealedStep) -> bool:
    return any(event.request_id == 3 for event in step.of_kind(TokenSampled))


def _num_still(step: RevealedStep) -> int:
    return _num_steps(step) - sum(event.request_id == 0 for event in step.of_kind(TokenSampled))


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


@course_exercise("continuous-batching/stand-still")
def stand_still(make: Make) -> Exercise:
    """Predict: the steps in which nobody else gets a token."""
    first = _alice_comes(57, STILL)
    return make(
        task=first.task,
        play=first.play,
        truth=_num_still,
        until=_d_has_begun,
        another=_with_alice(STILL),
        about="number",
        views=("tables",),
        mistakes=[lambda step: _exactly(step, BUDGET), lambda step: 0],
        edition="nano-vllm",
        num_blocks=64,
        block_size=4,
        max_num_batched_tokens=BUDGET,
    )


@course_exercise("continuous-batching/first-token")
def first_token(make: Make) -> Exercise:
    """Predict: the steps until a long prompt has its first token."""
    first = _alice_comes(57, FIRST)
    return make(
        task=first.task,
        play=first.play,
        truth=_num_steps,
        until=_d_has_begun,
        another=_with_alice(FIRST),
        about="number",
        views=("tables",),
        mistakes=[lambda step: -(-_exactly(step, 1) // 5), lambda step: -(-_exactly(step, 1) // 8)],
        num_blocks=64,
        block_size=4,
        max_num_batched_tokens=SMALL_BUDGET,
    )
