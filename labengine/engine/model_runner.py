"""Runs a model on a device: a step plan in, logits and tokens out. Independent of schedulers; makes no decisions."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import ClassVar, Self
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from labengine.config import ConfigError
from labengine.core.beams import Likeliest
from labengine.core.step_plan import StepPlan
from labengine.engine.attention import AttentionBackend
from labengine.engine.batch_sampling import BatchSampling
from labengine.engine.device import ComingBack, choose_device, choose_dtype, on_the_host
from labengine.engine.fingerprint import ModelFiles, fingerprint
from labengine.engine.forward import Forward
from labengine.engine.forward.choice import choose_forward, choose_packing, choose_staging
from labengine.engine.forward.graphs import Recorder, longest_context
from labengine.engine.forward.static_step import StaticStep
from labengine.engine.full_memory import AdviceWhenFull
from labengine.engine.interrupts import interrupts_allowed
from labengine.engine.kv_tensors import KVTensors, bytes_of_a_state
from labengine.engine.model import PagedModel
from labengine.engine.model_files.config_file import load_config
from labengine.engine.pool import PoolPlan
from labengine.engine.sampler import asks_the_host, likeliest_tokens, read, sample, sample_on_device, sampling_line
from labengine.engine.step_limits import StepLimits, checked_model_len
from labengine.engine.step_tensors import NewTokens, StepStaging, StepTensors
from labengine.engine.torch_import import load_torch
from labengine.engine.trial_memory import largest_plans, most_bytes
from labengine.engine.weights import Weights, check_weights, load_weights
from labengine.system.code_roles import Role, plays

plays(__name__, Role.COMPUTES)

_LOADED: WeakValueDictionary[Hashable, Weights] = WeakValueDictionary()
"""Weights in use, by files, config, device, dtype, graphs, backend and packing."""
_SHARING = RLock()
"""Held while weights gain or lose a user. Reentrant, because garbage collection may run a release inside a load."""


def _in_use(key: Hashable) -> Weights | None:
    weights = _LOADED.get(key)
    return weights if weights is not None and weights.is_used else None


@dataclass(frozen=True, slots=True)
class SampledEarly:
    """Tokens that the device samples from a plan's logits (see sampler.sample_on_device), and their copy."""

    plan: StepPlan
    logits: Tensor
    batch: BatchSampling
    tokens: Tensor
    coming: ComingBack


