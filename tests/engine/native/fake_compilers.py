"""Programs that pose as C compilers."""

from __future__ import annotations

from pathlib import Path


def compiler(folder: Path, script: str, name: str = "fake-cc") -> str:
    """A shell script; $out is the file that it is asked for. It writes its calls to the file `calls` beside it."""
    path = folder / name
    find_out = 'for word; do [ "$last" = -o ] && out="$word"; last="$word"; done'
    path.write_text(f'#!/bin/sh\necho "$@" >>"{folder}/calls"\n{find_out}\n{script}\n')
    path.chmod(0o755)
    return str(path)


def giving(folder: Path, library: bytes, name: str = "fake-cc") -> str:
    """A compiler that compiles anything into this library."""
    (folder / f"{name}.so").write_bytes(library)
    return compiler(folder, f'cp "{folder}/{name}.so" "$out"', name)


def num_calls(folder: Path) -> int:
    """How often compilers in `folder` were run."""
    calls = folder / "calls"
    return len(calls.read_text().splitlines()) if calls.exists() else 0
