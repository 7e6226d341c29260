"""The method that decides each kind of event, as events.py names it: for the views, for Why? and for the checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from labengine.core.part_methods import class_name, definers, is_custom
from labengine.core.parts import Parts
from labengine.events import EVENT_KINDS, Event, entry_of

DECIDED_BY = {
    f"{kind.__name__}:{variant}".rstrip(":"): methods
    for kind in EVENT_KINDS
    for variant, methods in kind.decided_by.items()
}
"""Per kind of event, or kind:variant: the method that usually decides, others that take part, and last the emitter.

For a late load Scheduler.take_arrived emits BlocksLoaded and LoadFailed, for a load within the step Transfers."""

_BY_NAME = {kind.__name__: kind for kind in EVENT_KINDS}


class Decider(NamedTuple):
    """The effective definition of a method; str() gives, for example, WrongTouch.touch."""

    owner: type
    """The class that defines it."""
    method: str

    def __str__(self) -> str:
        return f"{class_name(self.owner)}.{self.method}"


def decider(parts: Parts, event: Event | str) -> Decider | None:
    """Return the method that decides an event (or a kind: "BlockFreed", "BlockFreed:merged") in these parts.

    None where no part decides: the engine or the checks do.
    """
    return decider_among(parts, deciding_methods(event))


def decider_among(parts: Parts, methods: Iterable[str]) -> Decider | None:
    """Return the first of these methods whose class is not one of labengine's own, else the first that there is."""
    found = list(_deciders(parts, methods))
    return next((one for one in found if is_custom(one.owner)), found[0] if found else None)


def owners(parts: Parts) -> dict[str, tuple[type, ...]]:
    """Return the core's classes for each owner that the table names; Engine, Transfers and Watch are not the core's."""
    return {
        "Scheduler": (parts.scheduler,),
        "KVCacheManager": (parts.kv_cache_manager,),
        "KVCacheGroup": (parts.full_attention_group, parts.sliding_window_group),
        "SlidingWindowGroup": (parts.sliding_window_group,),
        "BlockPool": (parts.block_pool,),
        "FreeQueue": (parts.free_queue,),
        "HashChain": (parts.hash_chain,),
        "MergePolicy": (parts.merge_policy,),
        "PrefixLookup": (parts.prefix_lookup,),
        "ExternalLoads": (parts.external_loads,),
        "WaitingQueue": (parts.waiting_queue,),
        "Parts": (type(parts),),
    }


def _deciders(parts: Parts, methods: Iterable[str]) -> Iterator[Decider]:
    classes = owners(parts)
    for name in methods:
        part, _, method = name.partition(".")
        for cls in classes.get(part, ()):
            if defined := definers(cls, method):
                yield Decider(defined[0], method)


def deciding_methods(event: Event | str) -> tuple[str, ...]:
    """Return the methods for an event, its variant included, or for a kind; empty where no part decides."""
    if isinstance(event, Event):
        return entry_of(DECIDED_BY, event) or ()
    return DECIDED_BY.get(event) or _BY_NAME[event.partition(":")[0]].decided_by.get("", ())
