"""One engine in one process: load the model, warm up, then run the workload as often as requested.

    python engines.py ENGINE MODEL_DIR OPTIONS      (run by engine_process.py; OPTIONS are JSON)

Each line "go" on stdin is answered with a line of JSON on stdout; the engine's own output goes to stderr. Lengths,
tokens per step and requests at once are the same for all (workload.py), nothing is served from a prefix cache, and each
engine sizes its KV pool by its default: ours is half of the free memory, the others' 90 % of the GPU's.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from workload import (  # noqa: E402
    MAX_BATCHED_TOKENS,
    MAX_MODEL_LEN,
    MAX_NUM_SEQS,
    TEMPERATURE,
    Workload,
    nano_vllm_workload,
)


class Engine(Protocol):
    """An engine under comparison."""

    about: str

    def warm_up(self) -> None: ...
    def run(self, workload: Workload) -> int:
        """Run the workload; return the number of generated tokens."""
        ...


class Ours:
    """labengine, without recording and checks."""

    def __init__(self, model_dir: str, options: dict[str, Any]) -> None:
        sys.path.insert(0, str(HERE.parent.parent))
        from labengine import Lab

        self.lab = Lab(
            model_dir,
            device="cuda",
            num_blocks="auto",
            block_size=options["block_size"],
            max_num_seqs=MAX_NUM_SEQS,
            max_num_batched_tokens=MAX_BATCHED_TOKENS,
            max_model_len=MAX_MODEL_LEN,
            attention=options.get("attention"),
            record=False,
            check=False,
        )
        status = self.lab.status()
        self.about = "; ".join(status[key] for key in ("attention", "forward", "kv_pool"))

    def warm_up(self) -> None:
        self.run(Workload([[7] * 300, [9] * 20], [20, 20]))
        self.lab.reset()

    def run(self, workload: Workload) -> int:
        ids = [
            self.lab.add(token_ids=prompt, max_tokens=n, temperature=TEMPERATURE, ignore_eos=True)
            for prompt, n in zip(workload.prompts, workload.num_outputs, strict=True)
        ]
        self.lab.run()
        num_tokens = sum(self.lab.session.requests.named(i).num_tokens for i in ids) - workload.num_prompt_tokens
        self.lab.reset()  # forgets the prefixes too, so the next round has to compute them again
        return num_tokens


class Nano:
    """nano-vLLM from a checkout; its flash_attn may be served by FA3 (see fa3/)."""

    def __init__(self, model_dir: str, options: dict[str, Any]) -> None:
        sys.path.insert(0, options["checkout"])
        import flash_attn
        from nanovllm import LLM, SamplingParams

        self._sampling = SamplingParams
        self.llm = LLM(
            model_dir,
            enforce_eager=False,
            max_model_len=MAX_MODEL_LEN,
            max_num_seqs=MAX_NUM_SEQS,
            max_num_batched_tokens=MAX_BATCHED_TOKENS,
        )
        num_blocks = len(self.llm.scheduler.block_manager.blocks)
        version = getattr(flash_attn, "__version__", "flash_attn")
        self.about = f"{num_blocks:,} blocks of 256, CUDA graphs, attention by {version}"

    def warm_up(self) -> None:
        sampling = self._sampling(temperature=TEMPERATURE, ignore_eos=True, max_tokens=20)
        self.llm.generate([[7] * 300, [9] * 20], sampling, use_tqdm=False)

    def run(self, workload: Workload) -> int:
        self._forget()
        sampling = [
            self._sampling(temperature=TEMPERATURE, ignore_eos=True, max_tokens=n) for n in workload.num_outputs
        ]
        outputs = self.llm.generate(workload.prompts, sampling, use_tqdm=False)
        return sum(len(output["token_ids"]) for output in outputs)

    def _forget(self) -> None:
        """Forget all prefixes; rounds repeat the prompts, and would find them cached."""
        self.llm.scheduler.block_manager.hash_to_block_id.clear()


ENGINES: dict[str, type[Engine]] = {"ours": Ours, "nano": Nano}


def main() -> None:
    """Answer orders until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def report(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    name, model_dir, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    started = perf_counter()
    engine = ENGINES[name](model_dir, options)  # type: ignore[call-arg]
    engine.warm_up()
    report({"about": engine.about, "seconds_to_start": perf_counter() - started})
    workload = nano_vllm_workload(options["num_requests"], options["longest"])
    for _ in sys.stdin:
        started = perf_counter()
        num_tokens = engine.run(workload)
        report({"seconds": perf_counter() - started, "num_tokens": num_tokens})


if __name__ == "__main__":
    main()
