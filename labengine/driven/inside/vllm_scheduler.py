"""vLLM's own scheduler and KV cache without a model: requests are added, steps taken, tokens sampled by position."""

from __future__ import annotations

import atexit
import functools
import json
import logging
import math
import shutil
import tempfile
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import vllm
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    KVTransferConfig,
    ModelConfig,
    SchedulerConfig,
    SpeculativeConfig,
    VllmConfig,
)
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorMetadata, SupportsHMA
from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.encoder_cache_manager import EncoderCacheManager
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
    SlidingWindowSpec,
)
from vllm.v1.outputs import DraftTokenIds, KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

logging.getLogger("vllm").setLevel(logging.ERROR)
kv_cache_utils.init_none_hash(sha256)

VERSION = str(vllm.__version__)
MAX_MODEL_LEN = 8192
MODEL = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 50021,
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "torch_dtype": "float32",
}
"""A model's configuration, which the scheduler requires; nothing in it matters here."""


class VllmCore:
    """One scheduler with an empty cache.

    settings: num_blocks, groups [[block_size, window or None], or [block_size, None, "state", checkpoint alignment or
    None], ...], hash_block_size, max_num_seqs, max_num_batched_tokens, watermark, long_prefill_token_threshold,
    retention_interval, is_async, and transfers (of a PromptTier, or None). By default: policy "fcfs", max_model_len
    MAX_MODEL_LEN, speculation None (or [most drafts, kind of drafter]). token_at: returns what a request samples at a
    position.
    """

    def __init__(self, settings: Mapping[str, Any], token_at: Callable[[str, int], int]) -> None:
        self.scheduler = new_scheduler(json.dumps(settings))
        self.requests: dict[str, Any] = {}
        self.plan: dict[str, tuple[int, int]] = {}
        """Per request of the newest planned step: the first computed position, and the number of tokens."""
        self.after_call: Callable[[str], object] = lambda call: None
        """Called after each call of the scheduler: add, schedule, update, draft, abort, reset."""
        self._token_at = token_at
        self._hasher = kv_cache_utils.get_request_block_hasher(settings["hash_block_size"], sha256)
        self._in_flight: deque[tuple[Any, list[bool]]] = deque()
        self._num_in_flight = 2 if settings["is_async"] else 1

    @property
    def is_idle(self) -> bool:
        """True if no request waits or runs, and every step is booked."""
        return not self._in_flight and not self.scheduler.has_requests()

    def add(
        self,
        name: str,
        prompt: Sequence[int],
        max_tokens: int,
        salt: str | None = None,
        *,
        priority: int = 0,
        arrival: int | None = None,
        adapter: Sequence[Any] | None = None,
        images: Sequence[Sequence[Any]] = (),
        unread: bool = False,
    ) -> None:
        """Queue a request.

        arrival: its place in the order of arrival, its number by default. adapter: [name, number, path]. images:
        [[start, length, identifier], ...]. unread: True if it reads no cached prefix.
        """
        self.requests[name] = request = Request(
            request_id=name,
            prompt_token_ids=list(prompt),
            sampling_params=SamplingParams(
                max_tokens=max_tokens, ignore_eos=True, temperature=0.0, skip_reading_prefix_cache=unread or None
            ),
            pooling_params=None,
            arrival_time=float(len(self.requests) if arrival is None else arrival),
            mm_features=[_image(*image) for image in images],
            lora_request=LoRARequest(*adapter) if adapter else None,
            cache_salt=salt,
            priority=priority,
            block_hasher=self._hasher,
        )
        self.scheduler.add_request(request)
        self.after_call("add")

    def step(self) -> bool:
        """Do as EngineCore does in a step: schedule ahead while there is room, else book the oldest step.

        Return False if nothing was scheduled or booked.
        """
        if self.is_idle:
            return False
        if self.scheduler.has_requests():
            plan = self.scheduler.schedule()
            samples = [not self.requests[name].is_prefill_chunk for name in plan.num_scheduled_tokens]
            self._in_flight.append((plan, samples))
            self.plan = {
                name: (self.requests[name].num_computed_tokens - num_tokens, num_tokens)
                for name, num_tokens in plan.num_scheduled_tokens.items()
            }
            self.after_call("schedule")
            if len(self._in_flight) < self._num_in_flight and plan.total_num_scheduled_tokens:
                return True
        return self._book(*self._in_flight.popleft())

    def _book(self, plan: Any, samples: Sequence[bool]) -> bool:
        names = list(plan.num_scheduled_tokens)
        sampled = [
            self._sampled(name, plan.scheduled_spec_decode_tokens.get(name, ())) if has_token else []
            for name, has_token in zip(names, samples, strict=True)
        ]
        output = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=sampled,
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
        )
        tier = self.scheduler.connector
        if tier is not None:
            output.kv_connector_output = tier.transferred(plan.kv_connector_metadata)
        self.scheduler.update_from_output(plan, output)
        self.after_call("update")
        return bool(names) or (tier is not None and tier.is_busy)

    def _sampled(self, name: str, drafts: Sequence[int]) -> list[int]:
        """Return a request's tokens up to the first that its draft does not have, or one after all drafts."""
        position = self.requests[name].num_tokens
        tokens = [self._token_at(name, position)]
        for draft in drafts:
            if draft != tokens[-1]:
                break
            tokens.append(self._token_at(name, position + len(tokens)))
        return tokens

    def draft(self, drafts: Mapping[str, list[int]]) -> None:
        """Give requests guesses of their next tokens, as the worker does after a step."""
        self.scheduler.update_draft_token_ids(DraftTokenIds(list(drafts), list(drafts.values())))
        self.after_call("draft")

    def abort(self, name: str) -> None:
        """Abort a request that has not ended."""
        if name in self.scheduler.requests:
            self.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)
            self.after_call("abort")

    def reset(self) -> None:
        """Reset the prefix cache; do nothing while a request holds blocks."""
        self.scheduler.reset_prefix_cache()
        self.after_call("reset")

    def content_of(self, name: str) -> list[Any]:
        """Return a request's salt and its prompt."""
        request = self.requests[name]
        return [request.cache_salt, *request.prompt_token_ids]

    def state(self) -> dict[str, Any]:
        """Return the engine's state in plain numbers.

        Status and tables of the known requests, reference counts, the free queue, the cached blocks, and the blocks
        that are freed once the steps under way have ended.
        """
        manager = self.scheduler.kv_cache_manager
        pool = manager.block_pool
        return {
            "requests": {
                name: [request.status.name.lower(), [*map(list, manager.get_block_ids(name))]]
                for name, request in self.scheduler.requests.items()
            },
            "ref_counts": [0, *(block.ref_cnt for block in pool.blocks[1:])],
            "free_queue": [block.block_id for block in pool.free_block_queue.get_all_free_blocks()],
            "cached": [block.block_id for block in pool.blocks if block.block_hash is not None],
            "deferred": [block.block_id for _, blocks in self.scheduler.deferred_frees for block in blocks],
        }


