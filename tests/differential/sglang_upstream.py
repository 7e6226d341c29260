"""Serves SGLang 0.5.23's own scheduler and tree to the tests, under an interpreter that has what it imports.

    cd tests && PYTHON -m differential.sglang_upstream WHEEL

WHEEL: the folder of the unpacked wheel. A JSON line {"workload": ..., "edition": "sglang"} in, the rows out. Upstream's
event_loop_normal runs with its PrefillAdder, ScheduleBatch, result processor, allocators, and tree (the Python core).
Stood in for: Scheduler.__init__ (its attributes are set here), the messages, the model, and what measures or streams.
Missing packages that no step here calls are empty modules. Page n + 1 is reported as block n: page 0 is padding.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
import warnings
from array import array
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import MagicMock

import torch

from differential.tree_workloads import NUM_STEPS

Row = dict[str, Any]

VERSION = "0.5.23"

NUM_SENTINELS = 4
"""Nodes that upstream numbers after the root: the ends of lists that full attention does not use."""

_FALSE = (
    *("enable_hierarchical_cache", "enable_lmcache", "enable_hicache_storage", "enable_unified_cache_external_linker"),
    *("enable_hisparse", "enable_unified_memory", "enable_lora", "enable_lora_overlap_loading", "enable_overlap_mlx"),
    *("enable_priority_scheduling", "schedule_low_priority_values_first", "is_hybrid_swa", "is_hybrid_ssm"),
    *("require_mlp_sync", "enable_fpm", "gracefully_exit", "_engine_paused", "enable_skip_finishing_decode"),
    *("enable_continuous_input_polling", "abort_on_priority_when_disabled", "enable_pdmux", "enable_decode_hicache"),
    *("attn_dp_enabled", "enable_overlap", "is_mixed_chunk", "_sched_idled"),
)
_NONE = (
    *("dllm_config", "min_free_slots_delayer", "dynamic_chunk_sizer", "lora_drainer", "hisparse_coordinator"),
    *("truncation_align_size", "decode_offload_manager", "mm_receiver", "scripted_scheduler_hook", "draft_worker"),
    *("max_queued_requests", "scheduler_stage_metrics", "metrics_collector", "cur_batch_for_debug"),
    *("draft_model_config", "sliding_window_size", "return_health_check_ipcs", "max_new_tokens_limit"),
    *("_pending_chunked_abort_req", "chunked_req", "last_batch"),
)
_SINKS = (
    *("metrics_reporter", "beam_coordinator", "grammar_manager", "dp_attn_adapter", "ngram_embedding_manager"),
    *("load_inquirer", "load_publisher", "output_streamer", "tp_worker", "model_worker", "send_to_tokenizer"),
    *("ipc_channels", "invariant_checker", "pool_stats_observer", "profiler_manager"),
)
_ZERO = (
    *("processed_tokens_counter", "prefill_decode_interval", "_prefill_decode_interval_remaining"),
    *("prefill_decode_interval_min_bs", "forward_ct"),
)
_PARALLEL = {
    **dict.fromkeys(("attn_dp_enabled", "dcp_enabled"), False),
    **dict.fromkeys(("attn_tp_rank", "pp_rank", "tp_rank", "attn_cp_rank"), 0),
    "attn_tp_size": 1,
}


class _Missing(MetaPathFinder, Loader):
    """Makes empty modules of packages that upstream imports and does not use here."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        is_missing = name.partition(".")[0] in {"IPython", "torchvision", "gguf"}
        return ModuleSpec(name, self, is_package=True) if is_missing else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Empty(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


class _Anything(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name, (), {})


class _Empty(ModuleType):
    __path__: ClassVar[list[str]] = []
    __version__ = "0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name, (), {})


class _Stop(Exception):
    """Raised where upstream waits for messages, to leave its endless loop."""


def of(module: str) -> Any:
    """Return one of upstream's modules."""
    return importlib.import_module(f"sglang.srt.{module}")


def import_upstream(folder: str) -> None:
    """Import SGLang from its unpacked wheel. Raises ValueError for another release."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    sys.path.insert(0, folder)
    sys.meta_path.append(_Missing())
    found = importlib.import_module("sglang.version").__version__
    if found != VERSION:
        raise ValueError(f"SGLang {VERSION} is compared, but {folder} has {found}")
    of("managers.scheduler")


class Run:
    """One run of upstream's normal loop."""

    def __init__(self, workload: dict[str, Any]) -> None:
        self.workload, self.page_size, self.step = workload, workload["page_size"], -1
        self.found: list[Row] = []
        self.scheduled: list[list[int]] = []
        self._outputs = {wanted["uid"]: wanted["output"] for wanted in workload["requests"]}
        self._last = max(one["step"] for one in [*workload["requests"], *workload["aborts"]])
        scheduling = of("managers.scheduler")
        scheduling.envs.SGLANG_INIT_NEW_TOKEN_RATIO.set(workload["new_token_ratio"])
        scheduling.envs.SGLANG_RETRACT_DECODE_STEPS.set(workload["retract_steps"])
        context = of("runtime_context")
        self._settings = context.get_context().override_server_args(
            device="cpu",
            page_size=self.page_size,
            attention_backend="torch_native",
            chunked_prefill_size=workload["chunked_prefill_size"] or -1,
            disable_overlap_schedule=True,
            schedule_policy="fcfs",
        )
        self._settings.install()
        context.get_parallel()._stamp.update(_PARALLEL)
        context.get_parallel()._overrides.update(pp_max_micro_batch_size=workload["max_running_req"])
        self.scheduler = self._class(scheduling.Scheduler)()
        self._set_up(scheduling)

    def rows(self) -> list[Row]:
        """What upstream holds after each iteration."""
        try:
            self.scheduler.event_loop_normal()
        except _Stop:
            return self.found
        finally:
            self._settings.restore()
        raise AssertionError("the loop ends only with _Stop")

    # -- setting up ----------------------------------------------------------------------------------------------------

    def _class(self, base: Any) -> Any:
        run = self

        class Scheduler(base):  # type: ignore[misc]
            def __init__(self) -> None:
                pass

            def ingest_requests(self, stop_at_pause: bool = False) -> list[Any]:
                run._begin_iteration()
                return []

            def run_batch(self, batch: Any, pp_proxy_tensors: Any = None) -> Any:
                return run._forward(batch)

            def on_idle(self) -> None:
                self.tree_cache.sanity_check()
                self.new_token_ratio_tracker.reset()

            def _nothing(self, *_: Any, **__: Any) -> None:
                pass

            launch_batch_sample_if_needed = _apply_war_barrier = publish_load_snapshot = _nothing
            _record_step_counters = send_abort_output = _release_aborted_request = _nothing

        return Scheduler

    def _set_up(self, scheduling: Any) -> None:
        s, workload = self.scheduler, self.workload
        for names, value in ((_FALSE, False), (_NONE, None), (_ZERO, 0)):
            vars(s).update(dict.fromkeys(names, value))
        vars(s).update({name: MagicMock(name=name) for name in _SINKS})
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
        s.model_config = SimpleNamespace(vocab_size=1000, is_encoder_decoder=False, is_multimodal=False)
        vars(s.model_config).update(hf_eos_token_id=None, think_end_id=None, self_opened_think_start_ids=None)
        s.max_running_requests, s.max_prefill_tokens = workload["max_running_req"], 16384
        s.chunked_prefill_size, s.schedule_policy = workload["chunked_prefill_size"], "fcfs"
        s.max_total_num_tokens = workload["num_pages"] * self.page_size
        s.max_req_len = s.max_total_num_tokens - 1
        s.priority_scheduling_preemption_threshold = 10
        s.running_batch = of("managers.schedule_batch").ScheduleBatch(reqs=[], batch_is_full=False)
        s.waiting_queue, s.result_queue = [], scheduling.deque()
        self._make_cache()
        scheduling.Scheduler.init_schedule_policy(s)
        self._make_processor()

    def _make_cache(self) -> None:
        s, workload, size = self.scheduler, self.workload, self.page_size
        num_tokens = workload["num_pages"] * size
        allocators, unified = of("mem_cache.allocator"), of("mem_cache.unified_radix_cache")
        kinds = of("mem_cache.unified_cache.components").ComponentType
        made = torch.float16, "cpu", MagicMock(name="KV pool")
        rows = of("mem_cache.memory_pool").ReqToTokenPool(workload["max_running_req"], num_tokens + 8, "cpu", False)
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
                chunked_prefill_size=workload["chunked_prefill_size"],
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

    # -- what upstream's loop calls ------------------------------------------------------------------------------------

    def _begin_iteration(self) -> None:
        if self.step >= 0:
            self.found.append(self._row())
            if self.step + 1 >= NUM_STEPS or (self.step >= self._last and not self._is_busy()):
                raise _Stop
        self.step += 1
        self.scheduled = []
        for wanted in self.workload["requests"]:
            if wanted["step"] == self.step:
                self._add(wanted)
        for abort in self.workload["aborts"]:
            if abort["step"] == self.step:
                self.scheduler.abort_request(of("managers.io_struct").AbortReq(rid=_rid(abort["uid"])))

    def _is_busy(self) -> bool:
        row = self.found[-1]
        return bool(row["waiting"] or row["chunked"] or row["running"])

    def _add(self, wanted: dict[str, Any]) -> None:
        sampling = of("sampling.sampling_params").SamplingParams(
            max_new_tokens=wanted["max_tokens"], temperature=0, ignore_eos=wanted.get("ignore_eos", False)
        )
        sampling.normalize(None)
        eos = self.workload["eos"]
        req = of("managers.schedule_batch").Req(
            _rid(wanted["uid"]),
            "",
            array("q", wanted["prompt"]),
            sampling,
            eos_token_ids={eos} if eos >= 0 else None,
            vocab_size=1000,
        )
        req.time_stats, req.tokenizer = MagicMock(name="time stats"), None
        self.scheduler.init_req_max_new_tokens(req)
        assert sampling.max_new_tokens == wanted["max_tokens"], "upstream would lower max_tokens"
        self.scheduler._add_request_to_queue(req)

    def _forward(self, batch: Any) -> Any:
        """Sample the workload's tokens."""
        s = self.scheduler
        s.forward_ct += 1
        batch.forward_iter, batch.launch_ts, batch.after_idle_gap, s._sched_idled = s.forward_ct, 0.0, False, False
        ends = batch.seq_lens_cpu.tolist()
        starts = batch.prefix_lens if batch.forward_mode.is_extend() else [end - 1 for end in ends]
        sampled = []
        for req, start, end in zip(batch.reqs, starts, ends, strict=True):
            output, place = self._outputs[int(req.rid)], end - len(req.origin_input_ids)
            sampled.append(output[place % len(output)] if place >= 0 else 0)
            self.scheduled.append([int(req.rid), start, end - start])
        return of("managers.utils").GenerationBatchResult(
            logits_output=None, next_token_ids=torch.tensor(sampled), can_run_cuda_graph=False
        )

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _row(self) -> Row:
        s = self.scheduler
        running = list(s.running_batch.reqs)
        running += [req for req in (s.last_batch.reqs if s.last_batch else ()) if req not in running]
        return {
            "scheduled": self.scheduled,
            "waiting": [[int(req.rid), req.is_retracted, len(req.output_ids)] for req in s.waiting_queue],
            "chunked": [] if s.chunked_req is None else [self._request(s.chunked_req)],
            "running": [self._request(r) for r in running if not r.finished() and r is not s.chunked_req],
            "free_pages": [page - 1 for page in s.token_to_kv_pool_allocator.get_all_free_pages().tolist()],
            "evictable": s.tree_cache.evictable_size(),
            "protected": s.tree_cache.protected_size(),
            "new_token_ratio": round(s.new_token_ratio_tracker.current, 6),
            "tree": [node for _, node in sorted(self._nodes(s.tree_cache.tree_core.root_node), key=lambda one: one[0])],
        }

    def _request(self, req: Any) -> list[Any]:
        kv = req.kv
        slots = self.scheduler.req_to_token_pool.req_to_token[kv.req_pool_idx, : kv.kv_allocated_len].tolist()
        numbers = kv.kv_committed_len, kv.cache_protected_len, len(req.output_ids)
        return [int(req.rid), *numbers, self._pages(slots)]

    def _nodes(self, node: Any) -> Iterator[tuple[float, list[Any]]]:
        full = of("mem_cache.unified_cache.components").ComponentType.FULL
        for child in node.children.values():
            data = child.component_data[full]
            pages = self._pages(data.value.tolist())
            tokens = list(child.key.raw_token_ids())
            about = [self._number(child), self._number(node), data.lock_ref, tokens, pages]
            yield child.last_access_time, about
            yield from self._nodes(child)

    def _number(self, node: Any) -> int:
        return max(0, node.id - self.scheduler.tree_cache.tree_core.root_node.id - NUM_SENTINELS)

    def _pages(self, slots: Sequence[int]) -> list[int]:
        return [slot // self.page_size - 1 for slot in slots[:: self.page_size]]


def _rid(uid: int) -> str:
    return f"{uid:04d}"  # ids match by prefix in upstream's aborts


def main() -> None:
    """Answer until stdin ends; whatever upstream prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    os.environ.setdefault("SGLANG_RUST_BUILD_MODE", "never")
    import_upstream(sys.argv[1])
    for line in sys.stdin:
        print(json.dumps(Run(json.loads(line)["workload"]).rows()), file=answers, flush=True)


if __name__ == "__main__":
    main()
