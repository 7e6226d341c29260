"""Exercises of the notebook "Continuous batching" on preemption: the victim, and the cost."""

from __future__ import annotations

from random import Random

from labengine.core.request import Request, RequestStatus
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.course.exercises.preemption_guesses import PROMPTS, needs_more, play_until, up_to_the_return
from labengine.course.first_wrong_exercise import nth_event
from labengine.course.phrases import phrases
from labengine.course.predict_exercise import Instance, RevealedStep
from labengine.course.trial import RUN, Workload, plays
from labengine.course.words import course_exercise
from labengine.events import BlockAllocated, RequestPreempted, RequestScheduled
from labengine.lab import Lab

STORY, CHESS, WIND = PROMPTS


def _full_house(lab: Lab) -> None:
    plays(
        ("Cats sleep all day and all night", 12),
        ("Dogs bark when a door is open", 12),
        ("Fish are quiet and swim at ease", 12),
    )(lab)
    lab.run(until=lambda lab: len(lab.snapshot().free_queue) == 0)
    lab.add("Who waits for all of them", max_tokens=4, ignore_eos=True)
    while not needs_more(lab.snapshot()):
        lab.step()


def _another_full_house(random: Random) -> Instance:
    sizes = random.choices(range(4, 9), k=random.choice((2, 3, 4)))
    requests = [(text, random.randrange(4, 13)) for text in phrases(random, *sizes)]
    return Instance(_FULL, play_until(requests, needs_more), keeps_mistakes=False)


_FULL = "In the next step the running requests need more blocks than are free. Which request is preempted?"


course_exercise(
    "continuous-batching/preempted",
    play=_full_house,
    truth=lambda step: step.first(RequestPreempted).request_id,
    another=_another_full_house,
    views=("tables", "pool"),
    about="request",
    num_blocks=6,
    mistakes=[lambda step: 0, lambda step: 1, lambda step: 3],
)


def _up_to_the_return(lab: Lab) -> None:
    plays((CHESS, 16), (WIND, 9), (STORY, 12))(lab)
    lab.run(until=lambda lab: lab.snapshot().requests[1].status == "finished")


def _another_return(random: Random) -> Instance:
    task = (
        "The texts are new: one request was preempted some steps ago, and comes back in the next step. How many tokens "
        "does the step compute for it? Blocks have 4 tokens."
    )
    return Instance(task, up_to_the_return(random))


def _returning(step: RevealedStep) -> int:
    scheduled = {event.request_id for event in step.of_kind(RequestScheduled)}
    return next(i for i, one in step.before.requests.items() if one.status == "preempted" and i in scheduled)


def _num_again(step: RevealedStep) -> int:
    returning = _returning(step)
    return next(event.num_tokens for event in step.of_kind(RequestScheduled) if event.request_id == returning)


def _everything(step: RevealedStep) -> int:
    return len(step.before.requests[_returning(step)].token_ids)


course_exercise(
    "continuous-batching/again",
    play=_up_to_the_return,
    truth=_num_again,
    another=_another_return,
    about="number",
    num_blocks=13,
    mistakes=[
        _everything,
        lambda step: _num_again(step) - 1,
        lambda step: (_everything(step) - 1) % 4 + 1,
        [lambda step: _num_again(step) + 4, lambda step: _num_again(step) + 8],
    ],
)


class LeastComputed(TokenBudgetScheduler):
    """A scheduler that preempts the request with the fewest computed tokens."""

    def choose_victim(self, request: Request) -> Request:
        """Return the running request with the fewest computed tokens; the youngest if there are several."""
        return min(reversed(self.running), key=lambda one: one.num_computed_tokens)


class _Sorts(TokenBudgetScheduler):
    def choose_victim(self, request: Request) -> Request:
        self.running.sort(key=lambda one: one.num_computed_tokens)
        return self.running[0]


class _TakesItOut(LeastComputed):
    def choose_victim(self, request: Request) -> Request:
        victim = super().choose_victim(request)
        self.running.remove(victim)
        return victim


def _crowd(*lengths: tuple[int, int]) -> Workload:
    """Return a workload: requests of (prompt tokens, answer tokens), all at once."""
    numbered = enumerate(lengths)
    return plays(*((range(100 * i, 100 * i + size), max_tokens) for i, (size, max_tokens) in numbered), RUN)


course_exercise(
    "continuous-batching/victim",
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
        lambda self, request: self.running[0],
        lambda self, request: max(self.running, key=lambda one: one.num_computed_tokens),
        lambda self, request: min(self.running, key=lambda one: one.num_computed_tokens),
        lambda self, request: min(reversed(self.running), key=lambda one: len(one.token_ids)),
        lambda self, request: min(reversed(self.running), key=lambda one: len(one.block_tables[0])),
        [lambda self, request: self.running.pop(), lambda self, request: self.running.pop(0), _Sorts, _TakesItOut],
    ],
    num_blocks=9,
    max_num_batched_tokens=6,
)


class ForgetsToFree(TokenBudgetScheduler):
    """A scheduler that empties the table of a preempted request without freeing the blocks."""

    def take_blocks(self, victim: Request) -> None:
        """Clear the table, and queue the request as preempted."""
        victim.block_tables[0].clear()
        self._set(victim, "num_computed_tokens", 0)
        self._set(victim, "status", RequestStatus.PREEMPTED)
        self._hooks.emit(RequestPreempted(victim.request_id))


course_exercise(
    "continuous-batching/no-way-back",
    broken=ForgetsToFree,
    play=plays((STORY, 14), (CHESS, 14), (WIND, 14), 12),
    mistakes=[nth_event(BlockAllocated, 11), nth_event(RequestPreempted, 1)],
    num_blocks=12,
)
