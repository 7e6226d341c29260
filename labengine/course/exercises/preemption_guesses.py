"""Questions in the text of the notebook "Continuous batching" on a full pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from labengine.course.phrases import listed, phrases
from labengine.course.predict_exercise import Instance
from labengine.course.trial import Workload, plays
from labengine.course.words import course_exercise
from labengine.events import PrefixHit, RequestPreempted
from labengine.lab import Lab
from labengine.record.snapshot import Snapshot
from labengine.record.wording import request_name

PROMPTS = {
    "Tell me a long story about the sea and the moon tonight": 14,
    "Write down all the rules of chess for a child of six": 10,
    "Why does the wind blow colder in the hills than here": 12,
}
"""The notebook's three requests, and the lengths of their answers in tokens."""
NUM_BLOCKS, BLOCK_SIZE = 13, 4
_MAX_STEPS = 60
Requests = Sequence[tuple[str, int]]


def _requests(random: Random) -> list[tuple[str, int]]:
    """Return two, three or four requests, with prompts that fill most of the pool."""
    num = random.choice((2, 3, 3, 4))
    sizes = [random.randrange(30 // num, 41 // num) for _ in range(num)]
    return [(prompt, random.randrange(6, 15)) for prompt in phrases(random, *sizes)]


def up_to_the_return(random: Random) -> Workload:
    """Return a workload that stops one step before a preempted request comes back."""
    return _play_back(_requests(random))


def _names(requests: Requests) -> str:
    return listed([request_name(i) for i in range(len(requests))])


def needs_more(before: Snapshot) -> bool:
    """Return True if fewer blocks are free than running requests need in the next step."""
    running = [one for one in before.requests.values() if one.status == "running"]
    starting = sum(len(one.token_ids) > BLOCK_SIZE * len(one.block_tables[0]) for one in running)
    return starting > len(before.free_queue)


def play_until(requests: Requests, is_there: Callable[[Snapshot], bool]) -> Workload:
    def play(lab: Lab) -> None:
        plays(*requests)(lab)
        for _ in range(_MAX_STEPS):
            lab.step()
            if is_there(lab.snapshot()):
                return

    return play


def _full(requests: Requests) -> Instance:
    wanted = ", ".join(f"{request_name(i)} {length}" for i, (_, length) in enumerate(requests))
    task = (
        f"{_names(requests)} share {NUM_BLOCKS} blocks of {BLOCK_SIZE} tokens; they were admitted in this order, and "
        f"their answers have {wanted} tokens. In the next step they need more blocks than are free. Which request is "
        "preempted?"
    )
    return Instance(task, play_until(requests, needs_more))


course_exercise(
    "continuous-batching/who-goes",
    play=_full([*PROMPTS.items()]),
    truth=lambda step: step.first(RequestPreempted).request_id,
    another=lambda random: _full(_requests(random)),
    about="request",
    views=("tables", "pool"),
    mistakes=[
        lambda step: min(i for i, one in step.before.requests.items() if one.status == "running"),
        lambda step: 1,
    ],
    num_blocks=NUM_BLOCKS,
)


def _comes_back_next(requests: Requests) -> int:
    """Return the number of steps before a preempted request is admitted again; 0 if none is."""
    with Lab("simulated", num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE) as lab:
        plays(*requests)(lab)
        for _ in range(_MAX_STEPS):
            were_out = {i for i, one in lab.snapshot().requests.items() if one.status == "preempted"}
            lab.step()
            if any(lab.snapshot().requests[i].status == "running" for i in were_out):
                return lab.snapshot().step - 1
    return 0


def _play_back(requests: Requests) -> Workload:
    num_steps = _comes_back_next(requests)
    return plays(*requests, num_steps) if num_steps else plays(*requests)


def _back(requests: Requests) -> Instance:
    sizes = ", ".join(f"{request_name(i)} {len(prompt.split())}" for i, (prompt, _) in enumerate(requests))
    task = (
        f"{_names(requests)} had prompts of {sizes} words. One of them was preempted when the pool was full, and "
        "comes back in the next step. How many of its tokens does it find in the prefix map?"
    )
    return Instance(task, _play_back(requests))


course_exercise(
    "continuous-batching/comes-back",
    play=_back([*PROMPTS.items()]),
    truth=lambda step: step.first(PrefixHit).num_tokens,
    another=lambda random: _back(_requests(random)),
    about="number",
    views=("map", "pool"),
    mistakes=[lambda step: len(step.before.requests[step.first(PrefixHit).request_id].token_ids) - 1, lambda step: 0],
    num_blocks=NUM_BLOCKS,
)
