"""SGLang's own scheduler and prefix tree without a model, on a CPU.

LABENGINE_SGLANG names the folder of SGLang's unpacked wheel; without it, SGLang is installed. Its event_loop_normal
runs with its PrefillAdder, ScheduleBatch, result processor, allocators, and tree (the Python core). Stood in for:
Scheduler.__init__ (its attributes are set here), messages, the model, and what measures or streams. Missing packages
that no step here calls are empty modules.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import warnings
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import MagicMock

import torch

NUM_SENTINELS = 4
"""Nodes that SGLang numbers after the root: the ends of lists that full attention does not use."""

FALSE = (
    *("enable_hierarchical_cache", "enable_lmcache", "enable_hicache_storage", "enable_unified_cache_external_linker"),
    *("enable_hisparse", "enable_unified_memory", "enable_lora", "enable_lora_overlap_loading", "enable_overlap_mlx"),
    *("enable_priority_scheduling", "schedule_low_priority_values_first", "is_hybrid_swa", "is_hybrid_ssm"),
    *("require_mlp_sync", "enable_fpm", "gracefully_exit", "_engine_paused", "enable_skip_finishing_decode"),
    *("enable_continuous_input_polling", "abort_on_priority_when_disabled", "enable_pdmux", "enable_decode_hicache"),
    *("attn_dp_enabled", "enable_overlap", "is_mixed_chunk", "_sched_idled"),
)
NONE = (
    *("dllm_config", "min_free_slots_delayer", "dynamic_chunk_sizer", "lora_drainer", "hisparse_coordinator"),
    *("truncation_align_size", "decode_offload_manager", "mm_receiver", "scripted_scheduler_hook", "draft_worker"),
    *("max_queued_requests", "scheduler_stage_metrics", "metrics_collector", "cur_batch_for_debug"),
    *("draft_model_config", "sliding_window_size", "return_health_check_ipcs", "max_new_tokens_limit"),
    *("_pending_chunked_abort_req", "chunked_req", "last_batch"),
)
SINKS = (
    *("metrics_reporter", "beam_coordinator", "grammar_manager", "dp_attn_adapter", "ngram_embedding_manager"),
    *("load_inquirer", "load_publisher", "output_streamer", "tp_worker", "model_worker", "send_to_tokenizer"),
    *("ipc_channels", "invariant_checker", "pool_stats_observer", "profiler_manager"),
)
ZERO = (
    *("processed_tokens_counter", "prefill_decode_interval", "_prefill_decode_interval_remaining"),
    *("prefill_decode_interval_min_bs", "forward_ct"),
)
PARALLEL = {
    **dict.fromkeys(("attn_dp_enabled", "dcp_enabled"), False),
    **dict.fromkeys(("attn_tp_rank", "pp_rank", "tp_rank", "attn_cp_rank"), 0),
    "attn_tp_size": 1,
}


class MissingPackages(MetaPathFinder, Loader):
    """Makes empty modules of packages that SGLang imports and does not use here."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return a module for the known ones."""
        is_missing = name.partition(".")[0] in {"IPython", "torchvision", "gguf"}
        return ModuleSpec(name, self, is_package=True) if is_missing else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module."""
        return EmptyModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing."""


class Anything(type):
    """A class with every attribute."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(name, (), {})


class EmptyModule(ModuleType):
    """A module with every attribute."""

    __path__: ClassVar[list[str]] = []  # type: ignore[misc]
    __version__ = "0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(name, (), {})


class LoopLeft(Exception):
    """Raised where SGLang waits for messages, to leave its endless loop."""


def of(module: str) -> Any:
    """Return one of SGLang's modules."""
    return importlib.import_module(f"sglang.srt.{module}")


os.environ.setdefault("SGLANG_RUST_BUILD_MODE", "never")
warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
if folder := os.environ.get("LABENGINE_SGLANG"):
    sys.path.insert(0, folder)
sys.meta_path.append(MissingPackages())
scheduling = of("managers.scheduler")

VERSION = str(importlib.import_module("sglang.version").__version__)


class StandInScheduler(scheduling.Scheduler):  # type: ignore[name-defined]
    """SGLang's scheduler without its processes. core: begins each turn of the loop, and computes each batch."""

    def __init__(self, core: SglangCore) -> None:
        self.core = core

    def ingest_requests(self, stop_at_pause: bool = False) -> list[Any]:
        """Return nothing: messages are processed as they come."""
        self.core.begin_turn()
        return []

    def run_batch(self, batch: Any, pp_proxy_tensors: Any = None) -> Any:
        """Count the batch as computed."""
        return self.core.compute(batch)

    def on_idle(self) -> None:
        """Check and reset as SGLang does when nothing is left to run."""
        self.tree_cache.sanity_check()
        self.new_token_ratio_tracker.reset()

    def _nothing(self, *_: Any, **__: Any) -> None:
        pass

    launch_batch_sample_if_needed = _apply_war_barrier = publish_load_snapshot = _nothing
    _record_step_counters = send_abort_output = _release_aborted_request = _nothing


