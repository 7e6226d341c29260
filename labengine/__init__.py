"""labengine: step a real LLM engine in your notebook and watch every KV block move."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labengine.config import ConfigError as ConfigError
    from labengine.config import GroupSpec as GroupSpec
    from labengine.config import SamplingParams as SamplingParams
    from labengine.core.beam_searches import BeamSearches as BeamSearches
    from labengine.core.block_pool import BlockPool as BlockPool
    from labengine.core.connector import Connector as Connector
    from labengine.core.drafts import Drafts as Drafts
    from labengine.core.external_loads import ExternalLoads as ExternalLoads
    from labengine.core.forks import Forks as Forks
    from labengine.core.free_queue import FreeQueue as FreeQueue
    from labengine.core.full_attention import FullAttentionGroup as FullAttentionGroup
    from labengine.core.hand_over import HandOver as HandOver
    from labengine.core.hash_chain import HashChain as HashChain
    from labengine.core.kv_cache_group import KVCacheGroup as KVCacheGroup
    from labengine.core.kv_cache_manager import KVCacheManager as KVCacheManager
    from labengine.core.merge_policy import KeepDuplicates as KeepDuplicates
    from labengine.core.merge_policy import LateMerge as LateMerge
    from labengine.core.merge_policy import MergePolicy as MergePolicy
    from labengine.core.nano_vllm.scheduler import PrefillFirstScheduler as PrefillFirstScheduler
    from labengine.core.parts import Parts as Parts
    from labengine.core.prefix_lookup import PrefixLookup as PrefixLookup
    from labengine.core.proposer import FixedDrafts as FixedDrafts
    from labengine.core.proposer import NGram as NGram
    from labengine.core.scheduler import Scheduler as Scheduler
    from labengine.core.sliding_window import SlidingWindowGroup as SlidingWindowGroup
    from labengine.core.state_group import StateGroup as StateGroup
    from labengine.core.token_budget import TokenBudgetScheduler as TokenBudgetScheduler
    from labengine.core.waiting_queue import PriorityQueue as PriorityQueue
    from labengine.core.waiting_queue import WaitingQueue as WaitingQueue
    from labengine.course.exercise import exercise as exercise
    from labengine.course.progress_strip import progress as progress
    from labengine.driven.drive import drive as drive
    from labengine.driven.driven import Patch as Patch
    from labengine.engine.attention.torch_static import StaticTorch as StaticTorch
    from labengine.engine.draft_model import DraftModel as DraftModel
    from labengine.engine.external import DiskStore as DiskStore
    from labengine.engine.external import HostStore as HostStore
    from labengine.engine.forward.static_step import StaticStep as StaticStep
    from labengine.engine.model_runner import ModelRunner as ModelRunner
    from labengine.engine.sources import model_path as model_path
    from labengine.engine.static_runner import StaticRunner as StaticRunner
    from labengine.engine.workload import simulate as simulate
    from labengine.finder.find import find as find
    from labengine.lab import Lab as Lab
    from labengine.notebook import load_ipython_extension as load_ipython_extension
    from labengine.notebook import unload_ipython_extension as unload_ipython_extension
    from labengine.prefix_doctor.doctor import doctor as doctor
    from labengine.record.files.parsing import TraceError as TraceError
    from labengine.scenarios import bug as bug
    from labengine.scenarios import bugs as bugs
    from labengine.scenarios.by_hand import scenario as scenario
    from labengine.session.compare.comparing import compare as compare
    from labengine.session.compare.variation import vary as vary
    from labengine.session.judging.judge import judge as judge
    from labengine.session.saved.trace import open as open
    from labengine.vllm.cache_events.attach import kv_events as kv_events
    from labengine.vllm.conformance.conform import conform as conform
    from labengine.vllm.stream.attach import attach as attach
    from labengine.vllm.stream.ranks import attach_ranks as attach_ranks

_HOMES = {
    "BeamSearches": "labengine.core.beam_searches",
    "BlockPool": "labengine.core.block_pool",
    "ConfigError": "labengine.config",
    "Connector": "labengine.core.connector",
    "DiskStore": "labengine.engine.external",
    "DraftModel": "labengine.engine.draft_model",
    "Drafts": "labengine.core.drafts",
    "ExternalLoads": "labengine.core.external_loads",
    "FixedDrafts": "labengine.core.proposer",
    "Forks": "labengine.core.forks",
    "FreeQueue": "labengine.core.free_queue",
    "FullAttentionGroup": "labengine.core.full_attention",
    "GroupSpec": "labengine.config",
    "HandOver": "labengine.core.hand_over",
    "HashChain": "labengine.core.hash_chain",
    "HostStore": "labengine.engine.external",
    "KVCacheGroup": "labengine.core.kv_cache_group",
    "KVCacheManager": "labengine.core.kv_cache_manager",
    "KeepDuplicates": "labengine.core.merge_policy",
    "Lab": "labengine.lab",
    "LateMerge": "labengine.core.merge_policy",
    "MergePolicy": "labengine.core.merge_policy",
    "ModelRunner": "labengine.engine.model_runner",
    "NGram": "labengine.core.proposer",
    "Parts": "labengine.core.parts",
    "Patch": "labengine.driven.driven",
    "PrefillFirstScheduler": "labengine.core.nano_vllm.scheduler",
    "PrefixLookup": "labengine.core.prefix_lookup",
    "SamplingParams": "labengine.config",
    "Scheduler": "labengine.core.scheduler",
    "SlidingWindowGroup": "labengine.core.sliding_window",
    "StateGroup": "labengine.core.state_group",
    "StaticRunner": "labengine.engine.static_runner",
    "StaticStep": "labengine.engine.forward.static_step",
    "StaticTorch": "labengine.engine.attention.torch_static",
    "TokenBudgetScheduler": "labengine.core.token_budget",
    "TraceError": "labengine.record.files.parsing",
    "PriorityQueue": "labengine.core.waiting_queue",
    "WaitingQueue": "labengine.core.waiting_queue",
    "attach": "labengine.vllm.stream.attach",
    "attach_ranks": "labengine.vllm.stream.ranks",
    "bug": "labengine.scenarios",
    "bugs": "labengine.scenarios",
    "compare": "labengine.session.compare.comparing",
    "conform": "labengine.vllm.conformance.conform",
    "doctor": "labengine.prefix_doctor.doctor",
    "drive": "labengine.driven.drive",
    "exercise": "labengine.course.exercise",
    "find": "labengine.finder.find",
    "kv_events": "labengine.vllm.cache_events.attach",
    "judge": "labengine.session.judging.judge",
    "load_ipython_extension": "labengine.notebook",
    "model_path": "labengine.engine.sources",
    "open": "labengine.session.saved.trace",
    "progress": "labengine.course.progress_strip",
    "scenario": "labengine.scenarios.by_hand",
    "simulate": "labengine.engine.workload",
    "unload_ipython_extension": "labengine.notebook",
    "vary": "labengine.session.compare.variation",
}
"""Public names and the modules they live in: resolved on first use, so that importing labengine loads neither torch
nor transformers."""

_NEED_TORCH = frozenset({"ModelRunner", "StaticRunner", "StaticStep", "StaticTorch"})
"""Names for a custom runner. Their modules import torch, which only load_torch imports safely."""

_CALLED_BY_IPYTHON = frozenset({"load_ipython_extension", "unload_ipython_extension"})

__all__ = sorted(_HOMES.keys() - {"open"})  # a star import should not take Python's own open() away
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'labengine' has no attribute {name!r}; public names: {', '.join(_HOMES)}")
    try:
        if name in _NEED_TORCH:
            import_module("labengine.engine.torch_import").load_torch()
        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        from labengine.system.extras import require_extra_of

        require_extra_of(error, f"labengine.{name}")
        raise
    return value


def __dir__() -> list[str]:
    """Return the names that Tab completion offers: all public names but those that only docs/engine.md describes."""
    return sorted(_HOMES.keys() - _NEED_TORCH - _CALLED_BY_IPYTHON | {"__version__"})
