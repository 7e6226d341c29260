"""Exercises of the notebook "Continuous batching" on preemption: who gives way, and what it costs."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from labengine.core.request import Request, RequestStatus
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.course.base import Exercise
from labengine.course.exercises.preemption_guesses import needs_more, play_until, up_to_the_return
from labengine.course.first_wrong_exercise import nth_event
from labengine.course.phrases import phrases
from labengine.course.predict_exercise import Instance, RevealedStep
from labengine.course.words import Make, course_exercise
from labengine.events import BlockAllocated, RequestPreempted, RequestScheduled
from labengine.lab import Lab

STORY = "Tell me a long story about the sea and the moon tonight"
CHESS = "Write down all the rules of chess for a child of six"
WIND = "Why does the wind blow colder in the hills than here"


def _full_house(lab: Lab) -> None:
    for text in (
        "Cats sleep all day and all night",
        "Dogs bark when a door is open",
        "Fish are quiet and swim at ease",
    ):
        lab.add(text, max_tokens=12, ignore_eos=True)
    lab.run(until=lambda lab: len(lab.snapshot().free_queue) == 0)
    lab.add("Who waits for all of them", max_tokens=4, ignore_eos=True)
    while not _is_about_to_preempt(lab):
        lab.step()


def _another_full_house(random: Random) -> Instance:
    sizes = random.choices(range(4, 9), k=random.choice((2, 3, 4)))
    requests = [(text, random.randrange(4, 13)) for text in phrases(random, *sizes)]
    return Instance(_FULL, play_until(requests, needs_more), keeps_mistakes=False)


_FULL = "In the next step the running requests need more blocks than are free. Which request is preempted?"


def _is_about_to_preempt(lab: Lab) -> bool:
    requests = lab.snapshot().requests.values()
    is_full = any(len(one.token_ids) > 4 * len(one.block_tables[0]) for one in requests if one.status == "running")
    return is_full and not lab.snapshot().free_queue


def _preempted(step: RevealedStep) -> int:
    return step.first(RequestPreempted).request_id


@course_exercise("continuous-batching/preempted")
def preempted(make: Make) -> Exercise:
    """Predict: the request that is preempted."""
    return make(
        play=_full_house,
        truth=_preempted,
        another=_another_full_house,
        views=("tables", "pool"),
        about="request",
        num_blocks=6,
        block_size=4,
        mistakes=[lambda step: 0, lambda step: 1, lambda step: 3],
    )


def _up_to_the_return(lab: Lab) -> None:
    for prompt, max_tokens in ((CHESS, 16), (WIND, 9), (STORY, 12)):
        lab.add(prompt, max_tokens=max_tokens)
    lab.run(until=lambda lab: lab.snapshot().requests[1].status == "finished")


def _another_return(random: Random) -> Instance:
    _, play = up_to_the_return(random)
    task = (
        "The texts are new: one request was preempted some steps ago, and comes back in the next step. How many tokens "
        "does the step compute for it? Blocks have 4 tokens."
    )
    return Instance(task, play)


def _returning(step: RevealedStep) -> int:
    scheduled = {event.request_id for event in step.of_kind(RequestScheduled)}
    return next(i for i, one in step.before.requests.items() if one.status == "preempted" and i in scheduled)


def _num_again(step: RevealedStep) -> int:
    returning = _returning(step)
    return next(event.num_tokens for event in step.of_kind(RequestScheduled) if event.request_id == returning)


def _everything(step: RevealedStep) -> int:
    return len(step.before.requests[_returning(step)].token_ids)


def _all_but_the_newest(step: RevealedStep) -> int:
    return _num_again(step) - 1


def _all_that_was_full(step: RevealedStep) -> int:
    return (_everything(step) - 1) % 4 + 1


def _found_fewer(num_blocks: int) -> Callable[[RevealedStep], int]:
    """Return the mistake of somebody who finds that many blocks fewer than there are."""
    return lambda step: _num_again(step) + 4 * num_blocks


@course_exercise("continuous-batching/again")
def again(make: Make) -> Exercise:
    """Predict: the tokens that a preempted request computes again."""
    return make(
        play=_up_to_the_return,
        truth=_num_again,
        another=_another_return,
        about="number",
        num_blocks=13,
        block_size=4,
        mistakes=[_everything, _all_but_the_newest, _all_that_was_full, [_found_fewer(1), _found_fewer(2)]],
    )


class LeastComputed(TokenBudgetScheduler):
    """A scheduler that preempts the request for which the fewest tokens have been computed."""

    def choose_victim(self, request: Request) -> Request:
        """Return the running request with the fewest computed tokens; of several, the youngest."""
        return min(reversed(self.running), key=lambda one: one.num_computed_tokens)


class _Oldest(TokenBudgetScheduler):
    def choose_victim(self, request: Request) -> Request:
        return self.running[0]


class _MostComputed(TokenBudgetScheduler):
    def choose_victim(self, request: Request) -> Request:
        return max(self.running, key=lambda one: one.num_computed_tokens)


class _FewestKnown(TokenBudgetScheduler):
    def choose_victim(self, request: Request) -> Request:
        return min(reversed(self.running), key=lambda one: len(one.token_ids))


class _FewestBlocks(TokenBudgetScheduler):
    def choose_victim(self, request: Request) -> Request:
        return min(reversed(self.running), key=lambda one: len(one.block_tables[0]))


class _TakesTheYoungestOut(TokenBudgetScheduler):
    def choose_victim(self, request: Request) -> Request:
        return self.running.pop()


class _TakesTheOldestOut(TokenBudgetScheduler):
    def choose_victim(self, request: Request) -> Request:
        return self.running.pop(0)


class _Sorts(TokenBudgetScheduler):
    def choose_victim(self, request: Request) -> Request:
        self.running.sort(key=lambda one: one.num_computed_tokens)
        return self.running[0]


class _TakesItOut(LeastComputed):
    def choose_victim(self, request: Request) -> Request:
        victim = super().choose_victim(request)
        self.running.remove(victim)
        return victim


class _OldestOfEquals(TokenBudgetScheduler):
    def choose_victim(self, request: Request) -> Request:
        return min(self.running, key=lambda one: one.num_computed_tokens)


def _crowd(*lengths: tuple[int, int]) -> Callable[[Lab], None]:
    """Return a workload: requests of (prompt tokens, answer tokens), all at once."""

    def play(lab: Lab) -> None:
        for number, (num_tokens, max_tokens) in enumerate(lengths):
            lab.add(token_ids=range(100 * number, 100 * number + num_tokens), max_tokens=max_tokens, ignore_eos=True)
        lab.run()

    return play


@course_exercise("continuous-batching/victim")
def victim(make: Make) -> Exercise:
    """Fill in: which request is preempted."""
    return make(
        solution=LeastComputed,
        workloads=[
            _crowd((4, 9), (9, 12), (13, 12)),
            _crowd((2, 15), (2, 15), (2, 15)),
            _crowd((11, 6), (3, 14), (12, 8), (2, 9)),
            _crowd((5, 13), (3, 8), (7, 8), (11, 12)),
        ],
        num_lines=1,
        mistakes=[
            TokenBudgetScheduler,
            _Oldest,
            _MostComputed,
            _OldestOfEquals,
            _FewestKnown,
            _FewestBlocks,
            [_TakesTheYoungestOut, _TakesTheOldestOut, _Sorts, _TakesItOut],
        ],
        num_blocks=9,
        block_size=4,
        max_num_batched_tokens=6,
    )


class ForgetsToFree(TokenBudgetScheduler):
    """A scheduler that empties the table of a preempted request, and does not give the blocks back."""

    def take_blocks(self, victim: Request) -> None:
        """Clear the table, and queue the request as preempted."""
        victim.block_tables[0].clear()
        self._set(victim, "num_computed_tokens", 0)
        self._set(victim, "status", RequestStatus.PREEMPTED)
        self._hooks.emit(RequestPreempted(victim.request_id))


def _until_blocks_run_out(lab: Lab) -> None:
    for prompt in (STORY, CHESS, WIND):
        lab.add(prompt, max_tokens=14)
    lab.step(12)


def _earlier(kind: type[Any]) -> Callable[[Lab], int]:
    """Return a function of a lab: the last event of a kind before the first preemption."""

    def number(lab: Lab) -> int:
        assert lab.timeline is not None
        preempted = nth_event(RequestPreempted)(lab)
        events = enumerate(lab.timeline.events())
        return [n for n, event in events if n < preempted and isinstance(event, kind)][-1]

    return number


@course_exercise("continuous-batching/no-way-back")
def no_way_back(make: Make) -> Exercise:
    """Find the first wrong event: a preemption that frees nothing."""
    return make(
        broken=ForgetsToFree,
        play=_until_blocks_run_out,
        mistakes=[_earlier(BlockAllocated), nth_event(RequestPreempted, 1)],
        num_blocks=12,
        block_size=4,
    )
