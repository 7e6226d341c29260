"""Questions in the text of the notebook "Continuous batching" on the pool that is full."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from labengine.course.base import Exercise
from labengine.course.phrases import listed, phrases
from labengine.course.predict_exercise import Instance, RevealedStep
from labengine.course.words import Make, course_exercise
from labengine.events import PrefixHit, RequestPreempted
from labengine.lab import Lab
from labengine.record.snapshot import Snapshot
from labengine.record.wording import request_name

PROMPTS = {
    "Tell me a long story about the sea and the moon tonight": 14,
    "Write down all the rules of chess for a child of six": 10,
    "Why does the wind blow colder in the hills than here": 12,
}
"""The notebook's three requests, and the numbers of tokens of their answers."""
NUM_BLOCKS, BLOCK_SIZE = 13, 4
_MAX_STEPS = 60
Requests = Sequence[tuple[str, int]]


def _requests(random: Random) -> list[tuple[str, int]]:
    """Return two, three or four requests, with prompts that fill most of the pool."""
    num = random.choice((2, 3, 3, 4))
    sizes = [random.randrange(30 // num, 41 // num) for _ in range(num)]
    return [(prompt, random.randrange(6, 15)) for prompt in phrases(random, *sizes)]


def up_to_the_return(random: Random) -> tuple[Requests, Callable[[Lab], None]]:
    """Return requests, and the workload that goes to the step before one comes back that was preempted."""
    requests = _requests(random)
    return requests, _play_back(requests)


def _names(requests: Requests) -> str:
    return listed([request_name(i) for i in range(len(requests))])


def _add(lab: Lab, requests: Requests) -> None:
    for prompt, length in requests:
        lab.add(prompt, max_tokens=length, ignore_eos=True)


def needs_more(before: Snapshot) -> bool:
    """Return True if the next step has fewer free blocks than running requests that begin one."""
    running = [one for one in before.requests.values() if one.status == "running"]
    starting = sum(len(one.token_ids) > BLOCK_SIZE * len(one.block_tables[0]) for one in running)
    return starting > len(before.free_queue)


def play_until(requests: Requests, is_there: Callable[[Snapshot], bool]) -> Callable[[Lab], None]:
    def play(lab: Lab) -> None:
        _add(lab, requests)
        for _ in range(_MAX_STEPS):
            lab.step()
            if is_there(lab.snapshot()):
                return

    return play


def _full(requests: Requests) -> Instance:
    wanted = ", ".join(f"{request_name(i)} {length}" for i, (_, length) in enumerate(requests))
    task = (
        f"{_names(requests)} share {NUM_BLOCKS} blocks of {BLOCK_SIZE} tokens; they were admitted in this order, and "
        f"their answers get {wanted} tokens. In the next step they begin more blocks than are free. Which request is "
        "preempted?"
    )
    return Instance(task, play_until(requests, needs_more))


def _preempted(step: RevealedStep) -> int:
    return step.first(RequestPreempted).request_id


def _oldest(step: RevealedStep) -> int:
    return min(i for i, one in step.before.requests.items() if one.status == "running")


@course_exercise("continuous-batching/who-goes")
def who_goes(make: Make) -> Exercise:
    """Predict: the request that gives way."""
    first = _full([*PROMPTS.items()])
    return make(
        task=first.task,
        play=first.play,
        truth=_preempted,
        another=lambda random: _full(_requests(random)),
        about="request",
        views=("tables", "pool"),
        mistakes=[_oldest, lambda step: 1],
        num_blocks=NUM_BLOCKS,
        block_size=BLOCK_SIZE,
    )


def _comes_back_next(requests: Requests) -> int:
    """Return the number of steps before the one in which a preempted request is admitted again; 0 if none is."""
    with Lab("simulated", num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE) as lab:
        _add(lab, requests)
        for _ in range(_MAX_STEPS):
            were_out = {i for i, one in lab.snapshot().requests.items() if one.status == "preempted"}
            lab.step()
            if any(lab.snapshot().requests[i].status == "running" for i in were_out):
                return lab.snapshot().step - 1
    return 0


def _play_back(requests: Requests) -> Callable[[Lab], None]:
    num_steps = _comes_back_next(requests)

    def play(lab: Lab) -> None:
        _add(lab, requests)
        if num_steps:
            lab.step(num_steps)

    return play


def _back(requests: Requests) -> Instance:
    sizes = ", ".join(f"{request_name(i)} {len(prompt.split())}" for i, (prompt, _) in enumerate(requests))
    task = (
        f"{_names(requests)} had prompts of {sizes} words. One of them was preempted when the pool was full, and "
        "comes back in the next step. How many of its tokens does it find in the prefix map?"
    )
    return Instance(task, _play_back(requests))


def _found(step: RevealedStep) -> int:
    return step.first(PrefixHit).num_tokens


def _all_but_one(step: RevealedStep) -> int:
    return len(step.before.requests[step.first(PrefixHit).request_id].token_ids) - 1


@course_exercise("continuous-batching/comes-back")
def comes_back(make: Make) -> Exercise:
    """Predict: what a preempted request finds when it comes back."""
    first = _back([*PROMPTS.items()])
    return make(
        task=first.task,
        play=first.play,
        truth=_found,
        another=lambda random: _back(_requests(random)),
        about="number",
        views=("map", "pool"),
        mistakes=[_all_but_one, lambda step: 0],
        num_blocks=NUM_BLOCKS,
        block_size=BLOCK_SIZE,
    )
