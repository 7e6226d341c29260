"""Exercises of the notebook "The hunt"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from labengine.core.nano_vllm.scheduler import PrefillFirstScheduler
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.course.base import Exercise
from labengine.course.branch import FAST_PREFILL, TEXTS, BranchManager, BranchScheduler, send_day, waits
from labengine.course.exercise import exercise
from labengine.course.first_wrong_exercise import nth_event
from labengine.course.predict_exercise import RevealedStep
from labengine.events import BlockAllocated, BlockCached, BlockTouched, PrefixHit, SlotsWritten
from labengine.lab import Lab

POOL: dict[str, Any] = {"num_blocks": 16, "block_size": 4, "max_num_batched_tokens": 8}
"""Steps compute 8 tokens at most: a prompt of 20 takes three of them."""


def _one_and_a_follower(lab: Lab) -> None:
    lab.add(f"{TEXTS[0]}, or twice", max_tokens=2, ignore_eos=True)
    lab.step()
    lab.add(" ".join(TEXTS[0].split()[:17]), max_tokens=2, ignore_eos=True)


def _one_follower_and_steps(lab: Lab) -> None:
    _one_and_a_follower(lab)
    lab.step(3)


def _num_found(step: RevealedStep) -> int:
    return step.first(PrefixHit).num_tokens


def _num_computed(step: RevealedStep) -> int:
    return step.before.requests[0].num_computed_tokens


def num_found() -> Exercise:
    """Predict: the tokens that a follower finds on the branch."""
    return exercise(
        "hunt/num-found",
        "The branch. A has 22 tokens, and its first step has computed 8 of them. B has arrived: its 17 tokens are A's "
        "first 17. How many tokens does B find when the next step looks its prompt up? (Blocks have 4 tokens, and the "
        "last token of a prompt is always computed.)",
        play=_one_and_a_follower,
        truth=_num_found,
        about="number",
        hints=[
            "Which of A's blocks does the map know after its first step? `.lab.snapshot().prefix_map` is the map.",
            "The branch registers all full blocks of A at once. B may use those among its first 16 tokens.",
        ],
        mistakes=[
            (_num_computed, "So many tokens have keys and values. The branch promises more than it has computed."),
            (
                lambda step: _num_found(step) + 1,
                "The last token of a prompt is always computed: its logits give the next one.",
            ),
        ],
        parts=FAST_PREFILL,
        **POOL,
    )


def _early_promise(lab: Lab) -> int:
    """Return the number of the first BlockCached for a block whose slots are not all written."""
    assert lab.timeline is not None
    written: dict[int, int] = {}
    for number, event in enumerate(lab.timeline.events(), lab.timeline.num_dropped):
        if isinstance(event, SlotsWritten):
            written[event.request_id] = event.start + sum(length for _, _, length in event.runs)
        elif isinstance(event, BlockCached) and (event.index + 1) * 4 > written.get(event.request_id, 0):
            return number
    raise AssertionError("every block was written before it was registered")


def first_wrong() -> Exercise:
    """Find the first wrong event: a block that is registered before it is written."""
    return exercise(
        "hunt/first-wrong",
        "The same two requests, three steps further. The checks report what B reads. But B did nothing wrong: it "
        "believed the map. Which event is the first that says something untrue?",
        broken=FAST_PREFILL,
        because=(
            "Step 1 has written positions 0 to 7, the first two blocks. This is the third: the map now promises "
            "tokens that nobody has computed."
        ),
        play=_one_follower_and_steps,
        first=_early_promise,
        hints=[
            "Look at step 1, before B was there. Which positions are written, and which blocks are registered?",
            "Step 1 writes positions 0 to 7: the first two blocks. Each later block that joins the map in step 1 is a "
            "promise that nobody has kept yet. Which is the first?",
        ],
        mistakes=[
            (
                nth_event(BlockTouched, 2),
                "Here the checks see it: B shares a block that holds nothing. Why did the map lead there?",
            ),
            (
                nth_event(BlockCached),
                "This block is written: its four slots are among the positions 0 to 7. Go on to the next ones.",
            ),
            (
                nth_event(BlockAllocated, 2),
                "A block may be allocated before it is written: its request will get there.",
            ),
        ],
        **POOL,
    )


def num_registrable_tokens(self: Any, request: Request, num_tokens: int, moment: str) -> int:
    """Return the computed tokens, once they are computed: an entry of the map is a promise about them."""
    return num_tokens if moment == "computed" else 0


def _all_at_once(self: Any, request: Request, num_tokens: int, moment: str) -> int:
    return request.num_tokens if moment == "computed" else 0


def _at_allocation(self: Any, request: Request, num_tokens: int, moment: str) -> int:
    return num_tokens


def _never(self: Any, request: Request, num_tokens: int, moment: str) -> int:
    return 0


_all_at_once.__name__ = _at_allocation.__name__ = _never.__name__ = num_registrable_tokens.__name__


def registrable() -> Exercise:
    """Fill in: how many tokens may be registered."""
    return exercise(
        "hunt/registrable",
        "Mend the branch. The engine asks `num_registrable_tokens` twice a step: at `moment` 'allocated', when the "
        "request has blocks for its first `num_tokens` tokens, and at 'computed', when these have been computed. "
        "(`request.num_tokens` is another number: all tokens that are known, also those of the prompt that no step has "
        "computed yet.) Return how many tokens' full blocks may be registered now, so that a look-up finds as much as "
        "possible, and nothing that is not there.",
        solution=num_registrable_tokens,
        workloads=[_one_follower_and_steps, send_day],
        num_lines=1,
        hints=[
            "An entry of the map says: the keys and values of these tokens are in this block. When is that true?",
            "Nothing is true at allocation. After compute, how many tokens are computed?",
        ],
        mistakes=[
            (
                _all_at_once,
                "This is the branch: a prompt in several chunks is known before it is computed, and so is promised.",
            ),
            (
                _at_allocation,
                "At allocation the blocks are still empty. vLLM may register them then, because it allocates no more "
                "than the step computes; this engine allocates the whole prompt.",
            ),
            (_never, "Nothing is promised, and nothing is ever found: each prompt is computed anew."),
        ],
        **{**POOL, "parts": FAST_PREFILL, "num_blocks": 64},
    )


@dataclass(frozen=True)
class Needs:
    """A workload goes wrong if all of these operations are in it, and one of the others if there are any."""

    operations: frozenset[str]
    one_of: frozenset[str] = frozenset()

    def __call__(self, workload: list[str]) -> bool:
        return self.operations <= set(workload) and (not self.one_of or not self.one_of.isdisjoint(workload))

    def __repr__(self) -> str:
        either = [" or ".join(sorted(self.one_of))] if self.one_of else []
        return f"Needs({', '.join([*sorted(self.operations), *either])})"


def shorten(workload: list[str], goes_wrong: Callable[[list[str]], bool]) -> list[str]:
    """Leave out one operation after the other, for as long as the workload still goes wrong."""
    needed = list(workload)
    for operation in workload:
        shorter = [one for one in needed if one != operation]
        if goes_wrong(shorter):
            needed = shorter
    return needed


def _only_from_the_front(workload: list[str], goes_wrong: Callable[[list[str]], bool]) -> list[str]:
    while workload and goes_wrong(workload[1:]):
        workload = workload[1:]
    return workload


def _only_from_the_end(workload: list[str], goes_wrong: Callable[[list[str]], bool]) -> list[str]:
    while workload and goes_wrong(workload[:-1]):
        workload = workload[:-1]
    return workload


def _each_alone(workload: list[str], goes_wrong: Callable[[list[str]], bool]) -> list[str]:
    return [operation for operation in workload if goes_wrong([operation])]


def _each_against_all(workload: list[str], goes_wrong: Callable[[list[str]], bool]) -> list[str]:
    return [operation for operation in workload if not goes_wrong([one for one in workload if one != operation])]


def _from_the_end(workload: list[str], goes_wrong: Callable[[list[str]], bool]) -> list[str]:
    return shorten(workload[::-1], lambda shorter: goes_wrong(shorter[::-1]))[::-1]


def shortening() -> Exercise:
    """Fill in: leave out what is not needed."""

    def needs(*operations: str) -> Needs:
        return Needs(frozenset(operations))

    return exercise(
        "hunt/shorten",
        "The heart of a finder. `workload` is a list of operations (all different), and `goes_wrong(workload)` plays a "
        "list, and returns True if it goes wrong. Return the operations that are needed, in their order: leave out any "
        "one more, and it does not go wrong. Where either of two could go, the earlier one goes. Do not change "
        "`workload` itself.",
        solution=shorten,
        cases=[
            (["add A", "step", "add B"], needs("add A", "step")),
            (["add A", "add B", "step"], needs("add B", "step")),
            (["add A", "reset", "add B"], needs("add A", "add B")),
            (["add A", "add B", "add C", "step 1", "step 2", "add D", "step 3"], needs("add B", "step 2")),
            (["add A", "step 1", "abort A", "reset", "add B", "step 2"], needs("add A", "add B", "abort A", "step 2")),
            (["step"], needs("step")),
            (["add A", "add B", "step"], Needs(frozenset({"step"}), frozenset({"add A", "add B"}))),
        ],
        num_lines=6,
        hints=[
            "For each operation: would it still go wrong without this one?",
            "Keep what is left so far in a list of its own, and replace it whenever a shorter one goes wrong too.",
        ],
        mistakes=[
            (_only_from_the_front, "You stop at the first operation that is needed. There may be others after it."),
            (_only_from_the_end, "You stop at the last operation that is needed. There may be others before it."),
            (_each_alone, "Hardly any bug needs one operation alone. Leave one out, and keep the others."),
            (
                _each_against_all,
                "You leave out each operation of the whole workload, one at a time. Where either of two is enough, it "
                "goes wrong without the one and without the other, but not without both. Go on from what is left.",
            ),
            (_from_the_end, "Where either of two could go, the earlier one goes: begin at the front."),
        ],
    )


class Mended(BranchManager):
    """The branch's manager, mended."""

    def num_registrable_tokens(self, request: Request, num_tokens: int, moment: str) -> int:
        """Return the computed tokens, once they are computed."""
        return num_tokens if moment == "computed" else 0


