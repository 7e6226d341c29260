"""Checks of a lab that need a device, one per process, called by `first.py`.

    python benchmarks/gpu/device_checks.py loads|threads|wide_tables|full_memory

Each prints a line with its result, and fails by an exception. The model is tiny, random and float32, so that tokens can
be compared: the gaps between logits are wider than rounding.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent), str(HERE)]

import torch  # noqa: E402
from stages import LEFT_OUT  # noqa: E402
from workload import make_model  # noqa: E402

from labengine import Lab  # noqa: E402

TINY = {
    "vocab_size": 1003,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "initializer_range": 0.3,
}
WARM_LOADS = 5
"""Number of loads after which libraries and kernels hold all the memory they keep."""
ALLOWED_GROWTH = 16 * 2**20


def lab_of(model: Path, **settings: Any) -> Lab:
    return Lab(model, **{"dtype": "float32", "num_blocks": 64, "record": False, "check": False, **settings})


def tokens_of(lab: Lab, lengths: Sequence[int] = (5, 17, 40), max_tokens: int = 8) -> list[tuple[int, ...]]:
    """Return answers to prompts of these lengths."""
    prompts = [Random(i).choices(range(2, 1003), k=length) for i, length in enumerate(lengths)]
    requests = [lab.add(token_ids=prompt, max_tokens=max_tokens, ignore_eos=True) for prompt in prompts]
    lab.run()
    return [lab.output(request).token_ids for request in requests]


def loads(model: Path, device: str = "cuda", times: int = 40) -> str:
    """Check that forty labs with graphs, one by one, do not shrink the driver's free memory."""
    used = []
    for _ in range(times):
        with closing(lab_of(model, device=device)) as lab:
            tokens_of(lab)
        if device.startswith("cuda"):
            free, total = torch.cuda.mem_get_info(device)
            used.append(total - free)
    require_no_growth(used)
    return f"{times} loads and closes, MiB used after each: {[num_bytes >> 20 for num_bytes in used]}"


def require_no_growth(used: Sequence[int]) -> None:
    growth = used[-1] - used[WARM_LOADS - 1] if len(used) > WARM_LOADS else 0
    if growth > ALLOWED_GROWTH:
        mib = [num_bytes >> 20 for num_bytes in used]
        raise AssertionError(f"memory grew by {growth / 2**20:.0f} MiB after the load {WARM_LOADS}: {mib} MiB")


def threads(model: Path, devices: tuple[str, str] = ("cuda:0", "cuda:1")) -> str:
    """Check that a background run on the second device, started from the first one's thread, gives the same tokens."""
    if devices[1].startswith("cuda") and torch.cuda.device_count() < 2:
        return f"{LEFT_OUT}there is only one GPU"
    here, there = (lab_of(model, device=device) for device in devices)
    with closing(here), closing(there):
        expected = tokens_of(here)
        requests = [there.add(token_ids=Random(i).choices(range(2, 1003), k=n), max_tokens=8, ignore_eos=True)
                    for i, n in enumerate((5, 17, 40))]  # fmt: skip
        there.start()
        deadline = time.monotonic() + 120
        while there.is_running and time.monotonic() < deadline:
            time.sleep(0.05)
        there.pause()
        if there.background_error is not None:
            raise there.background_error
        require_equal(expected, [there.output(request).token_ids for request in requests])
    return f"a background run on {devices[1]} gives the tokens of {devices[0]}"


def wide_tables(model: Path, device: str = "cuda", rows: int = 256, width: int = 40960, **settings: Any) -> str:
    """Check that tables as large as a Qwen3 graph's with one-token blocks give the tokens of a lab without graphs."""
    size = {
        "device": device,
        "block_size": 1,
        "num_blocks": width,
        "max_num_seqs": rows,
        "max_num_batched_tokens": 8192,
    }
    answers = []
    for graphs in (settings, {"cuda_graphs": False}):
        with closing(lab_of(model, **size, **graphs)) as lab:
            forward = lab.status()["forward"]
            answers.append(tokens_of(lab, [3 + row % 29 for row in range(rows)], 6))
        if graphs is settings and not forward.startswith(("CUDA graphs", "replay")):
            raise AssertionError(f"decodes are not recorded: {forward}")
    require_equal(*answers)
    return f"{rows} rows with tables of {width} columns: graphs give the tokens of the plain forward"


def fill_memory(device: str) -> list[torch.Tensor]:
    """Take all remaining memory, in pieces."""
    torch.cuda.empty_cache()
    ballast, size = [], 2**34
    while size >= 2**20:
        try:
            ballast.append(torch.empty(size, dtype=torch.uint8, device=device))
        except torch.OutOfMemoryError:
            size //= 2
    return ballast


def full_memory(
    model: Path,
    device: str = "cuda",
    length: int = 30_000,
    num_blocks: int | str = "auto",
    fill: Callable[[str], list[torch.Tensor]] = fill_memory,
) -> str:
    """Check that a step without memory gives advice, changes nothing, and works once there is memory again."""
    with closing(lab_of(model, device=device, num_blocks=num_blocks, max_num_batched_tokens=32768)) as lab:
        expected = tokens_of(lab, (length,))
        lab.reset_prefix_cache()
        ballast = fill(device)
        prompt = Random(0).choices(range(2, 1003), k=length)
        request = lab.add(token_ids=prompt, max_tokens=8, ignore_eos=True)
        try:
            lab.run()
        except torch.OutOfMemoryError as error:
            advice = str(error)
        else:
            raise AssertionError(f"a prompt of {length:,} tokens was computed without memory")
        if "give a smaller num_blocks" not in advice:
            raise AssertionError(f"no advice in: {advice}")
        ballast.clear()
        torch.cuda.empty_cache()
        lab.run()
        require_equal(expected, [lab.output(request).token_ids])
        pool = lab.status()["kv_pool"]
    return f"{pool}; without memory: {advice.splitlines()[0][:160]}"


def require_equal(expected: Sequence[object], found: Sequence[object]) -> None:
    wrong = [row for row, (one, other) in enumerate(zip(expected, found, strict=True)) if one != other]
    if wrong:
        raise AssertionError(f"{len(wrong)} of {len(expected)} answers differ, first that of request {wrong[0]}: "
                             f"{expected[wrong[0]]} and {found[wrong[0]]}")  # fmt: skip


CHECKS: dict[str, Callable[[Path], str]] = {
    "loads": loads,
    "threads": threads,
    "wide_tables": wide_tables,
    "full_memory": full_memory,
}


def main() -> None:
    name = sys.argv[1] if len(sys.argv) == 2 else ""
    if name not in CHECKS:
        raise SystemExit(f"one of {', '.join(CHECKS)} is needed")
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder)
        make_model(model, TINY)
        print(CHECKS[name](model))


if __name__ == "__main__":
    main()
