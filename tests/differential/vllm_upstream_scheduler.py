"""Complete workloads on vLLM's synchronous Scheduler, without a model. Runs where vLLM is installed.

A workload has simulate's keys, and `streams` and `alphabet`, which say how requests go on; a row, see `Run.row`. A
request may have an `adapter`, and `images` [[start, length, identifier], ...], which only its hashes tell.
`tier`: an external tier, see vllm_upstream_tier.py; then `max_steps` ends the run, also when nothing moves.
"""

from __future__ import annotations

import atexit
import functools
import json
import math
import shutil
import tempfile
import types
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vllm.config import (
    CacheConfig,
    DeviceConfig,
    KVEventsConfig,
    ModelConfig,
    SchedulerConfig,
    SpeculativeConfig,
    VllmConfig,
)
from vllm.lora.request import LoRARequest
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from differential import vllm_upstream_pool as pool_rows
from differential.chance_drafts import ChanceDrafts
from differential.vllm_block_keys import images_of
from differential.vllm_upstream_tier import UpstreamTier

MAX_MODEL_LEN = 8192
MAX_STEPS = 20_000

LAYERS = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 50021,
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "max_position_embeddings": MAX_MODEL_LEN,
    "torch_dtype": "float32",
}
"""The scheduler asks for a model's configuration, and for nothing in it that matters here."""


