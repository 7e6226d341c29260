"""llama.cpp through llama-cpp-python, for worker.py: 4-bit weights, so a figure for orientation and no equal."""

from __future__ import annotations

import ctypes
from typing import Any

import llama_cpp as lib
import numpy as np

CHUNK = 2048


class Engine:
    """One llama_decode call per step, all sequences in it; a sequence keeps what it shares with its last prompt."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._quiet = lib.llama_log_callback(lambda *_: None)
        lib.llama_log_set(self._quiet, ctypes.c_void_p(0))
        lib.llama_backend_init()
        self._model = lib.llama_model_load_from_file(options["gguf"].encode(), lib.llama_model_default_params())
        params = lib.llama_context_default_params()
        params.n_ctx = options["pool_tokens"]
        params.n_seq_max, params.n_batch, params.kv_unified = options["max_batch"], CHUNK, True
        params.n_threads = params.n_threads_batch = options["threads"]
        self._context = lib.llama_init_from_model(self._model, params)
        self._memory = lib.llama_get_memory(self._context)
        self._vocab_size = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self._model))
        self._batch = lib.llama_batch_init(CHUNK, 0, 1)
        self._held: list[list[int]] = [[] for _ in range(options["max_batch"])]
        self.name = f"llama.cpp (llama-cpp-python {lib.__version__})"
        self.about = {"weights": "4 bits"}
        self.num_cached_tokens: int | None = None

    def generate(self, prompts: list[list[int]], num_tokens: int) -> list[list[int]]:
        """Greedy, to the last token."""
        outputs: list[list[int]] = [[] for _ in prompts]
        self.num_cached_tokens = 0
        rows = [(number, token) for number, prompt in enumerate(prompts) for token in self._lacking(number, prompt)]
        lengths = [len(prompt) for prompt in prompts]
        for _ in range(num_tokens):
            for number, token in self._decoded(rows, lengths):
                outputs[number].append(token)
            rows = [(number, output[-1]) for number, output in enumerate(outputs)]
            lengths = [length + 1 for length in lengths]
        return outputs

    def _lacking(self, number: int, prompt: list[int]) -> list[int]:
        """The prompt's tokens that the sequence does not hold yet; at least one."""
        held, shared = self._held[number], 0
        while shared < min(len(held), len(prompt) - 1) and held[shared] == prompt[shared]:
            shared += 1
        lib.llama_memory_seq_rm(self._memory, number, shared, -1)
        self._held[number] = held[:shared]
        self.num_cached_tokens += shared
        return prompt[shared:]

    def _decoded(self, rows: list[tuple[int, int]], lengths: list[int]) -> list[tuple[int, int]]:
        """Computes tokens, (sequence, token) each; what comes next in every sequence that is complete then."""
        found = []
        for start in range(0, len(rows), CHUNK):
            chunk, asked, batch = rows[start : start + CHUNK], [], self._batch
            batch.n_tokens = len(chunk)
            for i, (number, token) in enumerate(chunk):
                held = self._held[number]
                batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, len(held), 1
                held.append(token)
                batch.seq_id[i][0], batch.logits[i] = number, len(held) == lengths[number]
                if batch.logits[i]:
                    asked.append((i, number))
            if lib.llama_decode(self._context, batch):
                raise RuntimeError("llama_decode failed: the context is too small")
            found += [(number, self._greedy(i)) for i, number in asked]
        return found

    def _greedy(self, row: int) -> int:
        logits = np.ctypeslib.as_array(lib.llama_get_logits_ith(self._context, row), (self._vocab_size,))
        return int(logits.argmax())
