"""nano-vLLM's interface: with `from labengine.compat.nanovllm import LLM, SamplingParams` a script runs in a lab.

The engine takes nano-vLLM's decisions (edition nano-vllm). For another edition use LLM(path, edition="nano-vllm+243"),
or set LLM.edition = "nano-vllm+243" before you run a script that cannot be changed. The lab is `llm.lab`:
llm.lab.show() draws it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from os import PathLike
from time import perf_counter
from typing import Any

from labengine.config import ConfigError, checked_int
from labengine.events import RequestAdded, RequestFinished, RequestScheduled, StepStarted
from labengine.lab import Lab
from labengine.record.snapshot import Snapshot
from labengine.session.settings import refuse_unknown

NO_HASH = -1


@dataclass(frozen=True, slots=True)
class BlockView:
    """One block in nano-vLLM's form. hash is -1 until the block is full and hashed."""

    block_id: int
    ref_count: int
    hash: int
    token_ids: list[int]


class BlockManagerView:
    """The pool in nano-vLLM's form. It follows the lab; returned values do not change."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._moment = -1
        self._snapshot: Snapshot | None = None

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        return self._lab.config.groups[0].block_size

    @property
    def blocks(self) -> list[BlockView]:
        """All blocks, by id."""
        return [
            BlockView(
                b.block_id, b.ref_count, _as_int(b.block_hashes[0]) if b.block_hashes else NO_HASH, [*b.token_ids]
            )
            for b in self._state().blocks
        ]

    @property
    def free_block_ids(self) -> deque[int]:
        """Ids of free blocks, the next victim first."""
        return deque(self._state().free_queue)

    @property
    def used_block_ids(self) -> set[int]:
        """Blocks held by at least one request."""
        return {block.block_id for block in self._state().blocks if block.ref_count}

    @property
    def hash_to_block_id(self) -> dict[int, int]:
        """The prefix map; an entry may lead to a free block that still holds its content."""
        return {_as_int(key.partition(":")[2]): block_ids[0] for key, block_ids in self._state().prefix_map.items()}

    def _state(self) -> Snapshot:
        """Return the lab's snapshot, retaken after new events."""
        timeline = self._lab.timeline
        moment = -1 if timeline is None else timeline.end
        if self._snapshot is None or moment != self._moment or timeline is None:
            self._moment, self._snapshot = moment, self._lab.snapshot()
        return self._snapshot


class SchedulerView:
    """The attributes of nano-vLLM's scheduler that scripts read."""

    def __init__(self, lab: Lab, is_finished: Callable[[], bool]) -> None:
        self.is_finished = is_finished
        self.block_manager = BlockManagerView(lab)
        self.max_num_seqs = lab.config.max_num_seqs
        self.max_num_batched_tokens = lab.config.max_num_batched_tokens


def _as_int(block_hash: str) -> int:
    """Return the first 64 bits as an integer, the form of nano-vLLM's hashes."""
    return int(block_hash[:16], 16)


DEFAULT_NUM_BLOCKS = 32
"""Pool size for num_kvcache_blocks=-1; nano-vLLM fills the GPU."""


def _supported_len(model: str | PathLike[str], asked: int) -> int:
    """Return max_model_len, or the model's limit if that is lower. Raises ConfigError for an unknown model."""
    if model == "simulated":
        return asked
    from labengine.engine.model_files.config_file import load_config
    from labengine.engine.sources import model_path

    return min(checked_int("max_model_len", asked, 2), load_config(model_path(model)).max_model_len)


Outputs = list[tuple[int, list[int]]]
"""Finished requests: (request id, generated token ids)."""


@dataclass(slots=True)
class NanoSamplingParams:
    """nano-vLLM's sampling parameters, in its order and with its defaults.

    Temperature 0 means greedy sampling here; nano-vLLM refuses it.
    """

    temperature: float = 1.0
    max_tokens: int = 64
    ignore_eos: bool = False


SamplingParams = NanoSamplingParams  # scripts import it by this name; labengine.SamplingParams has other fields


