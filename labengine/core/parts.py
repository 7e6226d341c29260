"""Parts: the replaceable classes from which a core is assembled. An edition is a frozen Parts."""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field, fields, replace
from difflib import get_close_matches
from functools import cache
from typing import Any, cast, get_args, get_type_hints

from labengine.config import ConfigError, EngineConfig, shown
from labengine.core.beam_searches import BeamSearches
from labengine.core.block_pool import BlockPool
from labengine.core.collaborator import Absent
from labengine.core.connector import Connector
from labengine.core.drafts import Drafts
from labengine.core.external_loads import ExternalLoads
from labengine.core.forks import Forks
from labengine.core.free_queue import FreeQueue
from labengine.core.full_attention import FullAttentionGroup
from labengine.core.guard import guarded
from labengine.core.hand_over import HandOver
from labengine.core.hash_chain import HashChain
from labengine.core.journal import Journal
from labengine.core.kv_cache_group import KVCacheGroup
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.merge_policy import MergePolicy
from labengine.core.overrides import refuse_wrong_overrides
from labengine.core.part_methods import class_name, is_custom
from labengine.core.prefix_lookup import PrefixLookup
from labengine.core.radix.block_pool import RadixBlockPool
from labengine.core.radix.full_attention import RadixGroup
from labengine.core.radix.guard import TREE_CHECKS
from labengine.core.radix.kv_cache_manager import RadixKVCacheManager
from labengine.core.radix.prefix_lookup import TreeLookup
from labengine.core.radix.prefix_tree import PrefixTree
from labengine.core.radix.scheduler import RadixScheduler
from labengine.core.radix.token_budget import RadixTokenBudgetScheduler
from labengine.core.scheduler import Scheduler
from labengine.core.sliding_window import SlidingWindowGroup
from labengine.core.state_group import StateGroup
from labengine.core.waiting_queue import WaitingQueue
from labengine.record.hooks import Hooks