class SglangCore:
    """One scheduler with an empty cache, in its normal loop.

    settings: num_blocks, groups [[page size, None]], max_num_seqs, max_num_batched_tokens, new_token_ratio (0.7), and
    retract_steps (20). token_at: returns what a request samples at a position. Block n is page n + 1, because page 0
    is padding.
    """

    def __init__(self, settings: Mapping[str, Any], token_at: Callable[[str, int], int]) -> None:
        self.plan: dict[str, tuple[int, int]] = {}
        """Per request of the newest step: the first computed position, and the number of tokens."""
        self.after_call: Callable[[str], object] = lambda call: None
        """Called after each call of the scheduler: add, schedule, update, abort."""
        self._settings, self.page_size = settings, settings["groups"][0][0]
        self._token_at = token_at
        self._prompts: dict[str, list[int]] = {}
        self._batch: Any = None
        """The batch of the newest turn."""
        self._num_turns = 0
        """Turns of the loop before it is left."""
        self._publish()
        self.scheduler: Any = StandInScheduler(self)
        self._set_up()

    # -- setting up ----------------------------------------------------------------------------------------------------

    def _publish(self) -> None:
        settings = self._settings
        scheduling.envs.SGLANG_INIT_NEW_TOKEN_RATIO.set(settings.get("new_token_ratio", 0.7))
        scheduling.envs.SGLANG_RETRACT_DECODE_STEPS.set(settings.get("retract_steps", 20))
        context = of("runtime_context")
        context.get_context().override_server_args(
            device="cpu",
            page_size=self.page_size,
            attention_backend="torch_native",
            chunked_prefill_size=settings["max_num_batched_tokens"] or -1,
            disable_overlap_schedule=True,
            schedule_policy="fcfs",
        ).install()
        context.get_parallel()._stamp.update(PARALLEL)
        context.get_parallel()._overrides.update(pp_max_micro_batch_size=settings["max_num_seqs"])

    def _set_up(self) -> None:
        s, settings = self.scheduler, self._settings
        for names, value in ((FALSE, False), (NONE, None), (ZERO, 0)):
            vars(s).update(dict.fromkeys(names, value))
        vars(s).update({name: MagicMock(name=name) for name in SINKS})
        s.beam_coordinator.pending_member_rows = lambda *_: 0
        s.beam_coordinator.commit_decode = lambda *_: set()
        s.grammar_manager.has_waiting_grammars = lambda: False
        s.dp_attn_adapter.maybe_prepare_mlp_sync_batch = lambda batch, **_: batch
        s.dp_attn_adapter.maybe_convert_decode_to_extend = lambda batch: batch
        s.ngram_embedding_manager.prepare_for_forward = lambda batch, **_: batch
        s.tp_worker.model_runner.prefill_aware_swa = False
        s.page_size, s.device, s.is_generation = self.page_size, "cpu", True
        s.spec_algorithm = of("speculative.spec_info").SpeculativeAlgorithm.from_string(None)
        s.disaggregation_mode = scheduling.DisaggregationMode.NULL
        s.model_config = SimpleNamespace(vocab_size=VOCABULARY, is_encoder_decoder=False, is_multimodal=False)
        vars(s.model_config).update(hf_eos_token_id=None, think_end_id=None, self_opened_think_start_ids=None)
        s.max_running_requests, s.max_prefill_tokens = settings["max_num_seqs"], 16384
        s.chunked_prefill_size, s.schedule_policy = settings["max_num_batched_tokens"], "fcfs"
        s.max_total_num_tokens = settings["num_blocks"] * self.page_size
        s.max_req_len = s.max_total_num_tokens - 1
        s.priority_scheduling_preemption_threshold = 10
        s.running_batch = of("managers.schedule_batch").ScheduleBatch(reqs=[], batch_is_full=False)
        s.waiting_queue, s.result_queue = [], scheduling.deque()
        self._make_cache()
        scheduling.Scheduler.init_schedule_policy(s)
        self._make_processor()

    def _make_cache(self) -> None:
        s, settings, size = self.scheduler, self._settings, self.page_size
        num_tokens = settings["num_blocks"] * size
        allocators, unified = of("mem_cache.allocator"), of("mem_cache.unified_radix_cache")
        kinds = of("mem_cache.unified_cache.components").ComponentType
        made = torch.float16, "cpu", MagicMock(name="KV pool")
        rows = of("mem_cache.memory_pool").ReqToTokenPool(settings["max_num_seqs"], num_tokens + 8, "cpu", False)
        if size == 1:
            allocator = allocators.TokenToKVPoolAllocator(num_tokens, *made, need_sort=False)
        else:
            allocator = allocators.PagedTokenToKVPoolAllocator(num_tokens, size, *made, need_sort=False)
        s.req_to_token_pool, s.token_to_kv_pool_allocator = rows, allocator
        s.tree_cache = unified.UnifiedRadixCache(
            of("mem_cache.cache_init_params").CacheInitParams(
                disable=False,
                req_to_token_pool=rows,
                token_to_kv_pool_allocator=allocator,
                page_size=size,
                eviction_policy="lru",
                tree_core_backend="python",
                tree_components=(kinds.FULL,),
                chunked_prefill_size=settings["max_num_batched_tokens"],
            )
        )

    def _make_processor(self) -> None:
        s, sink = self.scheduler, MagicMock(name="sink")
        sink.num_generated_tokens = sink.forward_ct_decode = 0
        module = of("managers.scheduler_components.batch_result_processor")
        s.batch_result_processor = module.SchedulerBatchResultProcessor(
            is_generation=True,
            disaggregation_mode=s.disaggregation_mode,
            enable_overlap=False,
            enable_overlap_mlx=False,
            model_config=s.model_config,
            token_to_kv_pool_allocator=s.token_to_kv_pool_allocator,
            tree_cache=s.tree_cache,
            hisparse_coordinator=None,
            req_to_token_pool=s.req_to_token_pool,
            decode_offload_manager=None,
            metrics_collector=sink,
            metrics_reporter=sink,
            draft_worker=None,
            model_worker=SimpleNamespace(),
            logprob_result_processor=sink,
            output_streamer=sink,
            beam_coordinator=s.beam_coordinator,
            abort_request=s.abort_request,
        )

    # -- calls ---------------------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """True if no request waits or runs."""
        s = self.scheduler
        return not (s.waiting_queue or s.chunked_req or self.running())

    def add(self, name: str, prompt: Sequence[int], max_tokens: int, salt: str | None = None) -> None:
        """Queue a request; salts are not driven."""
        self.queue(name, prompt, max_tokens)
        self.after_call("add")

    def queue(self, name: str, prompt: Sequence[int], max_tokens: int, **options: Any) -> None:
        """Queue a request. options: ignore_eos, eos."""
        self._prompts[name] = list(prompt)
        sampling = of("sampling.sampling_params").SamplingParams(
            max_new_tokens=max_tokens, temperature=0, ignore_eos=options.get("ignore_eos", False)
        )
        sampling.normalize(None)
        req = of("managers.schedule_batch").Req(
            rid_of(name),
            "",
            array("q", prompt),
            sampling,
            eos_token_ids=options.get("eos"),
            vocab_size=VOCABULARY,
        )
        req.time_stats, req.tokenizer = MagicMock(name="time stats"), None
        self.scheduler.init_req_max_new_tokens(req)
        assert sampling.max_new_tokens == max_tokens, "SGLang would lower max_tokens"
        self.scheduler._add_request_to_queue(req)

    def abort(self, name: str) -> None:
        """Abort a request that has not ended. A prefill under way ends at once, instead of before the next step."""
        if name not in self.state()["requests"]:
            return
        self.cancel(name)
        self.scheduler.process_pending_chunked_abort()
        self._rest()
        self.after_call("abort")

    def cancel(self, name: str) -> None:
        """Ask SGLang to abort a request."""
        self.scheduler.abort_request(of("managers.io_struct").AbortReq(rid=rid_of(name)))

    def step(self) -> bool:
        """Go through the loop once. Returns False if nothing was scheduled."""
        if self.is_idle:
            return False
        self.plan = {}
        self.turn()
        was_planned = bool(self.plan)
        if not was_planned:
            self.after_call("schedule")
        self._rest()
        self.after_call("update")
        return was_planned

    def _rest(self) -> None:
        """Let an idle loop go round once more, as it does before another request comes."""
        if self.is_idle:
            self.turn()

    def turn(self) -> None:
        """Go through the loop once."""
        self._num_turns, self._batch = 1, None
        try:
            self.scheduler.event_loop_normal()
        except LoopLeft:
            return
        raise AssertionError("the loop ends only with LoopLeft")

    def begin_turn(self) -> None:
        """Leave the loop after the turn asked for."""
        if not self._num_turns:
            raise LoopLeft
        self._num_turns -= 1

    def compute(self, batch: Any) -> Any:
        """Note the batch, and sample its tokens."""
        s = self.scheduler
        s.forward_ct += 1
        batch.forward_iter, batch.launch_ts, batch.after_idle_gap, s._sched_idled = s.forward_ct, 0.0, False, False
        ends = batch.seq_lens_cpu.tolist()
        starts = batch.prefix_lens if batch.forward_mode.is_extend() else [end - 1 for end in ends]
        self._batch = batch
        self.plan = {
            name_of(req): (start, end - start) for req, start, end in zip(batch.reqs, starts, ends, strict=True)
        }
        self.after_call("schedule")
        sampled = [self.next_token(name_of(req), end) for req, end in zip(batch.reqs, ends, strict=True)]
        return of("managers.utils").GenerationBatchResult(
            logits_output=None, next_token_ids=torch.tensor(sampled), can_run_cuda_graph=False
        )

    def next_token(self, name: str, position: int) -> int:
        """Return what a request samples at a position; any token in the middle of its prompt."""
        return self._token_at(name, position)

    def content_of(self, name: str) -> list[Any]:
        """Return a request's prompt after an empty salt."""
        return [None, *self._prompts[name]]

    # -- state ---------------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return status and table of the open requests, the free pages, the tree, and the node that each request holds.

        A node is its number, its parent's, its locks, and its pages; the oldest node comes first.
        """
        s = self.scheduler
        running = self.running()
        held = running if s.chunked_req is None else [s.chunked_req, *running]
        return {
            "requests": {
                **{name_of(req): ["waiting", [[]]] for req in s.waiting_queue},
                **{name_of(r): ["waiting" if r is s.chunked_req else "running", [self.table_of(r)]] for r in held},
            },
            "free_queue": self.free_pages(),
            "tree": [node[:3] + node[4:] for node in self.nodes()],
            "holds": {name_of(r): node for r in held if (node := self.number_of(r.last_node))},
            "null_block": None,
        }

    def running(self) -> list[Any]:
        """Return the requests that decode, or will next."""
        s = self.scheduler
        found = list(s.running_batch.reqs)
        found += [req for req in (self._batch.reqs if self._batch else ()) if req not in found]
        return [req for req in found if not req.finished() and req is not s.chunked_req]

    def table_of(self, req: Any) -> list[int]:
        """Return the pages of a request."""
        rows = self.scheduler.req_to_token_pool.req_to_token
        return self._pages(rows[req.kv.req_pool_idx, : req.kv.kv_allocated_len].tolist())

    def free_pages(self) -> list[int]:
        """Return the free pages, the next one first."""
        return [page - 1 for page in self.scheduler.token_to_kv_pool_allocator.get_all_free_pages().tolist()]

    def nodes(self) -> list[list[Any]]:
        """Return each node's number, parent, locks, tokens and pages, the oldest first."""
        found = self._below(self.scheduler.tree_cache.tree_core.root_node)
        return [node for _, node in sorted(found, key=lambda one: one[0])]

    def _below(self, node: Any) -> Iterator[tuple[float, list[Any]]]:
        full = of("mem_cache.unified_cache.components").ComponentType.FULL
        for child in node.children.values():
            data = child.component_data[full]
            tokens, pages = list(child.key.raw_token_ids()), self._pages(data.value.tolist())
            numbers = [self.number_of(child.id), self.number_of(node.id)]
            yield child.last_access_time, [*numbers, data.lock_ref, tokens, pages]
            yield from self._below(child)

    def number_of(self, node_id: int) -> int:
        """Return a node's number, counted from the root."""
        first = int(self.scheduler.tree_cache.tree_core.root_node.id) + NUM_SENTINELS
        return max(0, node_id - first)

    def _pages(self, slots: Sequence[int]) -> list[int]:
        return [slot // self.page_size - 1 for slot in slots[:: self.page_size]]


VOCABULARY = 1 << 20
"""More than any token here."""


def rid_of(name: str) -> str:
    """Return SGLang's name of a request: its aborts go by the beginning of a name."""
    return f"{int(name):04d}"


def name_of(req: Any) -> str:
    """Return a request's name."""
    return str(int(req.rid))


CORE = SglangCore
"""The engine that the finder drives."""

DECIDED_BY = {
    "RequestAdded": "Scheduler._add_request_to_queue",
    "PrefixHit": "UnifiedRadixCache.match_prefix",
    "RequestScheduled": "Scheduler.get_next_batch_to_run",
    "NodeInserted": "UnifiedRadixCache.insert",
    "BlockCached": "UnifiedRadixCache.insert",
    "NodeLocked": "UnifiedRadixCache.lock",
    "NodeUnlocked": "UnifiedRadixCache.unlock",
    "NodeEvicted": "UnifiedRadixCache._evict",
    "BlockEvicted": "UnifiedRadixCache._evict",
    "RequestPreempted": "ScheduleBatch.retract_decode",
}
"""The method that decides each kind of event."""
