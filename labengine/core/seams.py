"""The method that decides each kind of event, as its kind names it, and the overrides of a core: for the views, for
Why? and for the checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from labengine.core.connector import Connector
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
_IN_TABLE = {name.partition(".")[2] for names in DECIDED_BY.values() for name in names}
_SPECIAL = ("__len__", "__contains__", "__iter__")


class Decider(NamedTuple):
    """The effective definition of a method; str() gives, for example, WrongTouch.touch."""

    owner: type
    """The class that defines it."""
    method: str

    def __str__(self) -> str:
        return f"{class_name(self.owner)}.{self.method}"


def decider(parts: Parts, event: Event | str, connector: type[Connector] = Connector) -> Decider | None:
    """Return the method that decides an event (or a kind: "BlockFreed", "BlockFreed:merged") in these parts.

    None where no part decides: the engine or the checks do. connector: the class of the external tier.
    """
    return decider_among(parts, deciding_methods(event), connector)


def decider_among(parts: Parts, methods: Iterable[str], connector: type[Connector] = Connector) -> Decider | None:
    """Return the first of these methods whose class is not one of labengine's own, else the first that there is."""
    found = list(_deciders(parts, methods, connector))
    return next((one for one in found if is_custom(one.owner)), found[0] if found else None)


def override_of(parts: Parts, methods: Iterable[str], connector: type[Connector] = Connector) -> Decider | None:
    """Return the first override among methods such as "HashChain.link"; None if these classes override none of them."""
    return next((one for one in _deciders(parts, methods, connector) if is_custom(one.owner)), None)


def overrides(parts: Parts, connector: type[Connector] = Connector) -> list[Decider]:
    """Return every definition outside labengine that replaces one of its own, private ones and attributes included.

    A constructor is none: it prepares what the others decide.
    """
    classes = dict.fromkeys(cls for part in owners(parts, connector).values() for cls in part)
    return [*dict.fromkeys(one for cls in classes for one in overrides_of(cls))]


def tier_class(connector: Connector | None) -> type[Connector]:
    """Return the class of a tier; of one that others wrap, the innermost one's."""
    while isinstance(inner := getattr(connector, "inner", None), Connector):
        connector = inner
    return Connector if connector is None else type(connector)


@lru_cache(maxsize=1024)
def overrides_of(part: type) -> tuple[Decider, ...]:
    """Return the overrides of one class that plays a part; of a class that derives from none of labengine's, all."""
    mine = [cls for cls in part.__mro__[:-1] if is_custom(cls)]
    own = [cls for cls in part.__mro__[:-1] if not is_custom(cls)]
    names = filter(_may_decide, dict.fromkeys(name for cls in mine for name in vars(cls)))
    replaced = (name for name in names if not own or any(name in vars(cls) for cls in own))
    definitions = (Decider(classes[0], name) for name in replaced if (classes := definers(part, name)))
    return tuple(one for one in definitions if is_custom(one.owner))


def _may_decide(name: str) -> bool:
    return name in _SPECIAL or not name.startswith(("__", "_abc_"))


def is_in_table(method: str) -> bool:
    """Return True for the name of a method that decides some kind of event."""
    return method in _IN_TABLE


def owners(parts: Parts, connector: type[Connector] = Connector) -> dict[str, tuple[type, ...]]:
    """Return the core's classes for each owner that the table names; Engine, Transfers and Watch are not the core's."""
    return {
        "Scheduler": (parts.scheduler,),
        "KVCacheManager": (parts.kv_cache_manager,),
        "KVCacheGroup": (parts.full_attention_group, parts.sliding_window_group, parts.state_group),
        "SlidingWindowGroup": (parts.sliding_window_group,),
        "StateGroup": (parts.state_group,),
        "BlockPool": (parts.block_pool,),
        "FreeQueue": (parts.free_queue,),
        "HashChain": (parts.hash_chain,),
        "MergePolicy": (parts.merge_policy,),
        "PrefixLookup": (parts.prefix_lookup,),
        "ExternalLoads": (parts.external_loads,),
        "WaitingQueue": (parts.waiting_queue,),
        "Drafts": (parts.drafts,),
        "Forks": (parts.forks,),
        "BeamSearches": (parts.beams,),
        "HandOver": (parts.hand_over,),
        "Connector": (connector,),
        "Parts": (type(parts),),
    }


def _deciders(parts: Parts, methods: Iterable[str], connector: type[Connector]) -> Iterator[Decider]:
    classes = owners(parts, connector)
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
