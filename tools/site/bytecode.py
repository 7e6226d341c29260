"""Compile archives of Python sources, in the Python that will import them: bytecode.mjs calls it in Pyodide."""

import importlib._bootstrap_external as bootstrap
import importlib.util
import io
import sys
import zipfile
from collections.abc import Iterator

PLACE = "/lib/python3.14/site-packages"
"""The folder into which archives are unpacked, for the file names in tracebacks."""


def compiled(archive: bytes, keeps_sources: bool) -> bytes:
    """Return the archive with bytecode beside the sources, or instead of them."""
    written = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as sources, zipfile.ZipFile(written, "w") as target:
        for name in sources.namelist():
            for entry, data in _entries(name, sources.read(name), keeps_sources):
                target.writestr(zipfile.ZipInfo(entry), data, zipfile.ZIP_DEFLATED, 9)
    return written.getvalue()


def _entries(name: str, data: bytes, keeps_sources: bool) -> Iterator[tuple[str, bytes]]:
    if not name.endswith(".py"):
        yield name, data
        return
    code = compile(data, f"{PLACE}/{name}", "exec", dont_inherit=True)
    bytecode = bytes(bootstrap._code_to_hash_pyc(code, importlib.util.source_hash(data), False))  # never checked again
    if keeps_sources:
        folder, _, file = name.rpartition("/")
        yield name, data
        yield f"{folder}/__pycache__/{file[:-3]}.{sys.implementation.cache_tag}.pyc", bytecode
    else:
        yield f"{name}c", bytecode
