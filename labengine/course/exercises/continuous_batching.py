"""Exercises of the notebook "Continuous batching"."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from labengine.core.request import Request, RequestStatus
from labengine.core.step_plan import ScheduledRequest
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.course.base import Exercise
from labengine.course.exercise import exercise
from labengine.course.first_wrong_exercise import nth_event
from labengine.course.predict_exercise import RevealedStep
from labengine.events import BlockAllocated, RequestPreempted, RequestScheduled, TokenSampled
from labengine.lab import Lab

STORY = "Tell me a long story about the sea and the moon tonight"
CHESS = "Write down all the rules of chess for a child of six"
WIND = "Why does the wind blow colder in the hills than here"
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


def budget() -> Exercise:
    """Fill in: a step's budget, split over requests."""
    return exercise(
        "continuous-batching/budget",
        "A step may compute `budget` tokens. `missing` says for each request, in the order in which they are served, "
        "how many tokens it would compute if it could. Return a list with what each of them gets.",
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
        hints=[
            "Go through the list once, and keep track of what is left of the budget.",
            "A request gets what it misses, or what is left: the smaller one.",
        ],
        mistakes=[
            (
                _all_or_nothing,
                "A prompt that does not fit is not left out: it is cut, and gets what is left of the budget.",
            ),
            (_forgets_what_is_spent, "What one request gets is spent: there is less left for the next one."),
        ],
    )


def _two_run_and_two_arrive(lab: Lab) -> None:
    for prompt in ("Why is that", "Who are they"):
        lab.add(prompt, max_tokens=9)
    lab.step(2)
    lab.add(LETTER, max_tokens=3)
    lab.add("Where is the station please", max_tokens=3)


def _prompt_tokens(step: RevealedStep) -> int:
    return sum(event.num_tokens for event in step.of_kind(RequestScheduled) if event.is_prefill)


def _without_the_running(step: RevealedStep) -> int:
    return sum(event.num_tokens for event in step.of_kind(RequestScheduled))


def _one_prompt_alone(step: RevealedStep) -> int:
    return next(event.num_tokens for event in step.of_kind(RequestScheduled) if event.is_prefill)


def next_chunk() -> Exercise:
    """Predict: the prompt tokens of each of three steps."""
    return exercise(
        "continuous-batching/next-chunk",
        "A step may compute 10 tokens. A and B are being answered. C waits with a prompt of 18 tokens, and behind it "
        "D with 5. How many tokens of prompts does the next step compute?",
        play=_two_run_and_two_arrive,
        truth=_prompt_tokens,
        about="number",
        rounds=3,
        num_blocks=24,
        block_size=4,
        max_num_batched_tokens=10,
        hints=[
            "The requests that run are served first: one token for A, one for B.",
            "In the third step little is left of C's prompt. Who gets the rest of the budget?",
        ],
        mistakes=[
            (_without_the_running, "A and B are in the step, too, and are served first."),
            (_one_prompt_alone, "That is C alone. The budget is not spent yet: D's prompt begins in the same step."),
        ],
    )


def _full_house(lab: Lab) -> None:
    for text in (
        "Cats sleep all day and all night",
        "Dogs bark when a door is open",
        "Fish are quiet and swim at ease",
    ):
        lab.add(text, max_tokens=12, ignore_eos=True)
    lab.run(until=lambda lab: len(lab.snapshot().free_queue) == 0)
    while not _is_about_to_preempt(lab):
        lab.step()


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
        "Three requests run, every block is used, and in the next step they need more. Which request is preempted?",
        play=_full_house,
        truth=_preempted,
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
            )
        ],
    )


def _up_to_the_return(lab: Lab) -> None:
    for prompt, max_tokens in ((CHESS, 16), (WIND, 9), (STORY, 12)):
        lab.add(prompt, max_tokens=max_tokens)
    lab.run(until=lambda lab: lab.snapshot().requests[1].status == "finished")


def _num_again(step: RevealedStep) -> int:
    return next(event.num_tokens for event in step.of_kind(RequestScheduled) if event.request_id == 2)


def _everything(step: RevealedStep) -> int:
    return len(step.before.requests[2].token_ids)


def _all_but_the_newest(step: RevealedStep) -> int:
    return _num_again(step) - 1


def again() -> Exercise:
    """Predict: the tokens that a preempted request computes again."""
    return exercise(
        "continuous-batching/again",
        "Other texts and another order than above: C was preempted some steps ago. B is done now, and in the next step "
        "C comes back. How many tokens does the step compute for C? (Blocks have 4 tokens.)",
        play=_up_to_the_return,
        truth=_num_again,
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
        "`num_computed_tokens`. (`request` is the one that lacks a block; you do not need it.)",
        solution=LeastComputed,
        workloads=[
            _crowd((4, 9), (9, 12), (13, 12)),
            _crowd((7, 12), (7, 12), (7, 12)),
            _crowd((11, 6), (3, 14), (12, 8), (2, 9)),
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
        ],
        num_blocks=9,
        block_size=4,
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


def early_token() -> Exercise:
    """Find the first wrong event: a token sampled in the middle of a prompt."""
    return exercise(
        "continuous-batching/early-token",
        "One method of this scheduler is wrong. No rule of the checks is broken, the cache is in order, and B's answer "
        "to a long prompt makes no sense. Which event is the first wrong one?",
        broken=SamplesEveryChunk,
        play=_long_letter,
        first=_first_sampled_early,
        hints=[
            "B's prompt has 18 tokens, and a step computes 10. Look at what happens at the end of the first chunk.",
            "A token is chosen from what the last token of the prompt gives. When is that one computed?",
        ],
        mistakes=[
            (
                nth_event(TokenSampled),
                "A's whole prompt was computed in that step, so its first token is due.",
            ),
            (
                nth_event(RequestScheduled, 2),
                "The budget is spent: B gets a part of its prompt, as it should. What happens when it is computed?",
            ),
        ],
        num_blocks=24,
        block_size=4,
        max_num_batched_tokens=10,
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


EXERCISES: Mapping[str, Callable[[], Exercise]] = {
    "continuous-batching/budget": budget,
    "continuous-batching/next-chunk": next_chunk,
    "continuous-batching/preempted": preempted,
    "continuous-batching/again": again,
    "continuous-batching/victim": victim,
    "continuous-batching/early-token": early_token,
    "continuous-batching/no-way-back": no_way_back,
}
