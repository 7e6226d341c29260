"""Tables of what was measured, and the limit beside which they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from workload import Workload

EMBEDDING_BYTES = 151936 * 1024 * 2


def most_tokens_per_second(workload: Workload, weight_bytes: int, limits: Mapping[str, Any]) -> float:
    """Output tokens per second that no engine can exceed which runs all requests together."""
    parameters = (weight_bytes - EMBEDDING_BYTES) / 2
    prompts = 2 * parameters * workload.num_prompt_tokens / limits["matmul_flops_per_second"]
    decodes = workload.floor_seconds(weight_bytes, limits["copied_bytes_per_second"])
    return workload.num_output_tokens / (prompts + decodes)


def speed_table(speeds: Mapping[str, Sequence[float]], about: Mapping[str, str], ours: str, most: float | None) -> str:
    """Markdown, then a line about each engine. Ratios are medians of the rounds' ratios.

    speeds: output tokens per second of each round. ours: the engine that the others are compared with.
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
    lines += ["", f"limit: {most:,.0f} output tok/s" if most else "the limit is not known"]
    return "\n".join([*lines, *(f"* {name}: {words}" for name, words in about.items())])


def profile_table(result: Mapping[str, Any]) -> str:
    """Phases in one line, then kernels."""
    phases = ", ".join(f"{phase} {ms:.3f}" for phase, ms in result["phases_ms"].items())
    recording = result["recording"]
    lines = [
        f"{result['batch']} decodes, context {result['context']}, blocks of {result['block_size']}: "
        f"{recording['silent_ms']:.3f} ms a step, {result['gpu_ms']:.3f} of it on the GPU; "
        f"with recording {recording['ratio']:.4f} of that",
        f"ms per phase, the GPU waited for behind each: {phases}",
        "",
        "| kernel | calls a step | ms a step |",
        "|---|---:|---:|",
        *(f"| `{row['kernel']}` | {row['calls']} | {row['ms']:.3f} |" for row in result["kernels"]),
    ]
    return "\n".join(lines)