_AS_EDITION: Any = None  # a default for fields whose type is a class
_UNNAMED = "custom"


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The class behind each decision. To show a bug, subclass one class, override one method, and pass the subclass.

    Its base determines the field that it replaces; several classes are passed by field. `overriding` fills in the
    edition's class for each missing field.
    """

    replacing: InitVar[type | None] = field(default=None, kw_only=False)
    name: str = _UNNAMED
    scheduler: type[Scheduler] = _AS_EDITION
    kv_cache_manager: type[KVCacheManager] = _AS_EDITION
    full_attention_group: type[KVCacheGroup] = _AS_EDITION
    sliding_window_group: type[KVCacheGroup] = _AS_EDITION
    state_group: type[KVCacheGroup] = _AS_EDITION
    block_pool: type[BlockPool] = _AS_EDITION
    free_queue: type[FreeQueue] = _AS_EDITION
    hash_chain: type[HashChain] = _AS_EDITION
    merge_policy: type[MergePolicy] = _AS_EDITION
    prefix_lookup: type[PrefixLookup] = _AS_EDITION
    external_loads: type[ExternalLoads] = _AS_EDITION
    waiting_queue: type[WaitingQueue] = _AS_EDITION
    drafts: type[Drafts] = _AS_EDITION
    forks: type[Forks] | type[Absent] = _AS_EDITION
    beams: type[BeamSearches] | type[Absent] = _AS_EDITION
    hand_over: type[HandOver] | type[Absent] = _AS_EDITION
    prefix_tree: type[PrefixTree] | type[Absent] = _AS_EDITION

    def __new__(cls, *unnamed: object, **replaced: object) -> Parts:
        """Refuse unknown fields with a helpful message, before the dataclass's __init__ raises TypeError."""
        if unnamed[1:] or not all(isinstance(one, type) for one in unnamed):
            raise ConfigError(
                f"Parts takes at most one positional class, and others by name, as in merge_policy=MyPolicy; got "
                f"{', '.join(map(shown, unnamed))}"
            )
        known = [field.name for field in fields(cls)]
        for name in replaced:
            if name not in (*known, "replacing"):  # which dataclasses.replace passes on
                near = get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known)}"
                raise ConfigError(f"Parts has no field {name!r}; {hint}")
        return super().__new__(cls)

    def __post_init__(self, replacing: type | None) -> None:
        if replacing is not None:
            name = field_of(replacing)
            if getattr(self, name) is not _AS_EDITION:
                raise ConfigError(f"parts: {name} is given twice, as {class_name(replacing)} and by name")
            object.__setattr__(self, name, replacing)
        for name, base in base_classes().items():
            value = getattr(self, name)
            if value is _AS_EDITION:
                continue
            if not isinstance(value, type):
                raise ConfigError(f"parts: {name} must be a class, not an instance, got {value!r}")
            if missing := _missing_methods(value, base):
                raise ConfigError(
                    f"parts: {name} must be a subclass of {base.__name__}, or a class with its methods: "
                    f"{value.__name__} is missing {', '.join(missing)}"
                )
            refuse_wrong_overrides("parts", value, base, self._other_parts(value))

    def _other_parts(self, part: type) -> list[type]:
        return [base for name, base in base_classes().items() if getattr(self, name) is not part]

    def overriding(self, edition: Parts) -> Parts:
        """Return `edition` with its fields replaced by those set here.

        Parts without a name get one, such as "labengine + MyPool".
        """
        replaced = {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not _AS_EDITION}
        if self.name == _UNNAMED:
            classes = (value for name, value in replaced.items() if value is not getattr(edition, name))
            replaced["name"] = " + ".join(
                [edition.name, *(class_name(cls) for cls in classes if isinstance(cls, type))]
            )
        return replace(edition, **replaced)

    def _refuse_half_a_tree(self) -> None:
        for name, needing in _NEEDING_A_TREE.items():
            if self.prefix_tree is Absent and issubclass(part := getattr(self, name), needing):
                raise ConfigError(f"parts: {name} {class_name(part)} needs a prefix tree: name the edition it is from")
        for name, base in _ON_A_TREE.items():
            part = getattr(self, name)
            if self.prefix_tree is Absent:
                if issubclass(part, base):
                    raise ConfigError(
                        f"parts: {name} {class_name(part)} needs a prefix tree: use it with edition 'labengine-radix'"
                    )
            elif missing := _missing_methods(part, base):
                raise ConfigError(
                    f"parts: this edition has a prefix tree, so {name} must be a subclass of {base.__name__}, or a "
                    f"class with its methods: {class_name(part)} is missing {', '.join(missing)}"
                )

    def assemble(
        self, config: EngineConfig, hooks: Hooks, journal: Journal, connector: Connector | None = None
    ) -> Scheduler:
        """Return a core with an empty pool: the scheduler on its manager, on the groups, on the pool."""
        self._refuse_half_a_tree()
        free_queue = guarded(self.free_queue)(config.num_blocks)
        pool = guarded(self.block_pool)(config.num_blocks, free_queue, hooks, journal)
        if issubclass(self.prefix_tree, PrefixTree):
            pool.tree = guarded(self.prefix_tree, checks=TREE_CHECKS)(cast(RadixBlockPool, pool), hooks, journal)
        kinds = {
            "full": self.full_attention_group,
            "sliding_window": self.sliding_window_group,
            "state": self.state_group,
        }
        merge_policy = self.merge_policy()
        groups = tuple(
            kinds[spec.kind](index, config, pool, merge_policy, hooks, journal)
            for index, spec in enumerate(config.groups)
        )
        lookup = self.prefix_lookup(groups)
        chain = guarded(self.hash_chain)()
        manager = guarded(self.kv_cache_manager)(config, pool, groups, lookup, chain, hooks, journal)
        external = self.external_loads(connector, manager, config.scheduler_block_size, journal)
        asks_the_user = connector is not None and is_custom(type(connector))
        tiers = ("match_external",) if asks_the_user and hasattr(self.scheduler, "match_external") else ()
        scheduler = guarded(self.scheduler, tiers)(config, manager, external, self.waiting_queue(), hooks, journal)
        scheduler.drafts = self.drafts(scheduler)
        for name in scheduler.capabilities:  # beams after forks
            if (capability := getattr(self, name)) is not Absent:
                others = (scheduler.forks,) if name == "beams" else ()
                setattr(scheduler, name, capability(scheduler, *others))
        return scheduler


