"""Compare the engine with its peers: nano-vLLM's workload in rounds, with profiles of decode steps between them.

Each engine runs in a new process every round, so that each has the whole GPU. An engine that fails, or does not answer
within its limit, is left out from then on, and the others continue.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from brought import Brought
from engine_process import EngineError, EngineProcess, Entry
from preparation import prepare, qwen3
from stages import Outcome, Run, Stage, answer_of, python
from workload import Workload, nano_vllm_workload

EMBEDDING_BYTES = 151936 * 1024 * 2
OURS = "labengine, blocks of 16"
ROUND_SECONDS = 150
"""Limit in seconds of an engine's start and two answers."""
USUAL_ROUND_SECONDS = 40
"""Expected seconds of a round before any engine has run."""
FAILED = "failed: "
SIZE = {"num_requests": 256, "longest": 1024}
PROFILES = ((256, 16), (1, 16), (256, 256))
"""Batch and block size of each profile, one of which is taken after each round."""


def entries(nano: Path | None) -> list[Entry]:
    """Return the engines that take part, ours first; nano-vLLM, if it is there, before our other settings."""
    theirs = [] if nano is None else [Entry("nano-vLLM", "nano", {**SIZE, "checkout": str(nano)})]
    return [
        Entry(OURS, "ours", {**SIZE, "block_size": 16}),
        *theirs,
        Entry(f"{OURS}, Triton", "ours", {**SIZE, "block_size": 16, "attention": "triton"}),
        Entry("labengine, blocks of 256", "ours", {**SIZE, "block_size": 256}),
    ]


def in_order(entries: Sequence[Entry], number: int) -> list[Entry]:
    """Return the entries of round `number`, counted from 1; in even rounds the peers go first."""
    compared = [entry for entry in entries if entry.engine != "ours" or entry.name == OURS]
    others = [entry for entry in entries if entry not in compared]
    return [*(compared if number % 2 else reversed(compared)), *others]


@dataclass
class Comparison:
    """The rounds: each engine's output tokens per second so far, and its description of itself.

    They are written to workload.json after each engine's round.
    """

    run: Run
    entries: Sequence[Entry]
    model_dir: Path
    limits: Mapping[str, Any] | None = None
    most: float | None = None
    speeds: dict[str, list[float]] = field(default_factory=dict)
    about: dict[str, str] = field(default_factory=dict)
    _seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.speeds = {entry.name: [] for entry in self.entries}

    def take_round(self, number: int) -> None:
        """Run every engine once, except those that failed or would not end within the budget."""
        for entry in in_order(self.entries, number):
            if self.about.get(entry.name, "").startswith(FAILED):
                continue
            expected = self._seconds.get(entry.name, max(self._seconds.values(), default=USUAL_ROUND_SECONDS))
            if self.run.budget.left() < expected:
                words = f"{max(0, self.run.budget.left()):.0f} s are left"
                self.run.journal.keep(Outcome(f"{entry.name}, round {number}", "not run", 0, words))
            else:
                self._take(entry, number)
            self._write()

    def _take(self, entry: Entry, number: int) -> None:
        started = time.monotonic()
        try:
            speed, self.about[entry.name] = measured(entry, self.model_dir, self.run)
            self.speeds[entry.name].append(speed)
            verdict, words = "passed", f"{speed:,.0f} output tok/s"
        except EngineError as error:
            self.about[entry.name] = f"{FAILED}{error}"
            verdict, words = f"failed ({str(error).splitlines()[0]})", str(error).splitlines()[-1][-200:]
        self._seconds[entry.name] = time.monotonic() - started
        log = self.about[entry.name]
        self.run.journal.keep(Outcome(f"{entry.name}, round {number}", verdict, self._seconds[entry.name], words, log))

    def _write(self) -> None:
        found = {
            "limits": self.limits,
            "limit_tokens_per_second": self.most,
            "tokens_per_second": self.speeds,
            "about": self.about,
        }
        (self.run.journal.folder / "workload.json").write_text(json.dumps(found, indent=1), encoding="utf-8")


def measured(entry: Entry, model_dir: Path, run: Run) -> tuple[float, str]:
    """Start an engine and run the workload twice; return the higher speed, as the first run may compile or capture.

    Raises EngineError.
    """
    log = run.work / "logs" / f"{entry.engine}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    process = EngineProcess(entry, model_dir, log, run.environment, run.budget.limit(ROUND_SECONDS))
    try:
        answers = [process.run() for _ in range(2)]
        process.leave()
    finally:
        process.kill()
        run.journal.log(entry.name, log.read_text(encoding="utf-8", errors="replace"))
    workload = nano_vllm_workload(entry.options["num_requests"], entry.options["longest"])
    for answer in answers:
        if answer["num_tokens"] != workload.num_output_tokens:
            raise EngineError(f"expected {workload.num_output_tokens} tokens, got {answer['num_tokens']}")
    fastest = min(answer["seconds"] for answer in answers)
    return workload.num_output_tokens / fastest, process.hello["about"]


