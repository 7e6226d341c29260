"""Exercises of the notebook "Continuous batching" on preemption: who gives way, and what it costs."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from labengine.core.request import Request, RequestStatus
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.course.base import Exercise
from labengine.course.exercise import exercise
from labengine.course.exercises.preemption_guesses import needs_more, play_until, up_to_the_return
from labengine.course.first_wrong_exercise import nth_event
from labengine.course.phrases import phrases
from labengine.course.predict_exercise import Instance, RevealedStep
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


_FULL = "In the next step those that run need more blocks than are free. Which request is preempted?"


def _is_about_to_preempt(lab: Lab) -> bool:
    requests = lab.snapshot().requests.values()
    is_full = any(len(one.token_ids) > 4 * len(one.block_tables[0]) for one in requests if one.status == "running")
    return is_full and not lab.snapshot().free_queue


def _preempted(step: RevealedStep) -> int:
    return step.first(RequestPreempted).request_id


def preempted() -> Exercise:
    """Predict: the request that is preempted."""
    return exercise(
        "continuous-batching/preempted",
        "A, B and C run, and D waits. Every block is used, and in the next step those that run need more. Which "
        "request is preempted?",
        play=_full_house,
        truth=_preempted,
        another=_another_full_house,
        views=("tables", "pool"),
        reason="The youngest of those that run gives way: so the oldest one always gets on.",
        about="request",
        num_blocks=6,
        block_size=4,
        hints=[
            "One request gives all its blocks back, so that the others can go on. Who has waited least?",
            "vLLM preempts the youngest: the last one that was admitted.",
        ],
        mistakes=[
            (
                lambda step: 0,
                "A is the oldest. If the oldest were preempted, no request could be sure to come to its end.",
            ),
            (
                lambda step: 1,
                "When it is B's turn, no block is free. But B is not the youngest of those that run.",
            ),
            (lambda step: 3, "D came last, but it waits, and has no block that it could give back."),
        ],
    )


def _up_to_the_return(lab: Lab) -> None:
    for prompt, max_tokens in ((CHESS, 16), (WIND, 9), (STORY, 12)):
        lab.add(prompt, max_tokens=max_tokens)
    lab.run(until=lambda lab: lab.snapshot().requests[1].status == "finished")


def _another_return(random: Random) -> Instance:
    _, play = up_to_the_return(random)
    task = (
        "Other texts: one request was preempted some steps ago, and comes back in the next step. How many tokens does "
        "the step compute for it? (Blocks have 4 tokens.)"
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


_MORE_ARE_LEFT = "More of C's blocks are left. Go through the prefix map: which entries hold C's tokens?"


def again() -> Exercise:
    """Predict: the tokens that a preempted request computes again."""
    return exercise(
        "continuous-batching/again",
        "Other texts and another order than above: C was preempted some steps ago. B is done now, and in the next step "
        "C comes back. How many tokens does the step compute for C? (Blocks have 4 tokens.)",
        play=_up_to_the_return,
        truth=_num_again,
        another=_another_return,
        about="number",
        num_blocks=13,
        block_size=4,
        hints=[
            "Which of C's blocks are still in the prefix map? A click on an entry of the map shows its block's tokens.",
            "C finds full blocks from its first one on. All tokens after them are computed again.",
        ],
        mistakes=[
            (_everything, "Not all is lost: some blocks that C gave back have not been reused yet, and C finds them."),
            (
                _all_but_the_newest,
                "One more: the newest token was sampled in the last step before the preemption, and has no KV yet.",
            ),
            (_all_that_was_full, "A block that C gave back has been reused since: it is not in the map any more."),
            (_found_fewer(1), _MORE_ARE_LEFT),
            (_found_fewer(2), _MORE_ARE_LEFT),
        ],
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


_ONLY_CHOOSES = (
    "`choose_victim` only chooses: the engine takes the request out of `self.running`. Do not change the list."
)


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


def victim() -> Exercise:
    """Fill in: which request is preempted."""
    return exercise(
        "continuous-batching/victim",
        "Blocks have run out. The engine preempts the youngest request, even if it is the one with most to lose. Write "
        "a scheduler that preempts the running request for which the fewest tokens are computed; of several such "
        "requests, the youngest. `self.running` lists the running requests, oldest first, and each has "
        "`num_computed_tokens`. The method only chooses: it does not change the list. (`request` is the one that lacks "
        "a block; you do not need it.)",
        solution=LeastComputed,
        workloads=[
            _crowd((4, 9), (9, 12), (13, 12)),
            _crowd((2, 15), (2, 15), (2, 15)),
            _crowd((11, 6), (3, 14), (12, 8), (2, 9)),
            _crowd((5, 13), (3, 8), (7, 8), (11, 12)),
        ],
        num_lines=1,
        hints=[
            "`min(..., key=...)` finds the smallest by a property.",
            "Of several smallest, `min` returns the first. `reversed(self.running)` begins with the youngest.",
        ],
        mistakes=[
            (TokenBudgetScheduler, "This is the youngest request, as before: it may have the most to lose."),
            (_Oldest, "The oldest request has waited longest, and usually has the most to lose."),
            (_MostComputed, "The request with most computed tokens loses most. Asked for is the one with the fewest."),
            (_OldestOfEquals, "Where several have the fewest, the youngest is meant: yours takes the oldest of them."),
            (_FewestKnown, "A prompt that is cut has many tokens, and few of them may be computed: count those."),
            (_FewestBlocks, "Two requests with as many blocks may have computed more tokens and fewer: count tokens."),
            (_TakesTheYoungestOut, _ONLY_CHOOSES),
            (_TakesTheOldestOut, _ONLY_CHOOSES),
            (_Sorts, _ONLY_CHOOSES),
            (_TakesItOut, _ONLY_CHOOSES),
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


def no_way_back() -> Exercise:
    """Find the first wrong event: a preemption that frees nothing."""
    return exercise(
        "continuous-batching/no-way-back",
        "Another scheduler with one wrong method: after a while nothing runs any more, though three requests wait. "
        "Which event is the first wrong one?",
        broken=ForgetsToFree,
        because=(
            "A preemption gives the blocks back. This one empties the table, and the ref counts stay: the "
            "blocks are in no table and not in the queue, so that nobody can ever have them again."
        ),
        play=_until_blocks_run_out,
        hints=[
            "At the end, compare the block tables with the free queue: who holds the blocks?",
            "Before a request is preempted, a BlockFreed should be there for each of its blocks.",
        ],
        mistakes=[
            (
                _earlier(BlockAllocated),
                "A running request takes the last free block for its next token, as it may. What does the next one do?",
            ),
            (nth_event(RequestPreempted, 1), "This preemption frees nothing, too, but it is not the first one."),
        ],
        num_blocks=12,
        block_size=4,
    )
