"""Test this machine's wheel: with each instruction set its tokens must equal those of this source install.

It is installed into an empty environment that sees this one's packages, but neither labengine nor a compiler.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import labengine
from labengine.engine.native.instruction_set import INSTRUCTION_SETS, VARIABLE, machine

GENERATE = """
import json, sys, labengine
found = []
for dtype in ("float32", "bfloat16"):
    lab = labengine.Lab(sys.argv[1], dtype=dtype, check=False)
    for prompt in ("Once upon a time", "The capital of France is", "def fibonacci(n):\\n"):
        lab.add(prompt, max_tokens=48)
    lab.run()
    found.append([request["token_ids"] for request in lab.snapshot().to_dict()["requests"].values()])
    forward = lab.status()["forward"]
    lab.close()
print(json.dumps([labengine.__file__, forward, found]))
"""
WHEELS = "from labengine's wheel"


def differences(tools: Path, wheel: Path, scratch: Path) -> Iterator[str]:
    """Yield a sentence for each set with which the wheel's kernels are not used, or compute different tokens.

    tools: a Python with pip. Prints a line for each set that agrees.
    """
    python = environment(tools, wheel, scratch / "empty")
    model = str(labengine.model_path("smollm2"))
    for isa in INSTRUCTION_SETS.values():
        if isa.machine != machine():
            continue
        if lacking := isa.lacking():
            print(f"{isa.name}: not tested, as it needs {', '.join(lacking)}")
            continue
        here = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        _, compiled, expected = generated(Path(sys.executable), model, isa.name, os.environ["PATH"], here)
        there = {"PYTHONPATH": "", "LABENGINE_CACHE": str(scratch / "cache")}  # the user's may hold compiled kernels
        place, forward, tokens = generated(python, model, isa.name, str(scratch / "empty" / "bin"), there)
        if not place.startswith(str(scratch)) or not forward.endswith(f"{isa.name} {WHEELS}"):
            yield f"{isa.name}: the wheel's kernels were not used, but {place}: {forward}"
        elif tokens != expected:
            yield f"{isa.name}: the wheel's tokens differ from those of kernels {compiled.split(isa.name)[-1].strip()}"
        else:
            count = sum(len(request) for requests in tokens for request in requests)
            print(f"{isa.name}: the same {count} tokens, fp32 and bf16")


def environment(tools: Path, wheel: Path, folder: Path) -> Path:
    """Make an environment with the wheel, and this environment's packages after it on the path. Return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    command = [str(tools), "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*command, str(wheel)], check=True)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))  # a path only; its .pth files are not read
    return python


def generated(
    python: Path, model: str, isa: str, path: str, variables: dict[str, str]
) -> tuple[str, str, list[list[list[int]]]]:
    """Return labengine's path, its description of the forward pass, and each request's tokens in both dtypes."""
    environment = {**os.environ, "PATH": path, VARIABLE: isa, **variables}
    environment.pop("CC", None)
    run = subprocess.run(
        [str(python), "-c", GENERATE, model], env=environment, cwd="/", check=True, stdout=subprocess.PIPE, text=True
    )
    place, forward, tokens = json.loads(run.stdout.splitlines()[-1])
    return place, forward, tokens