class LLM:
    """An engine with nano-vLLM's methods: add_request, step, is_finished, generate, scheduler.block_manager.

    model: a directory, or a name that labengine knows. enforce_eager: no CUDA graphs. max_model_len: maximum tokens of
    a request; as in nano-vLLM, the model's limit holds if it is lower. A longer request is refused.
    gpu_memory_utilization is accepted and has no effect here: the pool has num_kvcache_blocks blocks.
    Raises ConfigError for more than one device.
    """

    edition = "nano-vllm"
    """The edition of every LLM created without one."""

    def __init__(
        self,
        model: str | PathLike[str],
        *,
        edition: str | None = None,
        enforce_eager: bool = False,
        tensor_parallel_size: int = 1,
        max_num_batched_tokens: int = 16384,
        max_num_seqs: int = 512,
        max_model_len: int = 4096,
        gpu_memory_utilization: float = 0.9,
        kvcache_block_size: int = 256,
        num_kvcache_blocks: int = -1,
        dtype: str | None = None,
        device: str | None = None,
        seed: int = 0,
        **unknown: object,
    ) -> None:
        refuse_unknown("LLM()", unknown, LLM.__init__)
        if tensor_parallel_size != 1:
            raise ConfigError(f"tensor_parallel_size must be 1, got {tensor_parallel_size!r}: a lab uses one device")
        self.lab = Lab(
            model,
            num_blocks=DEFAULT_NUM_BLOCKS if num_kvcache_blocks == -1 else num_kvcache_blocks,
            block_size=kvcache_block_size,
            edition=self.edition if edition is None else edition,
            max_num_batched_tokens=max_num_batched_tokens,
            max_num_seqs=max_num_seqs,
            max_model_len=_supported_len(model, max_model_len),
            dtype=dtype,
            device=device,
            cuda_graphs=not enforce_eager,
            seed=seed,
        )
        self._model = model
        self._unfinished: set[int] = set()
        self._scheduled: list[RequestScheduled] = []
        subscribe = self.lab.hooks.subscribe
        subscribe(lambda event: self._unfinished.add(event.request_id), RequestAdded)
        subscribe(lambda event: self._unfinished.discard(event.request_id), RequestFinished)
        subscribe(lambda event: self._scheduled.clear(), StepStarted)
        subscribe(self._scheduled.append, RequestScheduled)
        self.scheduler = SchedulerView(self.lab, self.is_finished)

    @cached_property
    def tokenizer(self) -> Any:
        """The model's tokenizer, loaded by transformers."""
        from transformers import AutoTokenizer

        from labengine.engine.sources import model_path

        return AutoTokenizer.from_pretrained(model_path(self._model), use_fast=True)

    def add_request(self, prompt: str | Sequence[int], sampling_params: NanoSamplingParams) -> None:
        """Queue a text or token ids."""
        prompt_argument = {"prompt": prompt} if isinstance(prompt, str) else {"token_ids": prompt}
        self.lab.add(**prompt_argument, **_keywords(sampling_params))

    def step(self) -> tuple[Outputs, int]:
        """Take one step; return finished requests and the number of computed tokens (negative for a decode step)."""
        report = self.lab.step()
        outputs = [(request_id, list(self.lab.output(request_id).token_ids)) for request_id in report.finished]
        if any(event.is_prefill for event in self._scheduled):
            return outputs, sum(report.scheduled.values())
        return outputs, -len(report.scheduled)

    def is_finished(self) -> bool:
        """Return True if no request waits or runs."""
        return not self._unfinished

    def generate(
        self,
        prompts: Sequence[str | Sequence[int]],
        sampling_params: NanoSamplingParams | Sequence[NanoSamplingParams],
        use_tqdm: bool = True,
    ) -> list[dict[str, Any]]:
        """Run all prompts to the end; return [{"text": ..., "token_ids": ...}] in the order of the prompts."""
        if isinstance(sampling_params, NanoSamplingParams):
            sampling_params = [sampling_params] * len(prompts)
        for prompt, sampling in zip(prompts, sampling_params, strict=True):
            self.add_request(prompt, sampling)
        outputs = dict(self._run_to_the_end(len(prompts), use_tqdm))
        return [
            {"text": self.lab.session.model.tokenizer.decode(outputs[request_id]), "token_ids": outputs[request_id]}
            for request_id in sorted(outputs)
        ]

    def exit(self) -> None:
        """Close the lab."""
        self.lab.close()

    def _run_to_the_end(self, num_prompts: int, use_tqdm: bool) -> Outputs:
        from tqdm.auto import tqdm

        outputs: Outputs = []
        with tqdm(total=num_prompts, desc="Generating", dynamic_ncols=True, disable=not use_tqdm) as bar:
            while not self.is_finished():
                begun = perf_counter()
                finished, num_tokens = self.step()
                kind, speed = ("prefill", num_tokens) if num_tokens > 0 else ("decode", -num_tokens)
                bar.set_postfix({kind: f"{speed / (perf_counter() - begun):.0f}tok/s"})
                bar.update(len(finished))
                outputs += finished
        return outputs


def _keywords(sampling_params: NanoSamplingParams) -> dict[str, Any]:
    """Return keywords for Lab.add; any object with the same three fields will do."""
    if isinstance(sampling_params, NanoSamplingParams):
        return asdict(sampling_params)
    return {name: getattr(sampling_params, name) for name in NanoSamplingParams.__slots__}
