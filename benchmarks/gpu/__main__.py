"""The engine on a GPU beside its peers and beside the GPU's own limits, in one command.

    python benchmarks/gpu [--rounds 3] [--nano CHECKOUT] [--minisgl CHECKOUT] [--vllm PYTHON] [--transformers]
                          [--fa3 LIBRARY] [--only limits,kernels,workload,profile] [--quick] [--out FILE]

Four parts: the limits (copied bytes and bf16 products per second), the attention kernels beside them (attention.py),
nano-vLLM's workload at Qwen3-0.6B's shape with random weights, and the profile of a decode step with the cost of
recording. CHECKOUT: folders of the peers' sources. PYTHON: an interpreter that has vLLM. --fa3: where flash-attn cannot
be built, vLLM's kernels (_vllm_fa3_C.abi3.so, or .xz of it) serve FA3 to us, and flash_attn's calls to nano-vLLM.
--quick: a small workload and one round, to see that everything runs.
--first: the first run on a device, from kernels to figures, one stage after the other (first_run.py); all output goes
into first_run.log.

Engines run in turns, each in a process of its own that is started anew every round, so that each has the whole GPU; an
engine that fails is left out, with its last words, and the others go on. Printed are medians with the lowest and the
highest round, shares of the limit (every step reads the weights and all contexts once; prompts have to be multiplied),
and ratios within rounds. --out keeps all as JSON. Exits with 1, naming the parts, if something in them failed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from first_run import report, run_first, stages  # noqa: E402
from processes import EngineError, EngineProcess, Entry, environment_for  # noqa: E402
from workload import Workload, make_model, nano_vllm_workload  # noqa: E402

PARTS = ("limits", "kernels", "workload", "profile")
EMBEDDING_BYTES = 151936 * 1024 * 2
Figures = dict[str, list[float]]
"""Output tokens per second of each round, by entry."""


def entries(selected: argparse.Namespace, size: dict[str, int]) -> list[Entry]:
    """Who takes part; who was not given is told."""
    found = [
        Entry("labengine, blocks of 16", "ours", {**size, "block_size": 16}),
        Entry("labengine, blocks of 256", "ours", {**size, "block_size": 256}),
        Entry("labengine, blocks of 16, Triton", "ours", {**size, "block_size": 16, "attention": "triton"}),
        Entry("labengine, blocks of 16, recording", "ours", {**size, "block_size": 16, "record": True}),
    ]
    for name, engine, checkout in (("nano-vLLM", "nano", selected.nano), ("mini-sglang", "minisgl", selected.minisgl)):
        if checkout:
            found.append(Entry(name, engine, {**size, "checkout": str(Path(checkout).resolve())}))
        else:
            print(f"{name}: no checkout given, left out (--{engine})")
    if selected.vllm:
        found.append(Entry("vLLM", "vllm", dict(size), selected.vllm))
    else:
        print("vLLM: no interpreter given, left out (--vllm)")
    if selected.transformers:
        found.append(Entry("transformers", "transformers", dict(size)))
    return found


def measured(found: list[Entry], rounds: int, model_dir: Path, environment: dict[str, str]) -> dict[str, Any]:
    """All rounds, another engine first in each."""
    figures: Figures = {entry.name: [] for entry in found}
    reported: dict[str, str] = {}
    for number in range(rounds):
        for entry in found[number % len(found) :] + found[: number % len(found)]:
            if "failed" in reported.get(entry.name, ""):
                continue
            try:
                speed, about = one_round(entry, model_dir, environment)
            except EngineError as error:
                reported[entry.name] = f"failed: {error}"
                print(f"{entry.name}: {reported[entry.name]}", flush=True)
                continue
            figures[entry.name].append(speed)
            reported[entry.name] = about
            print(f"round {number + 1}: {entry.name}: {speed:,.0f} output tok/s", flush=True)
    return {"tokens_per_second": figures, "about": reported}


def one_round(entry: Entry, model_dir: Path, environment: dict[str, str]) -> tuple[float, str]:
    """Start, answer twice, end: the better one counts, for the first may still compile or capture."""
    log = model_dir / f"{entry.engine}.log"
    process = EngineProcess(entry, model_dir, log, environment)
    try:
        answers = [process.run() for _ in range(2)]
    finally:
        process.end()
    workload = nano_vllm_workload(entry.options["num_requests"], entry.options["longest"])
    for answer in answers:
        if answer["num_tokens"] != workload.num_output_tokens:
            raise EngineError(f"{workload.num_output_tokens} tokens were asked for, {answer['num_tokens']} came")
    fastest = min(answer["seconds"] for answer in answers)
    return workload.num_output_tokens / fastest, process.hello["about"]


def limit(workload: Workload, weight_bytes: int, limits: dict[str, Any]) -> float:
    """Output tokens per second that no engine can exceed which runs all requests together."""
    parameters = (weight_bytes - EMBEDDING_BYTES) / 2
    prompts = 2 * parameters * workload.num_prompt_tokens / limits["matmul_flops_per_second"]
    decodes = workload.floor_seconds(weight_bytes, limits["copied_bytes_per_second"])
    return workload.num_output_tokens / (prompts + decodes)


def table(result: dict[str, Any], limit_of_gpu: float | None) -> str:
    """Markdown; ratios are medians of the rounds' ratios."""
    figures: Figures = result["tokens_per_second"]
    ours = figures["labengine, blocks of 16"]
    lines = [
        "| | output tok/s | lowest to highest | labengine (16) is | of the limit |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, speeds in figures.items():
        if not speeds:
            last_words = result["about"].get(name, "did not run").splitlines()[-1]
            lines.append(f"| {name} | failed: {last_words} | | | |")
            continue
        ratios = [mine / theirs for mine, theirs in zip(ours, speeds, strict=False)]
        ratio = f"{median(ratios):.2f} x" if ratios else ""
        share = f"{median(speeds) / limit_of_gpu:.0%}" if limit_of_gpu else ""
        lines.append(
            f"| {name} | {median(speeds):,.0f} | {min(speeds):,.0f} to {max(speeds):,.0f} | {ratio} | {share} |"
        )
    return "\n".join(lines)


def asked(command: list[str], environment: dict[str, str]) -> Any:
    """Another of our scripts: its last line of output is JSON. None, with its words printed, when it fails."""
    done = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        print(f"{Path(command[0]).name} failed:\n{done.stderr[-3000:]}", flush=True)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def printed(command: list[str], environment: dict[str, str]) -> str | None:
    """A script whose whole output is for reading; None when it fails."""
    done = subprocess.run(
        [sys.executable, *command], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    print(
        done.stdout if done.returncode == 0 else f"{Path(command[0]).name} failed:\n{done.stderr[-3000:]}", flush=True
    )
    return done.stdout if done.returncode == 0 else None


def profiled(model_dir: Path, quick: bool, environment: dict[str, str]) -> list[Any]:
    """The whole step, at batch 256 with blocks of both sizes, and at batch 1; None for a case that fails."""
    cases = [("256", "16"), ("256", "256"), ("1", "16")]
    results = []
    for batch, block_size in cases[:1] if quick else cases:
        options = ["--batch", batch, "--block-size", block_size, "--steps", "8" if quick else "40"]
        result = asked([str(HERE / "step_profile.py"), str(model_dir), *options], environment)
        results.append(result)
        if result is not None:
            print(profile_table(result), flush=True)
    return results


def profile_table(result: dict[str, Any]) -> str:
    """Phases in one line, then kernels."""
    phases = ", ".join(f"{phase} {ms:.3f}" for phase, ms in result["phases_ms"].items())
    recording = result["recording"]
    lines = [
        f"\n{result['batch']} decodes, context {result['context']}, blocks of {result['block_size']}: "
        f"{recording['silent_ms']:.3f} ms a step, {result['gpu_ms']:.3f} of it on the GPU; "
        f"with recording {recording['ratio']:.4f} of that",
        f"ms per phase, the GPU waited for behind each: {phases}",
        "",
        "| kernel | calls a step | ms a step |",
        "|---|---:|---:|",
        *(f"| `{row['kernel']}` | {row['calls']} | {row['ms']:.3f} |" for row in result["kernels"]),
    ]
    return "\n".join(lines)


def options() -> argparse.Namespace:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nano", default=os.environ.get("LABENGINE_NANO_VLLM"))
    parser.add_argument("--minisgl", default=os.environ.get("LABENGINE_MINI_SGLANG"))
    parser.add_argument("--vllm", default=os.environ.get("LABENGINE_VLLM_PYTHON"))
    parser.add_argument("--transformers", action="store_true")
    parser.add_argument("--fa3", default=os.environ.get("LABENGINE_FA3_LIBRARY"))
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--model-dir", type=Path, default=Path(tempfile.gettempdir()) / "labengine-qwen3-shape")
    parser.add_argument("--out", type=Path)
    selected = parser.parse_args()
    unknown = set(selected.only.split(",")) - set(PARTS)
    if unknown:
        parser.error(f"--only knows {', '.join(PARTS)}, not {', '.join(sorted(unknown))}")
    return selected


def main() -> None:
    """Part after part; what is known is written after each."""
    selected = options()
    if selected.first:
        raise SystemExit(first())
    environment, parts = environment_for(selected.fa3), selected.only.split(",")
    result: dict[str, Any] = {}
    failed: list[str] = []

    def keep(**part: Any) -> None:
        result.update(part)
        if selected.out:
            selected.out.write_text(json.dumps(result, indent=1))

    limits = asked([str(HERE / "gpu_limits.py")], environment)
    if limits is None:
        raise SystemExit("benchmarks/gpu needs a GPU that torch can use")
    keep(limits=limits)
    print(
        f"{limits['gpu']}, torch {limits['torch']}: {limits['copied_bytes_per_second'] / 1e12:.2f} TB/s copied, "
        f"{limits['matmul_flops_per_second'] / 1e12:.0f} TFLOP/s in bf16\n",
        flush=True,
    )
    if "kernels" in parts:
        keep(kernels=printed([str(HERE / "attention.py")], environment))
        if result["kernels"] is None:
            failed.append("kernels")
    selected.model_dir.mkdir(parents=True, exist_ok=True)
    if "workload" in parts or "profile" in parts:
        weight_bytes = made_model(selected.model_dir)
    if "workload" in parts:
        size = {"num_requests": 24, "longest": 200} if selected.quick else {"num_requests": 256, "longest": 1024}
        found = entries(selected, size)
        run = measured(found, 1 if selected.quick else selected.rounds, selected.model_dir, environment)
        most = limit(nano_vllm_workload(**size), weight_bytes, limits)
        keep(workload=run, limit=most)
        print(f"\nlimit {most:,.0f} output tok/s\n{table(run, most)}\n", flush=True)
        print("\n".join(f"* {name}: {about}" for name, about in run["about"].items()), flush=True)
        failed += [f"workload ({name})" for name, about in run["about"].items() if about.startswith("failed")]
    if "profile" in parts:
        keep(profile=profiled(selected.model_dir, selected.quick, environment))
        if None in result["profile"]:
            failed.append("profile")
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def first() -> int:
    """Every stage of a first run; 1 if one failed."""
    log = Path("first_run.log")
    log.unlink(missing_ok=True)
    outcomes = run_first(stages(), log)
    print(report(outcomes))
    return int(any(outcome.verdict.startswith("failed") for outcome in outcomes))


def made_model(directory: Path) -> int:
    """In a process of its own: this one keeps no hold on the GPU."""
    code = f"import sys; sys.path.insert(0, {str(HERE)!r}); from workload import make_model; from pathlib import Path"
    done = subprocess.run([sys.executable, "-c", f"{code}; make_model(Path({str(directory)!r}))"], check=False)
    if done.returncode:
        raise SystemExit("the model could not be made, see above")
    return make_model(directory)


if __name__ == "__main__":
    main()