class TransferMetadata(KVConnectorMetadata):
    """Names of the requests whose loads, and of those whose sends, begin with a step."""

    def __init__(self, loads: list[str], sends: list[str]) -> None:
        self.loads, self.sends = loads, sends


class PromptTier(KVConnectorBase_V1, SupportsHMA):
    """A connector without a store: it has the full blocks of every prompt, and reports when transfers end.

    transfers: [steps of a load (0: at once), steps of sending a finished request's blocks (0: not sent), one of how
    many loads fails (0: none), one of how many requests is told to ask again once (0: none)].
    """

    def __init__(self, config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(config, role, kv_cache_config)
        transfers = config.kv_transfer_config.kv_connector_extra_config["transfers"]
        self._load_steps, self._send_steps, self._fails, self._asks = transfers
        self._step_size = math.lcm(*(group.kv_cache_spec.block_size for group in kv_cache_config.kv_cache_groups))
        self._new = TransferMetadata([], [])
        self._loading: dict[str, int] = {}
        self._sending: dict[str, int] = {}
        self._num_loads = 0
        self._known: set[str] = set()

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        """Return the tokens that it has after the local hit, and True if they come late; None to be asked again."""
        if request.request_id not in self._known:
            self._known.add(request.request_id)
            if self._asks and len(self._known) % self._asks == 0:
                return None, False
        num_held = (request.num_prompt_tokens - 1) // self._step_size * self._step_size
        num_tokens = max(0, num_held - num_computed_tokens)
        return num_tokens, bool(num_tokens and self._load_steps)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Begin a late load with the next step."""
        if num_external_tokens and self._load_steps:
            self._new.loads.append(request.request_id)

    def build_connector_meta(self, scheduler_output: Any) -> TransferMetadata:
        """Return the transfers that begin with this step."""
        found, self._new = self._new, TransferMetadata([], [])
        return found

    def request_finished_all_groups(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        """Send the blocks of a finished request; they are freed later."""
        is_sent = request.status is RequestStatus.FINISHED_LENGTH_CAPPED and self._send_steps > 0
        if is_sent:
            self._new.sends.append(request.request_id)
        return is_sent, None

    def transferred(self, metadata: TransferMetadata) -> KVConnectorOutput:
        """Return a worker's report after a step with this metadata."""
        self._loading |= dict.fromkeys(metadata.loads, self._load_steps)
        self._sending |= dict.fromkeys(metadata.sends, self._send_steps)
        loaded, sent = _ended_of(self._loading), _ended_of(self._sending)
        failed = set()
        for name in loaded:
            self._num_loads += 1
            if self._fails and self._num_loads % self._fails == 0:
                failed.add(name)
        return KVConnectorOutput(finished_sending=sent, finished_recving=loaded, failed_recving=failed)

    @property
    def is_busy(self) -> bool:
        """True while a transfer is under way."""
        return bool(self._loading or self._sending or self._new.loads or self._new.sends)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Do nothing, because there is no KV."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Do nothing, because there is no KV."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """Do nothing, because there is no KV."""

    def wait_for_save(self) -> None:
        """Do nothing, because there is no KV."""


class SortedNames(set[str]):
    """A set with an order: vLLM frees sent requests in the order of its set, which is another in each process."""

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(super().__iter__()))


