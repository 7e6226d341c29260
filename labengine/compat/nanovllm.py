"""nano-vLLM's front door: `from labengine.compat.nanovllm import LLM, SamplingParams`, and the script runs in a lab.

The engine behind it decides as nano-vLLM does (edition nano-vllm). Another edition is one word away:
LLM(path, edition="nano-vllm+243"), or LLM.edition = "nano-vllm+243" before a script that cannot be changed. The lab
itself is `llm.lab`: llm.lab.show() draws it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from os import PathLike
from time import perf_counter
from typing import Any

from labengine.compat.nanovllm_state import SchedulerView
from labengine.config import ConfigError
from labengine.events import RequestAdded, RequestFinished, RequestScheduled, StepStarted
from labengine.lab import Lab
from labengine.session.arguments import refuse_unknown

DEFAULT_NUM_BLOCKS = 32
"""Upstream fills the GPU; here num_kvcache_blocks=-1 means so many."""

Outputs = list[tuple[int, list[int]]]
"""(request id, generated token ids) of those that finished."""


@dataclass(slots=True)
class SamplingParams:
    """nano-vLLM's, in its order. Temperature 0 is greedy here, and refused there."""

    temperature: float = 1.0
    max_tokens: int = 64
    ignore_eos: bool = False


class LLM:
    """An engine behind nano-vLLM's own calls: add_request, step, is_finished, generate, scheduler.block_manager.

    model: a directory, or a name that labengine knows. enforce_eager: no CUDA graphs. gpu_memory_utilization and
    max_model_len are accepted and change nothing here: the pool has num_kvcache_blocks blocks.
    ConfigError for more than one device.
    """

    edition = "nano-vllm"
    """The edition of every LLM that names none itself."""

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
            raise ConfigError(f"tensor_parallel_size must be 1, got {tensor_parallel_size!r}: a lab has one device")
        self.lab = Lab(
            model,
            num_blocks=DEFAULT_NUM_BLOCKS if num_kvcache_blocks == -1 else num_kvcache_blocks,
            block_size=kvcache_block_size,
            edition=self.edition if edition is None else edition,
            max_num_batched_tokens=max_num_batched_tokens,
            max_num_seqs=max_num_seqs,
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
        """The model's own, as transformers loads it."""
        from transformers import AutoTokenizer

        from labengine.engine.sources import model_path

        return AutoTokenizer.from_pretrained(model_path(self._model), use_fast=True)

    def add_request(self, prompt: str | Sequence[int], sampling_params: SamplingParams) -> None:
        """Queue a text or token ids."""
        given = {"prompt": prompt} if isinstance(prompt, str) else {"token_ids": prompt}
        self.lab.add(**given, **_keywords(sampling_params))

    def step(self) -> tuple[Outputs, int]:
        """One step: who finished with which tokens, and the tokens computed, negative for a step of decodes."""
        report = self.lab.step()
        outputs = [(request_id, list(self.lab.output(request_id).token_ids)) for request_id in report.finished]
        if any(event.is_prefill for event in self._scheduled):
            return outputs, sum(report.scheduled.values())
        return outputs, -len(report.scheduled)

    def is_finished(self) -> bool:
        """Return True when nothing waits and nothing runs."""
        return not self._unfinished

    def generate(
        self,
        prompts: Sequence[str | Sequence[int]],
        sampling_params: SamplingParams | Sequence[SamplingParams],
        use_tqdm: bool = True,
    ) -> list[dict[str, Any]]:
        """Run the prompts to their end: [{"text": ..., "token_ids": ...}] in the order of adding."""
        if isinstance(sampling_params, SamplingParams):
            sampling_params = [sampling_params] * len(prompts)
        for prompt, sampling in zip(prompts, sampling_params, strict=True):
            self.add_request(prompt, sampling)
        outputs = dict(self._run_to_the_end(len(prompts), use_tqdm))
        return [
            {"text": self.lab.session.model.tokenizer.decode(outputs[request_id]), "token_ids": outputs[request_id]}
            for request_id in sorted(outputs)
        ]

    def exit(self) -> None:
        """End the lab."""
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


def _keywords(sampling_params: SamplingParams) -> dict[str, Any]:
    """As Lab.add wants them; also from another library's SamplingParams of the same three fields."""
    if isinstance(sampling_params, SamplingParams):
        return asdict(sampling_params)
    return {name: getattr(sampling_params, name) for name in SamplingParams.__slots__}