class ModelRunner:
    """A loaded model and its KV pool, whose blocks all of the model's KV-cache groups share.

    groups: the model's KV-cache groups, for the scheduler's block tables. Pass a subclass as Lab(runner=...); its seams
    are `step_tensors`, `static_step`, `attention`, and static_runner.py to replay decodes on a CPU.
    """

    static_step: ClassVar[type[StaticStep]] = StaticStep
    """The class of static tensors for recorded decodes: their rows, padding and width."""
    attention: ClassVar[type[AttentionBackend] | None] = None
    """The attention backend; None for the requested one, or the fastest possible."""

    def __init__(
        self,
        forward: Forward,
        weights: Weights,
        kv: KVTensors,
        pool: PoolPlan,
        limits: StepLimits,
        reasons: Mapping[str, str],
    ) -> None:
        """reasons: readable lines on device, dtype and others, by name."""
        self.model = weights.model
        self.kv_tensors = kv
        self.groups = pool.groups
        self._forward = forward
        self._weights, self._pool, self._limits = weights, pool, limits
        self._reasons = {**reasons, "kv_pool": pool.reason}
        if kv.device.type == "cuda":
            self._reasons["sampling"] = sampling_line(kv.device)
        self._staging = (
            choose_staging(forward, pool.groups, kv.device)
            if type(self).step_tensors is ModelRunner.step_tensors
            else StepStaging(pool.groups, kv.device)  # an override may compute with tensors, so all are on the device
        )
        self._sampled: SampledEarly | None = None
        """Tokens sampled early for the last step that `forward` returned."""
        self._launched: SampledEarly | None = None
        """The same for the step after it, for which `forward` has not been called yet."""
        self._batch = BatchSampling((), self.vocab_size)
        weights.join(self)

    @classmethod
    @on_the_host
    def load(
        cls,
        model_dir: Path,
        *,
        num_blocks: int | None,
        block_size: int,
        max_num_seqs: int = 16,
        max_num_batched_tokens: int = 2048,
        max_model_len: int | None = None,
        dtype: str | torch.dtype | None = None,
        device: str | torch.device | None = None,
        attention: str | None = None,
        cuda_graphs: bool = True,
        num_drafts: int = 0,
    ) -> Self:
        """Load weights and allocate the pool; every group's blocks have block_size tokens.

        Runners on the same files, device, dtype and backend share weights: a change in place affects all of them.

        num_blocks None: as many as fit (see pool_size.py); on a CPU the number that max_num_seqs requests can use, on a
        GPU the result of a trial of the largest steps, with max_num_seqs requests and max_num_batched_tokens.
        max_model_len: maximum positions of a request; None: the model's limit. dtype None: float32 on a CPU, bfloat16
        on a GPU that has it (see device.py). device None: a GPU if there is one. attention None: the fastest backend
        that can serve (see backend_choice.py). Without cuda_graphs every step runs module by module.
        num_drafts: maximum number of guesses that a step judges per request.
        Raises ConfigError for an unsupported model, dtype, device or backend, and for a pool that does not fit.
        """
        if attention is not None and cls.attention is not None:
            raise ConfigError(f"attention={attention!r}: omit it, because {cls.__name__} brings its own attention")
        files = ModelFiles(model_dir)
        config = load_config(model_dir)
        max_model_len = checked_model_len(max_model_len, config.max_model_len, model_dir.name)
        config = config.for_length(max_model_len)
        limits = StepLimits(max_num_seqs, max_num_batched_tokens, max_model_len, num_drafts)
        torch_device, device_reason = choose_device(device)
        torch_dtype, dtype_reason = choose_dtype(dtype, torch_device, fits_float16=config.fits_float16)
        with torch.device("meta"):
            model = PagedModel(config)
        check_weights(model, model_dir)
        pool = PoolPlan.planned(config, torch_device, torch_dtype, block_size, num_blocks, cls.attention or attention)
        reasons = {"device": device_reason, "dtype": dtype_reason}
        if torch_device.type == "cpu":
            reasons["torch_threads"] = load_torch()
        packing = choose_packing(pool.backend)
        key = (files.identities, config, torch_device, torch_dtype, cuda_graphs, pool.backend.name, packing)
        with _SHARING:
            if (in_use := _in_use(key)) is not None:
                return cls._on(in_use, pool, limits, reasons)
        load_weights(model, model_dir, torch_dtype, torch_device, packing)
        files.require_unchanged()
        weights = Weights(model, files, torch_device, torch_dtype, cuda_graphs)
        with _SHARING:
            weights = _in_use(key) or weights  # another thread may have loaded them in the meantime
            runner = cls._on(weights, pool, limits, reasons)
            _LOADED[key] = weights
        return runner

    @on_the_host
    def sibling(
        self,
        num_blocks: int | None,
        block_size: int,
        max_num_seqs: int,
        max_num_batched_tokens: int = 2048,
        max_model_len: int | None = None,
        num_drafts: int = 0,
    ) -> Self:
        """Return another runner on the same weights, with separate KV. Raises ConfigError like load."""
        max_model_len = checked_model_len(max_model_len, self.model.config.max_model_len, "the model")
        if self.model.config.for_length(max_model_len) != self.model.config:
            raise ConfigError(
                f"max_model_len={max_model_len} needs the model's other LongRoPE factors: open a new lab with "
                "it, which recomputes all KV"
            )
        limits = StepLimits(max_num_seqs, max_num_batched_tokens, max_model_len, num_drafts)
        weights, attention = self._weights, self.attention or self._pool.backend.name
        pool = PoolPlan.planned(weights.model.config, weights.device, weights.dtype, block_size, num_blocks, attention)
        pool = replace(pool, attention_reason=self._pool.attention_reason)
        return self._on(weights, pool, limits, self._reasons)

    @on_the_host
    def first_layers(
        self, num_layers: int, num_blocks: int | None, block_size: int, max_num_batched_tokens: int = 2048
    ) -> ModelRunner:
        """Return a runner of this model's first layers, on the same weights, with separate KV, for one request.

        It must be released before this one. Raises ConfigError like load.
        """
        weights = self._weights.first_layers(num_layers)
        limits = StepLimits(1, max_num_batched_tokens, self.max_model_len)
        attention = self.attention or self._pool.backend.name
        pool = PoolPlan.planned(weights.model.config, weights.device, weights.dtype, block_size, num_blocks, attention)
        return ModelRunner._on(weights, pool, limits, self._reasons)

    @classmethod
    def _on(
        cls,
        weights: Weights,
        pool: PoolPlan,
        limits: StepLimits,
        reasons: Mapping[str, str],
    ) -> Self:
        """Return a runner on loaded weights."""
        config = weights.model.config
        if pool.num_blocks is None:
            is_gpu = weights.device.type == "cuda"
            step_bytes = cls._step_bytes(weights, pool, limits, reasons) if is_gpu else 0
            pool = pool.sized(limits, step_bytes)
        assert pool.num_blocks is not None
        heads = (config.num_kv_heads, config.head_dim)
        kv = KVTensors(
            pool.num_blocks, pool.layer_groups, pool.block_size, *heads, weights.dtype, weights.device, config.states
        )
        forward = choose_forward(
            weights.model, kv, pool.groups, pool.backend, pool.attention_reason,
            limits if weights.cuda_graphs else None, cls.static_step, cls.recorder(kv.device),
        )  # fmt: skip
        return cls(forward, weights, kv, pool, limits, reasons)

    @classmethod
    def _step_bytes(cls, weights: Weights, pool: PoolPlan, limits: StepLimits, reasons: Mapping[str, str]) -> int:
        """Return the bytes that a runner needs beside weights and pool: graphs, largest forward pass and sampling."""
        pool = pool.for_trial(limits.max_model_len)
        assert pool.num_blocks is not None
        # The pool sized by this trial takes up to twice the share of the trial's pool.
        longest = longest_context(limits.max_model_len, pool.groups, 2 * pool.num_blocks)
        made: list[ModelRunner] = []

        def take_largest_steps() -> None:
            made.append(runner := cls._on(weights, pool, limits, reasons))
            for plan in largest_plans(pool.groups, limits, longest):
                with suppress(FloatingPointError):  # the prompt has no meaning; only the memory of the steps matters
                    runner.sample(plan, runner.forward(plan))

        try:
            return max(0, most_bytes(weights.device, take_largest_steps) - pool.num_blocks * pool.block_bytes)
        finally:
            for runner in made:
                runner._discard()

    def _discard(self) -> None:
        """Release everything but the weights, even if no other runner uses them."""
        self._weights.leave(self)
        self._forward.release()
        self.kv_tensors.release()
        if self.kv_tensors.device.type == "cuda":
            torch.cuda.empty_cache()

    @classmethod
    def recorder(cls, device: torch.device) -> Recorder | None:
        """Return the recorder of decodes for this device; None: CUDA graphs on a GPU, no recording elsewhere."""
        return None

    @cached_property
    def fingerprint(self) -> str:
        """32 hex digits for weights, dtype, groups and block size, by which another process finds saved KV.

        Reads the weights completely unless their digest is known. Raises ConfigError if they changed since loading.
        """
        weights, pool = self._weights, self._pool
        has_long_rope = any(rope.is_long for rope in self.model.config.ropes)
        return fingerprint(
            weights.files.digests, str(weights.dtype), pool.groups, pool.layer_groups, has_long_rope=has_long_rope
        )

    @property
    def is_asynchronous(self) -> bool:
        """True if `forward` returns before the device is done; the host is free until `sample` waits for it."""
        return self.kv_tensors.device.type == "cuda"

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Tokens that end a text, by generation_config.json, else config.json."""
        return self.model.config.eos_token_ids

    @property
    def num_layers(self) -> int:
        """Number of the model's layers, each with its KV or state."""
        return self.model.config.num_layers

    @property
    def max_model_len(self) -> int:
        """Maximum number of positions of a request: the requested one, or the model's limit."""
        return self._limits.max_model_len

    @property
    def vocab_size(self) -> int:
        """Number of token ids: 0 to vocab_size - 1."""
        return self.model.config.vocab_size

    def describe(self) -> dict[str, str]:
        """Return descriptions of model, device, dtype, attention and KV pool, each with its reason."""
        pool = f"{self._pool_line()} ({self._reasons['kv_pool']})"
        own = {} if type(self) is ModelRunner else {"runner": f"{type(self).__name__}, a subclass of ModelRunner"}
        if self.max_model_len < self.model.config.max_model_len:
            own["max_model_len"] = f"{self.max_model_len} of {self.model.config.max_model_len} positions (requested)"
        return {"model": self._model_line(), **own, **self._reasons, **self._forward.describe(), "kv_pool": pool}

    def forward(self, plan: StepPlan) -> Tensor:
        """Compute the plan's tokens; return logits float32 [len(plan.rows), vocab_size], rows in that order.

        The next step overwrites them. KV is written into the plan's slots only, so after an interrupt no other slot can
        hold garbage.
        """
        if not plan.scheduled:
            return torch.empty(0, self.vocab_size, device=self.kv_tensors.device)
        launched, self._launched = self._launched, None
        if launched is not None and launched.plan is plan:
            self._sampled = launched
            return launched.logits
        with interrupts_allowed(), self._device_made_current(), AdviceWhenFull(self.kv_tensors):
            logits = _row_per_token(plan, self._forward(self.step_tensors(plan.in_rows)))
            self._sampled = self._sampled_early(plan, logits) if self.is_asynchronous else None
            return logits

    def launch_ahead(self, plan: StepPlan, before: StepPlan) -> bool:
        """Launch the step after `before`, whose tokens `sample` has not returned yet; they stay on the device.

        plan: has UNSAMPLED for the tokens of `before`. A later `forward` of this plan returns its logits.
        Returns False without a launch if the host has to know the tokens, or to read the logits of `before` again.
        """
        sampled = self._sampled
        if sampled is None or sampled.plan is not before or type(self).step_tensors is not ModelRunner.step_tensors:
            return False
        if not plan.sampling or sampled.batch.has_top_p:
            return False
        if asks_the_host(self._sampling_of(plan), sampled.logits):
            return False
        with interrupts_allowed(), self._device_made_current(), AdviceWhenFull(self.kv_tensors):
            new = NewTokens(before, sampled.tokens[0])
            logits = _row_per_token(plan, self._forward(self._staging.step_tensors(plan, new)))
            self._launched = self._sampled_early(plan, logits)
        return True

    def step_tensors(self, plan: StepPlan) -> StepTensors:
        """Return a plan as tensors: token ids, positions, slots and block tables. The next step overwrites them.

        Raises ValueError if a table or a run is too short, or if a null entry would be read.
        """
        return self._staging.step_tensors(plan)

    def sample(self, plan: StepPlan, logits: Tensor) -> list[int]:
        """Return one token id per row of plan.rows. Raises FloatingPointError for NaN logits."""
        early, self._sampled = self._sampled, None
        with interrupts_allowed(), self._device_made_current(), AdviceWhenFull(self.kv_tensors):
            if early is not None and early.plan is plan and early.logits is logits:
                return read(early.coming.awaited(), plan.rows, logits)
            return sample(logits, plan.rows, self._forward.argmax(logits))

    @torch.inference_mode()
    def likeliest(self, plan: StepPlan, logits: Tensor, num_tokens: int) -> list[Likeliest]:
        """Return, per beam of plan.beams, its num_tokens likeliest next tokens with their log-probabilities."""
        with interrupts_allowed(), self._device_made_current(), AdviceWhenFull(self.kv_tensors):
            return likeliest_tokens(logits[[row for row, _ in plan.beams]], num_tokens)

    @torch.inference_mode()
    def _sampled_early(self, plan: StepPlan, logits: Tensor) -> SampledEarly | None:
        """Launch sampling right after the forward pass, so that the device is busy while the host schedules.

        None if `forward` or `sample` is overridden and may change the logits, or if sampling needs the host.
        """
        kind = type(self)
        if not plan.sampling:
            return None
        if (kind.forward, kind.sample) != (ModelRunner.forward, ModelRunner.sample):
            return None
        batch = self._sampling_of(plan)
        if asks_the_host(batch, logits):
            return None
        tokens = sample_on_device(logits, plan.rows, self._forward.argmax(logits), batch)
        return SampledEarly(plan, logits, batch, tokens, ComingBack(tokens))

    def _sampling_of(self, plan: StepPlan) -> BatchSampling:
        if not self._batch.serves(plan.rows):
            self._batch = BatchSampling(plan.rows, self.vocab_size)
        return self._batch

    def torch_modules(self) -> PagedModel:
        """Return the model as modules that compute; see Weights.torch_modules."""
        return self._weights.torch_modules()

    def kv(self, block_id: int, layer: int) -> tuple[Tensor, Tensor]:
        """Return copies of a block's K and V, each [block_size, num_kv_heads, head_dim]. Raises IndexError."""
        return self.kv_tensors.block(block_id, layer)

    def copy_block(self, group: int, block_id: int, into_block_id: int) -> None:
        """Copy a group's K and V in a block to another block, on the device. Raises IndexError."""
        with self._device_made_current():
            self.kv_tensors.copy_block(group, block_id, into_block_id)

    def read_block(self, group: int, block_id: int) -> dict[str, Tensor]:
        """Return CPU copies of a group's K and V in a block; see KVTensors. Raises IndexError."""
        return self.kv_tensors.read_block(group, block_id)

    def write_block(self, group: int, block_id: int, kv: Mapping[str, Tensor] | None) -> None:
        """Write a result of read_block, bit for bit. Raises IndexError, and ValueError for KV that does not fit."""
        if kv is None:
            raise ValueError(f"no KV to write to block {block_id}: it comes from a model without weights")
        self.kv_tensors.write_block(group, block_id, kv)

    def release(self) -> None:
        """Release the KV, and the weights unless another runner uses them. A second call has no effect."""
        with _SHARING:
            self._forward.release()
            if self._weights.leave(self) and not self._weights.are_borrowed:
                self.model.to("meta")
        self.kv_tensors.release()
        if self.kv_tensors.device.type == "cuda":
            torch.cuda.empty_cache()

    def _device_made_current(self) -> AbstractContextManager[object]:
        """Make the model's GPU the current device, on which Triton and graphs launch."""
        device = self.kv_tensors.device
        return torch.cuda.device(device) if device.type == "cuda" else nullcontext()

    def _model_line(self) -> str:
        millions = sum(parameter.numel() for parameter in self.model.parameters()) / 1e6
        return f"{self.model.config.model_type}, {self.num_layers} layers, {millions:,.0f} M parameters"

    def _pool_line(self) -> str:
        kv = self.kv_tensors
        size = f"{kv.num_blocks} blocks of {self.groups[0].block_size} tokens, {kv.num_bytes / 2**20:,.1f} MiB"
        if self.model.config.has_states:
            state_bytes = bytes_of_a_state(self._weights.dtype, self.model.config.states)
            size += f" ({kv.block_bytes / 2**10:,.1f} KiB per block, {state_bytes / 2**10:,.1f} of them for a state)"
        windows = [spec.window for spec in self.groups if spec.window is not None]
        if not windows:
            return size
        num_groups = len(self.groups)
        return f"{size}; {num_groups} groups, {len(windows)} of them with a window of {windows[0]}"


def _row_per_token(plan: StepPlan, logits: Tensor) -> Tensor:
    """Return logits with a row for each of plan.rows; a fork has its leader's."""
    return logits[plan.logits_rows] if plan.forks else logits
