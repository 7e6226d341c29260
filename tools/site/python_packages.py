"""The Python packages of the notebooks in the page: this environment's, compiled for Pyodide, with a lock."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import Distribution, distribution
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.site.live_page import PACKAGES, PYODIDE, ROOT

SUBSTITUTES = Path(__file__).with_name("substitutes")
IN_A_BROWSER = {"sys_platform": "emscripten", "platform_system": "Emscripten", "python_version": "3.14", "extra": ""}
IN_A_BROWSER |= {"python_full_version": "3.14.2", "implementation_name": "cpython", "os_name": "posix"}
LEFT_OUT = {"jedi", "parso", "widgetsnbextension", "jupyterlab-widgets"}
"""Required but not needed: IPython completes without jedi (15 MB), and JupyterLite has the widgets' browser half."""
SUFFIXES = {".py", ".json", ".toml", ".js", ".css"}
METADATA = {"METADATA", "entry_points.txt"}


@dataclass(frozen=True)
class Package:
    """A package for Pyodide. files: contents by path, including the metadata."""

    name: str
    version: str
    files: dict[str, bytes]

    @property
    def archive(self) -> str:
        """The name of the package's archive, from which Pyodide reads the archive's kind."""
        return f"{self.name.replace('-', '_')}-{self.version}-py3-none-any.whl"


def needed() -> Iterator[Package]:
    """Yield labengine from this checkout, and its installed dependencies."""
    for name in sorted(_required("labengine", set())):
        yield _labengine() if name == "labengine" else installed(distribution(name))


def _required(name: str, found: set[str]) -> set[str]:
    found.add(name)
    for line in distribution(name).requires or []:
        requirement = Requirement(line)
        other = canonicalize_name(requirement.name)
        if other in found | LEFT_OUT or (requirement.marker and not requirement.marker.evaluate(IN_A_BROWSER)):
            continue
        _required(other, found)
    return found


def _labengine() -> Package:
    own = distribution("labengine")
    files = {
        f"{package}/{file.relative_to(folder).as_posix()}": file.read_bytes()
        for package, folder in PACKAGES.items()
        for file in folder.rglob("*")
        if file.suffix in SUFFIXES and "__pycache__" not in file.parts
    }
    return Package("labengine", own.version, files | _metadata("labengine", own.version))


def installed(package: Distribution) -> Package:
    """Return the Python part of an installed package, without tests and compiled modules."""
    name = canonicalize_name(package.metadata["Name"])
    files: dict[str, bytes] = {}
    for file in package.files or []:
        if file.parts[0].endswith(".dist-info"):
            is_taken = file.name in METADATA
        else:
            is_taken = file.suffix in SUFFIXES and not {"..", "__pycache__", "tests"} & set(file.parts)
        if is_taken:
            files[file.as_posix()] = Path(str(file.locate())).read_bytes()
    return Package(name, package.version, files)


def from_wheel(path: Path) -> Package:
    """Return a package from its wheel."""
    name, version, *_ = path.name.split("-")
    with ZipFile(path) as wheel:
        return Package(canonicalize_name(name), version, {one: wheel.read(one) for one in wheel.namelist()})


def substitute(name: str) -> Package:
    """Return our replacement of a package: from substitutes/, or an empty one."""
    files = {path.relative_to(SUBSTITUTES).as_posix(): path.read_bytes() for path in (SUBSTITUTES / name).rglob("*.py")}
    return Package(name, "0", files | _metadata(name, "0"))


def _metadata(name: str, version: str) -> dict[str, bytes]:
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    return {f"{name}-{version}.dist-info/METADATA": text.encode()}


def write(folder: Path, packages: Iterable[Package]) -> list[str]:
    """Write the packages' archives into a folder, with a lock for Pyodide to find them; return their names."""
    folder.mkdir(parents=True)
    rows: dict[str, dict[str, object]] = {}
    for package in packages:
        with ZipFile(folder / package.archive, "w") as archive:
            for name, data in sorted(package.files.items()):
                archive.writestr(ZipInfo(name), data, ZIP_DEFLATED, 1)
        rows[package.name] = {"name": package.name, "version": package.version, "file_name": package.archive}
    _compile(folder)
    for row in rows.values():
        digest = sha256((folder / str(row["file_name"])).read_bytes()).hexdigest()
        row |= {"sha256": digest, "install_dir": "site", "package_type": "package", "unvendored_tests": False}
        row |= {"imports": [], "depends": []}  # all are loaded at the start
    lock = json.loads((PYODIDE / "pyodide-lock.json").read_text(encoding="utf-8"))
    (folder / "pyodide-lock.json").write_text(json.dumps({**lock, "packages": rows}), encoding="utf-8")
    return list(rows)


def _compile(folder: Path) -> None:
    """Put bytecode into the archives, as a browser would need seconds to compile the imports.

    Only labengine's sources are kept, because notebooks print them.
    """
    script = Path(__file__).with_name("bytecode.mjs")
    command = [
        sys.executable,
        "-m",
        "tools.node",
        "node",
        str(script),
        str(PYODIDE),
        str(folder.resolve()),
        "labengine-",
    ]
    subprocess.run(command, cwd=ROOT, check=True)
