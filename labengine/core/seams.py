"""The methods that decide each kind of event, and the overrides of a core, for views, Why? and checks."""

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

Scheduler.take_arrived emits BlocksLoaded and LoadFailed for a late load, Transfers for a load within the step."""

_BY_NAME = {kind.__name__: kind for kind in EVENT_KINDS}
_IN_TABLE = {name.partition(".")[2] for names in DECIDED_BY.values() for name in names}
_SPECIAL = ("__len__", "__contains__", "__iter__")


class Decider(NamedTuple):
    """The effective definition of a method; its str() is, for example, WrongTouch.touch."""

    owner: type
    """The class that defines it."""
    method: str

    def __str__(self) -> str:
        return f"{class_name(self.owner)}.{self.method}"


def decider(parts: Parts, event: Event | str, connector: type[Connector] = Connector) -> Decider | None:
    """Return the method that decides an event, or a kind such as "BlockFreed" or "BlockFreed:merged", in these parts.

    None if the engine or the checks decide, not a part. connector: the class of the external tier.
    """
    return decider_among(parts, deciding_methods(event), connector)


def decider_among(parts: Parts, methods: Iterable[str], connector: type[Connector] = Connector) -> Decider | None:
    """Return the first of these methods that is overridden outside labengine, else the first that exists."""
    found = list(_deciders(parts, methods, connector))
    return next((one for one in found if is_custom(one.owner)), found[0] if found else None)


def override_of(parts: Parts, methods: Iterable[str], connector: type[Connector] = Connector) -> Decider | None:
    """Return the first override among methods such as "HashChain.link"; None if none is overridden."""
    return next((one for one in _deciders(parts, methods, connector) if is_custom(one.owner)), None)


def overrides(parts: Parts, connector: type[Connector] = Connector) -> list[Decider]:
    """Return every definition outside labengine that replaces one of its own, private ones and attributes included.

    Constructors do not count: they only prepare for the other methods.
    """
    classes = dict.fromkeys(cls for part in owners(parts, connector).values() for cls in part)
    return [*dict.fromkeys(one for cls in classes for one in overrides_of(cls))]


def tier_class(connector: Connector | None) -> type[Connector]:
    """Return the class of a tier; for wrapped tiers, the innermost one's."""
    while isinstance(inner := getattr(connector, "inner", None), Connector):
        connector = inner
    return Connector if connector is None else type(connector)


@lru_cache(maxsize=1024)
def overrides_of(part: type) -> tuple[Decider, ...]:
    """Return the overrides of a part's class. In a class without a base from labengine, every method is one."""
    mine = [cls for cls in part.__mro__[:-1] if is_custom(cls)]
    own = [cls for cls in part.__mro__[:-1] if not is_custom(cls)]
    names = filter(_may_decide, dict.fromkeys(name for cls in mine for name in vars(cls)))
    replaced = (name for name in names if not own or any(name in vars(cls) for cls in own))
    definitions = (Decider(classes[0], name) for name in replaced if (classes := definers(part, name)))
    return tuple(one for one in definitions if is_custom(one.owner))


def _may_decide(name: str) -> bool:
    return name in _SPECIAL or not name.startswith(("__", "_abc_"))


def is_in_table(method: str) -> bool:
    """Return True if a method of this name decides some kind of event."""
    return method in _IN_TABLE


def owners(parts: Parts, connector: type[Connector] = Connector) -> dict[str, tuple[type, ...]]:
    """Return the core's classes for each owner in DECIDED_BY, except Engine, Transfers and Watch, which are outside."""
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
        "PrefixTree": (parts.prefix_tree,),
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
    """Return the methods that decide an event, by its variant, or a kind of event; empty if no part decides."""
    if isinstance(event, Event):
        return entry_of(DECIDED_BY, event) or ()
    return DECIDED_BY.get(event) or _BY_NAME[event.partition(":")[0]].decided_by.get("", ())
