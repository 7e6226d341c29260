"""The rule `granted`: what is scheduled has its blocks, and what is granted was free."""

from __future__ import annotations

from collections.abc import Iterator

from labengine import events as ev
from labengine.check.blame import Blamed
from labengine.check.stream import Stream
from labengine.core.kv_cache_group import NotGrantedError
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.parts import Parts
from labengine.core.seams import decider_among
from labengine.core.step_plan import StepPlan
from labengine.record.violation import Violation
from labengine.record.wording import group_suffix

ADMITTING = (
    *("KVCacheGroup.num_blocks_to_admit", "KVCacheGroup.max_blocks_held", "KVCacheManager.has_room"),
    *("KVCacheManager.can_admit", "KVCacheManager.admit", "Scheduler.admit", "BlockPool.num_free"),
)
"""Methods that count or grant the blocks of a request that is admitted."""

ALLOCATING = (
    *("KVCacheManager.allocate", "KVCacheGroup.num_missing_blocks", "KVCacheGroup.extend"),
    "Scheduler.allocate_or_preempt",
)
"""Methods that count or grant the blocks of a running request's next tokens."""


def judge_granted(plan: StepPlan, stream: Stream, manager: KVCacheManager, parts: Parts) -> Iterator[Blamed]:
    """Yield scheduled requests whose block tables end before the tokens that the step computes.

    stream: the events up to the plan.
    """
    sizes = [group.block_size for group in manager.groups]
    for part in plan.scheduled:
        end = part.end
        for group, table in enumerate(part.block_tables):
            if len(table) * sizes[group] < end:
                text = (
                    f"request {part.request_id} is scheduled up to token {end}, and the blocks of its "
                    f"table{group_suffix(group)} hold {len(table) * sizes[group]}"
                )
                yield _not_granted(text, part.request_id, stream, parts, ev.RequestScheduled)


def judge_failure(error: BaseException | None, stream: Stream, parts: Parts) -> Iterator[Blamed]:
    """Yield the request whose schedule raised because it was granted blocks that it did not get.

    stream: the events up to StepFailed.
    """
    if isinstance(error, NotGrantedError):
        yield _not_granted(str(error), error.request_id, stream, parts, ev.RequestScheduled, ev.PrefixHit)


def _not_granted(text: str, request_id: int, stream: Stream, parts: Parts, *kinds: type[ev.Event]) -> Blamed:
    """Return the violation; it begins with the event of these kinds that follows from the promise."""
    is_running = request_id in stream.running
    promised = decider_among(parts, (*ALLOCATING, *ADMITTING) if is_running else (*ADMITTING, *ALLOCATING))
    number = stream.newest(lambda event: isinstance(event, kinds) and getattr(event, "request_id", None) == request_id)
    violation = Violation("granted", f"{text} ({promised})", (request_id,))
    return Blamed(violation, stream.last_number if number is None else number)