def _ended_of(transfers: dict[str, int]) -> set[str]:
    """Count one step of each transfer; remove the finished ones and return them."""
    for name in transfers:
        transfers[name] -= 1
    found = SortedNames(name for name, steps in transfers.items() if steps <= 0)
    for name in found:
        del transfers[name]
    return found


CORE = VllmCore
"""The engine that the finder drives."""


def new_scheduler(settings: str) -> Any:
    """Return an empty scheduler for settings, which are JSON."""
    config, kv_cache, sizes = _configs(settings)
    scheduler = (AsyncScheduler if config.scheduler_config.async_scheduling else Scheduler)(
        vllm_config=config, kv_cache_config=kv_cache, structured_output_manager=StructuredOutputManager(config), **sizes
    )
    scheduler.encoder_cache_manager = EncodedImages(cache_size=0)
    return scheduler


class EncodedImages(EncoderCacheManager):
    """An encoder cache that has all images, because there is no encoder."""

    def check_and_update_cache(self, request: Any, input_id: int) -> bool:
        """Return True: the image need not be encoded."""
        return True


@functools.lru_cache(maxsize=64)
def _configs(text: str) -> tuple[VllmConfig, KVCacheConfig, dict[str, int]]:
    settings = json.loads(text)
    num_drafts, drafter = settings.get("speculation") or (0, "")
    max_model_len = settings.get("max_model_len") or MAX_MODEL_LEN
    step_size = math.lcm(*(size for size, *_ in settings["groups"]))
    state_size = next((size for size, _, *of_states in settings["groups"] if of_states), None)
    cache = CacheConfig(block_size=state_size or step_size, cache_dtype="auto", enable_prefix_caching=True)
    cache.num_gpu_blocks = settings["num_blocks"]
    limits = SchedulerConfig(
        max_num_seqs=settings["max_num_seqs"],
        max_num_batched_tokens=settings["max_num_batched_tokens"],
        max_model_len=max_model_len,
        enable_chunked_prefill=True,
        is_encoder_decoder=False,
        async_scheduling=False,
        policy=settings.get("policy", "fcfs"),
        watermark=settings["watermark"],
        long_prefill_token_threshold=settings["long_prefill_token_threshold"],
    )
    tier = None
    if settings["transfers"]:
        tier = KVTransferConfig(
            kv_connector="PromptTier",
            kv_connector_module_path=__name__,
            kv_role="kv_both",
            kv_load_failure_policy="recompute",
            kv_connector_extra_config={"transfers": settings["transfers"]},
        )
    config = VllmConfig(
        model_config=_model(max_model_len),
        scheduler_config=limits,
        cache_config=cache,
        device_config=DeviceConfig("cpu"),
        kv_transfer_config=tier,
    )
    config.scheduler_config.async_scheduling = settings["is_async"]
    if state_size:
        config.cache_config.mamba_cache_mode = "align"
    if num_drafts:
        config.speculative_config = _speculation(num_drafts, drafter)
    kv_cache = KVCacheConfig(
        num_blocks=settings["num_blocks"],
        kv_cache_tensors=[],
        kv_cache_groups=[
            KVCacheGroupSpec([f"layer.{number}"], _spec(num_drafts, *group))
            for number, group in enumerate(settings["groups"])
        ],
        prefix_cache_retention_interval=settings["retention_interval"],
    )
    return config, kv_cache, {"block_size": step_size, "hash_block_size": settings["hash_block_size"]}


