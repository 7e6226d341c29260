"""Checks of overrides' answers and effects, added when a core is assembled; labengine's own methods pay nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache, wraps
from itertools import islice
from types import MappingProxyType
from typing import Any, TypeVar

from labengine.config import is_single_int, shown
from labengine.core.beams import refuse_impossible
from labengine.core.part_methods import class_name, definers, is_custom, marks_guard
from labengine.core.request import Request

T = TypeVar("T")
Check = Callable[..., None]
Checks = Mapping[str, Check]

_REFUSED = "_refused_answer"


def guarded(part: type[T], also: Collection[str] = (), checks: Checks | None = None) -> type[T]:
    """Return a class whose custom methods of `checks`, by default CHECKS, are checked; the class itself without any.

    also: methods of labengine to check because they pass on a user's tier's answer.
    """
    table = CHECKS if checks is None else checks
    custom = tuple(item for item in table.items() if item[0] in also or _is_custom(part, item[0]))
    return _guarded(part, custom) if custom else part  # type: ignore[arg-type]


def _is_custom(part: type, name: str) -> bool:
    found = definers(part, name)
    return bool(found) and is_custom(found[0])


@lru_cache(maxsize=256)
def _guarded(part: type, checks: tuple[tuple[str, Check], ...]) -> Any:
    said = {name: getattr(part, name) for name in ("__module__", "__qualname__", "__doc__")}
    cls = type(part.__name__, (part,), said)
    for name, check in checks:
        setattr(cls, name, _checked(cls, part, name, check))
    return cls


def _checked(cls: type, part: type, name: str, check: Check) -> Callable[..., Any]:
    @wraps(getattr(part, name))
    def method(self: Any, *arguments: Any, **named: Any) -> Any:
        answer = getattr(super(cls, self), name)(*arguments, **named)
        try:
            check(self, answer, *arguments, **named)
        except (ValueError, TypeError) as error:
            vars(error)[_REFUSED] = self, name, answer
            raise
        return answer

    return marks_guard(method)


def refused_answers(error: BaseException, part: object, name: str) -> list[Any]:
    """Return the answer of a part's method that was refused with this error; an empty list for another error."""
    of, method, answer = vars(error).get(_REFUSED, (None, "", None))
    return [answer] if of is part and method == name else []


def name_of(part: object, name: str) -> str:
    """Return the override's name as its author wrote it."""
    return f"{class_name(definers(type(part), name)[0])}.{name}"


def _check_reused_first(pool: Any, head: Any, block_ids: list[int]) -> None:
    """Refuse anything but a choice among the freed blocks: it would break the queue much later."""
    is_list = isinstance(head, (list, tuple)) and len(head) <= len(block_ids) and all(map(is_single_int, head))
    if is_list and len({*head}) == len(head) and {*head} <= {*block_ids}:
        return
    asked = f"a list of some of the given blocks ({shown(block_ids)}), each at most once"
    raise ValueError(f"{name_of(pool, 'reused_first')} must return {asked}; it returned {shown(head)}")


def _check_append(queue: Any, _: object, block_ids: Sequence[int]) -> None:
    """Refuse any place but the tail, because no event could report it."""
    order = [*islice(queue, len(queue))]
    if order[max(0, len(order) - len(block_ids)) :] != [*block_ids]:
        raise _misplaced(queue, "append", "tail", block_ids, order)


def _check_prepend(queue: Any, _: object, block_ids: Sequence[int]) -> None:
    """Refuse any place but the head."""
    order = [*islice(queue, len(queue))]
    if order[: len(block_ids)] != [*block_ids]:
        raise _misplaced(queue, "prepend", "head", block_ids, order)


def _misplaced(queue: Any, name: str, end: str, block_ids: Sequence[int], order: list[int]) -> ValueError:
    return ValueError(
        f"{name_of(queue, name)} must queue the given blocks ({shown(block_ids)}) at the {end}, in the order that "
        f"their events give; the queue is now {shown(order)}. To reuse blocks in a different order, override take "
        "and put_back"
    )


def _check_slot_runs(manager: Any, runs: Any, request: Request, start: int, end: int, group: Any) -> None:
    """Refuse anything but a list of runs: its readers would fail elsewhere, or never end.

    The rule `slot` judges whether they are the right slots.
    """
    size, is_list = group.block_size, isinstance(runs, (list, tuple)) and len(runs) <= max(1, end - start)
    if is_list and all(_is_run(run, size) for run in runs):
        return
    raise ValueError(
        f"{name_of(manager, 'slot_runs')} must return a tuple of runs (block_id, offset, length) of 0 to {size} "
        f"tokens each, all integers, with no more runs than tokens; it returned {shown(runs)}"
    )


def _is_run(run: Any, block_size: int) -> bool:
    is_triple = isinstance(run, (list, tuple)) and len(run) == 3 and all(map(is_single_int, run))
    return is_triple and 0 <= run[2] <= block_size


def _check_match_external(scheduler: Any, num_external: Any, request: Request, hit: Any) -> None:
    """Refuse an impossible number of tokens after the hit (LMCache issue 2158: -80)."""
    num_left = request.num_tokens - hit.num_tokens
    if is_single_int(num_external) and 0 <= num_external <= num_left:
        return
    raise ValueError(
        f"{name_of(scheduler, 'match_external')}, or the tier it queries, must return 0 to {num_left} tokens for "
        f"request {request.request_id}, to follow its hit of {hit.num_tokens}; it returned {shown(num_external)}"
    )


def _check_choose_victim(scheduler: Any, victim: Any, request: Request) -> None:
    if not isinstance(victim, Request):
        method = name_of(scheduler, "choose_victim")
        raise TypeError(f"{method} must return one of the requests in self.running; it returned {shown(victim)}")


def _check_link(hash_chain: Any, block_hash: Any, *_: object, **named: object) -> None:
    """Refuse anything but bytes, which events and views need; Python's hash() is the likeliest mistake."""
    if not isinstance(block_hash, bytes):
        method = name_of(hash_chain, "link")
        raise ValueError(f"{method} must return bytes, such as those of digest(); it returned {shown(block_hash)}")


def _check_decide(policy: Any, decision: Any, search: Any, *_: object, **named: object) -> None:
    refuse_impossible(policy, search, decision)


CHECKS: Checks = MappingProxyType(
    {
        "reused_first": _check_reused_first,
        "append": _check_append,
        "prepend": _check_prepend,
        "slot_runs": _check_slot_runs,
        "match_external": _check_match_external,
        "choose_victim": _check_choose_victim,
        "link": _check_link,
        "decide": _check_decide,
    }
)
"""Per method of a part: its check, called afterwards with the part, the answer and the method's arguments."""