class CachedFirst(PrefillFirstScheduler):
    """What has begun goes on; then the request with the fewest tokens to compute comes first."""

    def next_waiting(self) -> Request:
        """Return a request that has blocks; if there is none, the one that the cache leaves least to compute."""

        def cost(request: Request) -> tuple[bool, int]:
            num_found = 0 if request.has_blocks else self.manager.find_prefix(request).num_tokens
            return not request.has_blocks, request.num_tokens - num_found

        return min(self.waiting, key=cost)


class _FirstCome(PrefillFirstScheduler):
    def next_waiting(self) -> Request:
        return self.waiting[0]


class _LeastLeft(PrefillFirstScheduler):
    def next_waiting(self) -> Request:
        return min(self.waiting, key=lambda request: request.num_tokens - request.num_computed_tokens)


def steps_waited(lab: Lab) -> float:
    """Return the steps that all requests together waited for their first tokens."""
    return sum(waits(lab))


def patience() -> Exercise:
    """Make it better: who is admitted next."""
    return exercise(
        "hunt/patience",
        "The mended branch is fair to short requests, and costs: somebody who overtakes computes what would have been "
        "in the cache a few steps later. Write a better `next_waiting`: it returns one of `self.waiting`. "
        "`request.has_blocks` is True for a prompt of which some chunks are computed already, "
        "`self.manager.find_prefix(request).num_tokens` says what the cache would give a new one, and "
        "`request.num_tokens` is its length. A scheduler derives from `PrefillFirstScheduler` "
        "(labengine.core.nano_vllm.scheduler). The score counts the steps that all requests of the day wait for their "
        "first token.",
        solution=CachedFirst,
        workloads=[send_day],
        score=steps_waited,
        goal=101,
        num_lines=4,
        hints=[
            "A prompt that is half computed holds blocks. What is gained when another one overtakes it?",
            "Among new ones: the cost of a request is what has to be computed, and not its length.",
            "`min(self.waiting, key=...)` with a key of two parts: (not request.has_blocks, tokens left to compute).",
        ],
        mistakes=[
            (BranchScheduler, "This is the branch's: the shortest prompt. It overtakes what is half done."),
            (_FirstCome, "Nobody overtakes: better than the branch. But now what is in the cache already waits too."),
            (_LeastLeft, "Good: half done goes on. Now ask the cache what the new ones cost."),
        ],
        **{**POOL, "parts": Parts(kv_cache_manager=Mended).overriding(FAST_PREFILL), "num_blocks": 64},
    )


EXERCISES: Mapping[str, Callable[[], Exercise]] = {
    "hunt/num-found": num_found,
    "hunt/first-wrong": first_wrong,
    "hunt/registrable": registrable,
    "hunt/shorten": shortening,
    "hunt/patience": patience,
}