def _spec(num_drafts: int, block_size: int, window: int | None, kind: str = "", alignment: int | None = None) -> Any:
    """Return a group's layers."""
    shape: dict[str, Any] = {"block_size": block_size, "num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
    if kind != "state":
        return FullAttentionSpec(**shape) if window is None else SlidingWindowSpec(sliding_window=window, **shape)
    return MambaSpec(
        block_size,
        shapes=((1,),),
        dtypes=(torch.float32,),
        mamba_cache_mode="align",
        num_speculative_blocks=num_drafts,
        num_prefill_checkpoint_blocks=int(alignment is not None),
        prefill_checkpoint_alignment=alignment,
    )


def _speculation(num_drafts: int, drafter: str) -> SpeculativeConfig:
    """Return the configuration of n-grams, renamed: the scheduler asks for derived numbers, and there is no model."""
    config = SpeculativeConfig(
        method="ngram", num_speculative_tokens=num_drafts, prompt_lookup_max=2, prompt_lookup_min=1
    )
    if drafter != "lookup":
        config.method = drafter
        layers = types.SimpleNamespace(
            model_type="none", num_nextn_predict_layers=num_drafts if drafter == "mtp" else 1
        )
        config.draft_model_config = types.SimpleNamespace(hf_config=layers)
    return config


def _image(start: int, length: int, identifier: str) -> MultiModalFeatureSpec:
    place = PlaceholderRange(offset=start, length=length)
    return MultiModalFeatureSpec(data=None, modality="image", identifier=identifier, mm_position=place)


@functools.cache
def _model(max_model_len: int) -> ModelConfig:
    folder = tempfile.mkdtemp(prefix="no-weights-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    Path(folder, "config.json").write_text(json.dumps({**MODEL, "max_position_embeddings": max_model_len}))
    return ModelConfig(
        model=folder, tokenizer=folder, skip_tokenizer_init=True, dtype="float32", seed=0, max_model_len=max_model_len
    )


_model(MAX_MODEL_LEN)  # vLLM looks at the model's class in another process, which takes longer than a workload may