_ON_A_TREE: dict[str, type] = {
    "kv_cache_manager": RadixKVCacheManager,
    "full_attention_group": RadixGroup,
    "block_pool": RadixBlockPool,
}
"""Per field, the base class that an edition with a prefix tree needs, and that needs a tree itself."""

_NEEDING_A_TREE: dict[str, tuple[type, ...]] = {
    "scheduler": (RadixScheduler, RadixTokenBudgetScheduler),
    "prefix_lookup": (TreeLookup,),
}
"""Per further field, the classes that need a tree."""


@cache
def base_classes() -> dict[str, type]:
    """Return the base class of each field of Parts: {"block_pool": BlockPool, ...}."""
    return {name: _class_in(hint) for name, hint in get_type_hints(Parts).items() if get_args(hint)}


def _class_in(hint: Any) -> Any:
    """Return C of type[C], and of type[C] | type[Absent]."""
    return _class_in(first) if get_args(first := get_args(hint)[0]) else first


_GROUPS = {
    "full_attention_group": FullAttentionGroup,
    "sliding_window_group": SlidingWindowGroup,
    "state_group": StateGroup,
}
"""Per field of a KV-cache group, the base class of its kind."""


def field_of(cls: type) -> str:
    """Return the field of Parts that a class can replace. Raises ConfigError unless there is exactly one."""
    bases = base_classes() | _GROUPS
    meant = [field for field, base in bases.items() if issubclass(cls, base)]
    if len(meant) == 1:
        return meant[0]
    name, by_name = class_name(cls), "name the field, as in labengine.Parts(block_pool=MyPool)"
    if meant or issubclass(cls, KVCacheGroup):
        names = " or ".join(bases[field].__name__ for field in meant or _GROUPS)
        raise ConfigError(f"{name} could replace {names}: make it a subclass of only one of them, or {by_name}")
    parts = ", ".join(base.__name__ for base in bases.values())
    raise ConfigError(f"{name} must be a subclass of a part ({parts}): make it one, or {by_name}")


def given_parts(given: object) -> Parts:
    """Return Parts unchanged, or Parts with one given class. Raises ConfigError for anything else."""
    if isinstance(given, Parts):
        return given
    if isinstance(given, type):
        return Parts(given)
    raise ConfigError(f"parts must be a labengine.Parts or a class that replaces a part, got {shown(given)}")


def parts_of(scheduler: Scheduler) -> tuple[Any, ...]:
    """Return the objects of a core that decide, except those that a user's class keeps elsewhere."""
    manager = scheduler.manager
    policies = [getattr(group, "_merge_policy", None) for group in manager.groups]
    inner = getattr(manager, "_hash_chain", None), getattr(manager, "_prefix_lookup", None)
    able = (getattr(scheduler, name, None) for name in ("drafts", "forks", "beams", "hand_over"))
    outer = scheduler, scheduler.external, scheduler.waiting, *able
    pool = manager.pool
    found = (*outer, manager, *inner, pool, pool.free_queue, pool.tree, *policies, *manager.groups)
    return tuple({id(part): part for part in found if part is not None}.values())


def _missing_methods(part: type, base: type) -> list[str]:
    """Return the base's public methods that a class neither has nor forwards."""
    if issubclass(part, (base, Absent)) or hasattr(part, "__getattr__"):
        return []
    special = [name for name in ("__len__", "__contains__", "__iter__") if hasattr(base, name)]
    public = [name for name in dir(base) if not name.startswith("_")]
    return [name for name in (*public, *special) if not hasattr(part, name)]
