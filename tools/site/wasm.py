"""The CPU kernels for the page: csrc compiled to WebAssembly by Zig's compiler, like in `make wheels`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from labengine.engine.native.compile import SOURCES
from labengine.engine.sources.cache import cache_root
from labengine.system.atomic_write import write_atomically
from tools.wheels import ROOT, ZIG, environment

PAGE_SOURCES = ROOT / "labengine" / "engine" / "wasm" / "csrc"
FLAGS = (
    *("-target", "wasm32-wasi", "-mexec-model=reactor", "-mcpu=generic+simd128+bulk_memory", "-s"),
    *("-std=gnu11", "-O3", "-fno-math-errno", "-fno-trapping-math"),
    *("-D_WASI_EMULATED_GETPID", "-lwasi-emulated-getpid", "-Wl,-z,stack-size=1048576"),
)


def kernels() -> bytes:
    """Return the module, which imports nothing. It is rebuilt only for new sources, and kept in the user's cache."""
    kept = cache_root() / "wasm" / f"{_digest()}.wasm"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(kept, _built())
    return kept.read_bytes()


def _built() -> bytes:
    """Compile the module; with fetching the compiler, a wheel of 100 MB, this takes about a minute."""
    print("site: compiling the kernels to WebAssembly (once, about a minute)", flush=True)
    with TemporaryDirectory(prefix="labengine-wasm-") as place:
        python, out = environment(Path(place) / "tools", [ZIG]), Path(place, "kernels.wasm")
        folders = [f"-I{PAGE_SOURCES / 'shim'}", f"-I{SOURCES}"]
        command = [str(python), "-m", "ziglang", "cc", *FLAGS, *folders, str(PAGE_SOURCES / "page.c"), "-o", str(out)]
        subprocess.run(command, check=True)
        return out.read_bytes()


def _digest() -> str:
    """Return a digest of everything that the module depends on."""
    digest = sha256("\0".join([ZIG, *FLAGS]).encode())
    for source in _sources():
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:24]


def _sources() -> Iterator[Path]:
    yield from sorted(SOURCES.iterdir())
    yield from sorted(file for file in PAGE_SOURCES.rglob("*") if file.is_file())