def profile_name(batch: int, block_size: int) -> str:
    return f"profile of {batch}, blocks of {block_size}"


def take_profile(run: Run, model_dir: Path, batch: int, block_size: int) -> None:
    """Print the profile of a decode step, and write it to profile_BATCH_BLOCKSIZE.json."""
    options = ("--batch", str(batch), "--block-size", str(block_size), "--steps", "16")
    command = python("step_profile.py", model_dir, *options)
    answer = answer_of(run.alone(Stage(profile_name(batch, block_size), command, 75)))
    if answer is not None:
        file = run.journal.folder / f"profile_{batch}_{block_size}.json"
        file.write_text(json.dumps(answer, indent=1), encoding="utf-8")
        print(profile_table(answer), flush=True)


def names() -> list[str]:
    """Return all engines and profiles that --only can pick."""
    return [*(entry.name for entry in entries(Path("nano"))), *(profile_name(*profile) for profile in PROFILES)]


def run_peers(run: Run, brought: Brought, rounds: int, only: Collection[str] = ()) -> None:
    """Prepare, measure the GPU's limits, and take rounds and profiles in turn while the budget lasts."""
    model_dir = brought.work / "qwen3-shape"
    usable = prepare(run, brought, qwen3(model_dir))
    run.environment = {**run.environment, **usable.fa3_environment()}
    limits = answer_of(run.alone(Stage("limits", python("gpu_limits.py"), 40, is_shown=True)))
    picked = [entry for entry in entries(brought.nano) if not only or entry.name in only]
    comparison = Comparison(run, picked, model_dir, limits)
    if limits is not None and (weights := model_dir / "model.safetensors").exists():
        comparison.most = most_tokens_per_second(nano_vllm_workload(**SIZE), weights.stat().st_size, limits)
    try:
        for number, profiles in parts(rounds, only):
            comparison.take_round(number)
            for profile in profiles:
                take_profile(run, model_dir, *profile)
    finally:  # also after an interrupt
        print(f"\n{speed_table(comparison.speeds, comparison.about, OURS, comparison.most)}\n", flush=True)


def parts(rounds: int, only: Collection[str] = ()) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """Yield each round's number and the profiles after it; all remaining ones follow the last round."""
    left = [profile for profile in PROFILES if not only or profile_name(*profile) in only]
    for number in range(1, rounds + 1):
        following = left[:1] if number < rounds else left
        left = left[len(following) :]
        yield number, following


# -- tables ------------------------------------------------------------------------------------------------------------


def most_tokens_per_second(workload: Workload, weight_bytes: int, limits: Mapping[str, Any]) -> float:
    """Return the limit of output tokens per second for an engine that runs all requests together."""
    parameters = (weight_bytes - EMBEDDING_BYTES) / 2
    prompts = 2 * parameters * workload.num_prompt_tokens / limits["matmul_flops_per_second"]
    decodes = workload.floor_seconds(weight_bytes, limits["copied_bytes_per_second"])
    return workload.num_output_tokens / (prompts + decodes)


def speed_table(speeds: Mapping[str, Sequence[float]], about: Mapping[str, str], ours: str, most: float | None) -> str:
    """Return a Markdown table, then a line about each engine. Ratios are medians of the rounds' ratios.

    speeds: output tokens per second of each round. ours: the engine with which the others are compared.
    """
    lines = [
        f"| | output tok/s | lowest to highest | {ours} is | of the limit |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, found in speeds.items():
        if not found:
            words = about.get(name, "did not run").splitlines()
            reason = ": ".join(line[:120].replace("|", "/") for line in dict.fromkeys((words[0], words[-1])))
            lines.append(f"| {name} | {reason} | | | |")
            continue
        ratios = [mine / theirs for mine, theirs in zip(speeds.get(ours, ()), found, strict=False)]
        ratio = f"{median(ratios):.2f} x" if ratios else ""
        share = f"{median(found) / most:.0%}" if most else ""
        lines.append(f"| {name} | {median(found):,.0f} | {min(found):,.0f} to {max(found):,.0f} | {ratio} | {share} |")
    lines += ["", f"limit: {most:,.0f} output tok/s" if most else "the limit is unknown"]
    return "\n".join([*lines, *(f"* {name}: {words}" for name, words in about.items())])


def profile_table(result: Mapping[str, Any]) -> str:
    """Return the phases in one line, then a table of kernels."""
    phases = ", ".join(f"{phase} {ms:.3f}" for phase, ms in result["phases_ms"].items())
    recording = result["recording"]
    lines = [
        f"{result['batch']} decodes, context {result['context']}, blocks of {result['block_size']}: "
        f"{recording['silent_ms']:.3f} ms a step, {result['gpu_ms']:.3f} of it on the GPU; "
        f"with recording {recording['ratio']:.4f} of that",
        f"ms per phase, waiting for the GPU after each: {phases}",
        "",
        "| kernel | calls a step | ms a step |",
        "|---|---:|---:|",
        *(f"| `{row['kernel']}` | {row['calls']} | {row['ms']:.3f} |" for row in result["kernels"]),
    ]
    return "\n".join(lines)