def run_scheduler(workload: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row per step taken; RuntimeError when nothing moves any more."""
    return rows_of(Run(workload))


def rows_of(run: Run) -> list[dict[str, Any]]:
    """The rows of a run, as `run_scheduler` returns them."""
    workload = run.workload
    note_preemptions(run.scheduler, run.preempted)
    rows: list[dict[str, Any]] = []
    clock = 0
    while run.arrivals or run.scheduler.has_unfinished_requests():
        if not run.scheduler.has_unfinished_requests():
            clock = max(clock, run.arrivals[0][0])
        run.join(clock)
        rows.append(run.step(clock))
        if len(rows) == workload.get("max_steps"):
            break
        if workload.get("tier") is None and (
            len(rows) > MAX_STEPS or not (rows[-1]["scheduled"] or rows[-1]["preempted"] or run.arrivals)
        ):
            raise RuntimeError(f"vLLM does not get on at step {clock}")
        clock += 1
    return rows


class Run:
    """One workload under way."""

    labels_class = pool_rows.Labels

    def __init__(self, workload: Mapping[str, Any], scheduler_class: type[Scheduler] = Scheduler) -> None:
        self.workload = workload
        self._groups = pool_rows.groups_of(workload)
        hash_block_size = workload.get("hash_block_size") or min(group.block_size for group in self._groups)
        self._labels = self.labels_class(hash_block_size)
        self.scheduler = _scheduler(workload, self._groups, hash_block_size, scheduler_class)
        self._tier = UpstreamTier(workload["tier"]) if workload.get("tier") else None
        self.scheduler.connector = self._tier
        self._drafts = ChanceDrafts(**workload["speculation"]) if workload.get("speculation") else None
        self.requests: dict[str, Request] = {}
        self.preempted: list[int] = []
        numbered = enumerate(workload["requests"])
        self.arrivals = deque(sorted((wanted["step"], number) for number, wanted in numbered))

    def join(self, clock: int) -> None:
        """Add the requests whose time has come."""
        while self.arrivals and self.arrivals[0][0] <= clock:
            number = self.arrivals.popleft()[1]
            request = self.request(number)
            self.requests[str(number)] = request
            self._labels.learn(request)
            self.scheduler.add_request(request)

    def request(self, number: int) -> Request:
        """Return a request of the workload."""
        wanted = self.workload["requests"][number]
        adapter = wanted.get("adapter")
        request = Request(
            request_id=str(number),
            prompt_token_ids=list(wanted["prompt"]),
            sampling_params=SamplingParams(
                max_tokens=wanted["max_tokens"],
                ignore_eos=True,
                temperature=0.0,
                skip_reading_prefix_cache=wanted.get("skip_reading_prefix_cache"),
            ),
            pooling_params=None,
            cache_salt=wanted.get("salt"),
            lora_request=LoRARequest(adapter, 1, "/" + adapter) if adapter else None,
            priority=wanted.get("priority", 0),
            arrival_time=float(wanted.get("arrival", number)),
            mm_features=images_of(wanted.get("images", ())),
            block_hasher=self._labels.hasher,
        )
        request.mm_features = []  # hashed by now; a scheduler without a model has no encoder to compute them with
        return request

    def step(self, clock: int) -> dict[str, Any]:
        """Schedule, sample, update, and return the row."""
        self.preempted.clear()
        plan = self.scheduler.schedule()
        ids = list(plan.num_scheduled_tokens)
        output = ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={request_id: index for index, request_id in enumerate(ids)},
            sampled_token_ids=[
                self._sample(request_id, plan.scheduled_spec_decode_tokens.get(request_id, ())) for request_id in ids
            ],
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
            kv_connector_output=self._tier.landed() if self._tier else None,
        )
        self.scheduler.update_from_output(plan, output)
        if self._drafts is not None:
            self._draft([ids[i] for i, tokens in enumerate(output.sampled_token_ids) if tokens])
        for request_id in ids:
            self._labels.learn(self.requests[request_id])
        return self.row(clock, {int(request_id): n for request_id, n in plan.num_scheduled_tokens.items()})

    def _sample(self, request_id: str, drafts: Sequence[int]) -> list[int]:
        """Tokens for a request that this step brings to its end (vLLM has counted the step's tokens already): one, and
        one more for each draft that equals it.
        """
        request = self.requests[request_id]
        if request.num_computed_tokens < request.num_tokens:
            return []
        tokens = [self.token_at(request_id, request.num_tokens)]
        for draft in drafts:
            if draft != tokens[-1]:
                break
            tokens.append(self.token_at(request_id, request.num_tokens + len(tokens)))
        return tokens

    def _draft(self, request_ids: list[str]) -> None:
        """Guess what follows, as the worker does after a step."""
        texts = [list(self.requests[request_id].all_token_ids) for request_id in request_ids]
        guesses = [list(self._drafts.propose(text, self._drafts.num_drafts)) for text in texts]
        self.scheduler.update_draft_token_ids(DraftTokenIds(request_ids, guesses))

    def token_at(self, request_id: str, position: int) -> int:
        """Return the token that a request samples at a position."""
        stream = int(request_id) % self.workload.get("streams", 1 << 30)
        return int((stream * 7919 + position * 104729) % self.workload.get("alphabet", 50021))

    def row(self, clock: int, scheduled: dict[int, int]) -> dict[str, Any]:
        """requests: {id: [status, number of tokens, computed tokens, block tables]}; lists keep the engine's order."""
        pool = self.scheduler.kv_cache_manager.block_pool
        return {
            "step": clock,
            "scheduled": [[request_id, num_tokens] for request_id, num_tokens in scheduled.items()],
            "preempted": list(self.preempted),
            "finished": [request_id for request_id in scheduled if self.requests[str(request_id)].is_finished()],
            "requests": {request_id: self._request_row(request_id, r) for request_id, r in self.requests.items()},
            "ref_counts": pool_rows.ref_counts(pool),
            "free_queue": pool_rows.free_queue(pool),
            "cached": pool_rows.cached(pool, self._labels),
        }

    def _request_row(self, request_id: str, request: Request) -> list[Any]:
        status = "finished" if request.is_finished() else request.status.name.lower()
        if status == "waiting_for_remote_kvs":
            status = "waiting"
        computed = 0 if status in ("finished", "waiting") else request.num_computed_tokens
        return [status, request.num_tokens, computed, pool_rows.tables(self.scheduler.kv_cache_manager, request_id)]


def _scheduler(
    workload: Mapping[str, Any],
    groups: list[pool_rows.Group],
    hash_block_size: int,
    scheduler_class: type[Scheduler],
) -> Scheduler:
    step_size = math.lcm(*(group.block_size for group in groups))
    state_sizes = [group.block_size for group in groups if group.keeps_states]
    config = _config(workload, state_sizes[0] if state_sizes else step_size)
    if state_sizes:
        config.cache_config.mamba_cache_mode = "align"
    kv_cache_config = KVCacheConfig(
        num_blocks=workload["num_blocks"],
        kv_cache_tensors=[],
        kv_cache_groups=pool_rows.group_specs(groups),
        prefix_cache_retention_interval=workload.get("retention_interval"),
    )
    config.scheduler_config.async_scheduling = scheduler_class is not Scheduler
    return scheduler_class(
        vllm_config=config,
        kv_cache_config=kv_cache_config,
        structured_output_manager=StructuredOutputManager(config),
        block_size=step_size,
        hash_block_size=hash_block_size,
    )


def _config(workload: Mapping[str, Any], block_size: int) -> VllmConfig:
    cache = CacheConfig(block_size=block_size, cache_dtype="auto", enable_prefix_caching=True)
    cache.num_gpu_blocks = workload["num_blocks"]
    limits = SchedulerConfig(
        max_num_seqs=workload["max_num_seqs"],
        max_num_batched_tokens=workload["max_num_batched_tokens"],
        max_model_len=workload.get("max_model_len") or MAX_MODEL_LEN,
        enable_chunked_prefill=True,
        is_encoder_decoder=False,
        async_scheduling=False,
        policy=workload.get("policy", "fcfs"),
        watermark=workload.get("watermark") or 0.0,
        long_prefill_token_threshold=workload.get("long_prefill_token_threshold") or 0,
    )
    events = workload.get("kv_events")
    config = VllmConfig(
        model_config=_model(workload.get("max_model_len") or MAX_MODEL_LEN),
        scheduler_config=limits,
        cache_config=cache,
        device_config=DeviceConfig("cpu"),
        kv_events_config=KVEventsConfig(enable_kv_cache_events=True, **events) if events else None,
    )
    if workload.get("speculation"):
        config.speculative_config = _speculation(workload["speculation"])
    kept = config.scheduler_config
    asked = (workload["max_num_seqs"], workload["max_num_batched_tokens"], False, True)
    if asked != (kept.max_num_seqs, kept.max_num_batched_tokens, kept.async_scheduling, kept.enable_chunked_prefill):
        raise ValueError(f"vLLM changed what the workload asked for: {kept}")
    return config


def _speculation(asked: Mapping[str, Any]) -> SpeculativeConfig:
    """An n-gram configuration, renamed: the scheduler asks for derived numbers only, and there is no second model."""
    num_drafts, method = asked["num_drafts"], {"lookup": "ngram"}.get(asked["drafter"], asked["drafter"])
    config = SpeculativeConfig(
        method="ngram", num_speculative_tokens=num_drafts, prompt_lookup_max=2, prompt_lookup_min=1
    )
    config.method = method
    if method != "ngram":
        num_modules = num_drafts if method == "mtp" else 1
        layers = types.SimpleNamespace(model_type="none", num_nextn_predict_layers=num_modules)
        config.draft_model_config = types.SimpleNamespace(hf_config=layers)
    return config


@functools.cache
def _model(max_model_len: int) -> ModelConfig:
    folder = tempfile.mkdtemp(prefix="no-weights-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    Path(folder, "config.json").write_text(json.dumps({**LAYERS, "max_position_embeddings": max_model_len}))
    return ModelConfig(
        model=folder, tokenizer=folder, skip_tokenizer_init=True, dtype="float32", seed=0, max_model_len=max_model_len
    )


def note_preemptions(scheduler: Scheduler, preempted: list[int]) -> None:
    """The plan names the preempted as a set; their order is seen only as they go."""
    preempt = scheduler._preempt_request

    def noting(request: Request, *args: Any, **kwargs: Any) -> None:
        preempted.append(int(request.request_id))
        preempt(request, *args, **kwargs)

    scheduler._preempt_request = noting
