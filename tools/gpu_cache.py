"""Pack a Triton cache for another machine with an H100: `python -m tools.gpu_cache`, or `make gpu-cache`.

Kernels are compiled here, without a device, by the versions of Python, torch and Triton on that machine, in a temporary
environment, or in the one named by GPU_VENV, which is created if missing, and kept. The archive holds the folder
`lab_triton_cache`; unpack it into the machine's temporary folder, and name it in TRITON_CACHE_DIR.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
ARCHIVE = ROOT / ".gpu" / "triton_cache.tar.xz"
PYTHON = "3.12"
PINNED = {"torch": "2.11.0", "triton": "3.6.0", "transformers": "5.17.0"}
"""The machine's versions. Triton's keys include a digest of its library, which is built for one Python."""
FOR_THE_CASES = (
    "hypothesis",
    "jinja2",
    "numpy",
    "psutil",
    "pydantic",
    "pytest",
    "pytest-timeout",
    "safetensors",
    "tqdm",
)
FOLDER = "lab_triton_cache"
THERE = Path(tempfile.gettempdir()) / FOLDER
"""The cache's final folder, as Triton stores the complete paths of a kernel's files."""
GROUP = "__grp__"
"""Prefix of the names of files with such paths."""


def main() -> int:
    """Compile, pack, and compile again with the packed cache. Return 1 if that compiles anything."""
    with TemporaryDirectory(prefix="labengine-gpu-cache-") as place:
        python = environment(Path(place) / "venv")
        compiled, unpacked = Path(place) / "compiled", Path(place) / "unpacked"
        compile_all(python, compiled)
        pack(compiled, ARCHIVE)
        num_kernels = len(cubins(compiled))
        print(f"gpu-cache: {num_kernels} kernels, {ARCHIVE.stat().st_size / 2**20:.1f} MiB: {ARCHIVE}", flush=True)
        unpack(ARCHIVE, unpacked)
        compile_all(python, unpacked / FOLDER)
        num_missed = len(cubins(unpacked)) - num_kernels
    print(f"gpu-cache: with it, {num_missed} kernels were compiled")
    return int(num_missed > 0)


# -- the machine's Python ----------------------------------------------------------------------------------------------


def environment(fallback: Path) -> Path:
    """Return the Python of an environment with the machine's versions: GPU_VENV's, or a new one's."""
    folder = Path(os.environ.get("GPU_VENV") or fallback)
    python = folder / "bin" / "python"
    if not python.exists():
        interpreter = python_of_the_machine()
        print(f"gpu-cache: making {folder} (torch and CUDA's libraries: 3 GB)", flush=True)
        subprocess.run([interpreter, "-m", "venv", folder], check=True)
        packages = [*(f"{name}=={version}" for name, version in PINNED.items()), *FOR_THE_CASES]
        flags = os.environ.get("PIP_FLAGS", "").split()
        subprocess.run([python, "-m", "pip", "install", "--quiet", *flags, *packages], check=True)
    require_versions(python)
    return python


def python_of_the_machine() -> str:
    """Return a Python of the machine's version: PYTHON312, or the path's, or pyenv's. Exits if there is none."""
    for candidate in candidates():
        try:
            found = subprocess.run([candidate, "-c", VERSION], capture_output=True, text=True)
        except OSError:
            continue
        if found.stdout.strip() == PYTHON:
            return candidate
    raise SystemExit(
        f"gpu-cache: no Python {PYTHON}, the GPU machine's version; its Triton accepts only kernels made with it.\n"
        f"Install it (with venv and pip), and name it: make gpu-cache PYTHON312=/path/to/python{PYTHON}; "
        f"or name an environment with {', '.join(f'{name} {version}' for name, version in PINNED.items())}: "
        "make gpu-cache GPU_VENV=/path/to/environment"
    )


VERSION = "import sys; print('{}.{}'.format(*sys.version_info))"


def candidates() -> Iterator[str]:
    """Yield possible paths of a Python with the machine's version."""
    if named := os.environ.get("PYTHON312"):
        yield named
    else:
        yield f"python{PYTHON}"
        pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
        yield from map(str, sorted(pyenv.glob(f"versions/{PYTHON}*/bin/python{PYTHON}")))


def require_versions(python: Path) -> None:
    """Exit if an environment's versions differ from the machine's."""
    ask = f"{VERSION}; from importlib.metadata import version; print(*map(version, {[*PINNED]}))"
    found = subprocess.run([python, "-c", ask], capture_output=True, text=True)
    wanted = [PYTHON, *PINNED.values()]
    if found.stdout.split() != wanted:
        has = ", ".join(found.stdout.split()) or found.stderr.strip().splitlines()[-1]
        names = ", ".join(("Python", *PINNED))
        raise SystemExit(f"gpu-cache: {python} needs {names} in {', '.join(wanted)}, but has {has}")


# -- compiling and packing ---------------------------------------------------------------------------------------------


def compile_all(python: Path, cache: Path) -> None:
    """Compile all kernels of Triton's cases, known models and the figures into a cache."""
    paths = os.pathsep.join(str(ROOT / folder) for folder in ("", "widgets", "vllm_tap", "tests"))
    settings = {"TRITON_CACHE_DIR": str(cache), "TRITON_INTERPRET": "0", "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    cases = sorted(ROOT.glob("tests/engine/triton_*_cases.py"))
    plugins = ["-p", "no:cacheprovider", "-p", "engine.compiled_cases"]
    for command in (
        [python, ROOT / "benchmarks" / "gpu" / "known_launches.py"],
        [python, "-m", "pytest", "-q", *plugins, "--every-launch", *cases],
    ):
        subprocess.run(command, cwd=ROOT, env={**os.environ, **settings}, check=True)


def cubins(folder: Path) -> list[Path]:
    """Return the kernels of a cache."""
    return [*folder.rglob("*.cubin")]


def pack(cache: Path, archive: Path) -> None:
    """Pack the files that a launch reads, kernels and metadata, with their final paths."""
    archive.parent.mkdir(exist_ok=True)
    with TemporaryDirectory(prefix="labengine-gpu-cache-") as place, tarfile.open(archive, "w:xz", preset=6) as packed:
        for kernel in cubins(cache):
            folder = Path(place) / FOLDER / kernel.parent.name
            folder.mkdir(parents=True, exist_ok=True)
            for file in (kernel, *kernel.parent.glob("*.json")):
                (folder / file.name).write_bytes(moved(file) if file.name.startswith(GROUP) else file.read_bytes())
        packed.add(Path(place) / FOLDER, FOLDER)


def moved(group: Path) -> bytes:
    """Return a group's file with the final paths of the kernel and its metadata."""
    content = json.loads(group.read_text())
    folder = THERE / group.parent.name
    kept = [name for name in content["child_paths"] if name.endswith((".cubin", ".json"))]
    return json.dumps({**content, "child_paths": {name: str(folder / name) for name in kept}}).encode()


def unpack(archive: Path, folder: Path) -> None:
    """Unpack into a folder, with paths adapted to it."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    for group in folder.rglob(f"{GROUP}*"):
        group.write_text(group.read_text().replace(str(THERE), str(folder / FOLDER)))


if __name__ == "__main__":
    sys.exit(main())
