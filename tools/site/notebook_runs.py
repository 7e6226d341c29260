"""Runs of notebooks: their outputs, and the recordings of their views.

Notebooks without weights run while the site is built. Those with weights would make the build wait for a download and a
minute's conversion, so their runs are kept in docs/runs. python -m tools.site.notebook_runs [NAME ...] records them;
without a name, it records missing runs and runs of older code.
"""

from __future__ import annotations

import json
import lzma
import os
import re
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parent.parent.parent
NOTEBOOKS = ROOT / "notebooks"
KEPT = ROOT / "docs" / "runs"
WEIGHTS = re.compile(r"smollm2|gemma3-270m|model_path\(")
"""Code that loads a model with weights."""
KINDS = (
    "application/vnd.jupyter.widget-view+json",
    "application/vnd.plotly.v1+json",
    "image/svg+xml",
    "image/png",
    "text/html",
    "text/plain",
)
"""Kinds of outputs that a page shows, the preferred one first."""

CELL_FILE = re.compile(r"\S+/ipykernel_\d+/\d+\.py:(\d+)")
"""The file and line in a warning from a kernel's cell."""

Output = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """A notebook's run. code: digest of its code cells; outputs: of each code cell; views: by widget id.

    An output of kind "view" has the view's place after the cell ("at": the moment of each side).
    """

    code: str
    outputs: list[list[Output]]
    views: dict[str, dict[str, Any]]


def notebooks() -> list[Path]:
    """Return the notebooks in the order of the course."""
    return sorted(NOTEBOOKS.glob("*.ipynb"))


def code_cells(path: Path) -> list[str]:
    """Return the sources of a notebook's code cells."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def has_weights(path: Path) -> bool:
    """Return True if the notebook's code loads a model with weights."""
    return any(map(WEIGHTS.search, code_cells(path)))


def digest(path: Path) -> str:
    """Return a digest of a notebook's code."""
    return sha256(json.dumps(code_cells(path)).encode()).hexdigest()


def run_of(path: Path) -> Run | None:
    """Return the run of a notebook: the kept one if it needs weights, else a new one.

    None if the kept one is missing or belongs to older code.
    """
    if not has_weights(path):
        return executed(path)
    kept = kept_path(path)
    if not kept.is_file():
        return None
    run = loaded(kept)
    return run if run.code == digest(path) else None


def loaded(kept: Path) -> Run:
    """Return a kept run."""
    return Run(**json.loads(lzma.decompress(kept.read_bytes())))


def kept_path(path: Path) -> Path:
    """Return the path of a notebook's kept run."""
    return KEPT / f"{path.stem}.json.xz"


def executed(path: Path) -> Run:
    """Run a notebook from top to bottom in a new kernel. Raises CellExecutionError with the failing cell."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    with TemporaryDirectory() as folder:
        views = Path(folder, "views.json")
        last = f"from tools.site import recorder\nrecorder.write({str(views)!r})"
        notebook.cells.insert(0, nbformat.v4.new_code_cell("from tools.site import recorder\nrecorder.begin()"))
        notebook.cells.append(nbformat.v4.new_code_cell(last))
        client = NotebookClient(
            notebook, timeout=900, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}
        )
        client.execute(env=_environment(Path(folder)))
        described = json.loads(views.read_text(encoding="utf-8"))
    cells = [cell for cell in notebook.cells[1:-1] if cell.cell_type == "code"]
    outputs = [_joined([kept for output in cell.outputs if (kept := _kept(output))]) for cell in cells]
    _place(outputs, [described["moments"].get(str(cell.execution_count), {}) for cell in cells])
    shown = {one.get("view") for cell in outputs for one in cell}
    return Run(digest(path), outputs, {name: view for name, view in described["views"].items() if name in shown})


def _place(outputs: list[list[Output]], moments: list[dict[str, list[int]]]) -> None:
    """Have each view open at its moment after its cell; a cell that only steps a shown lab shows its view again.

    A comparison's view always opens at the first difference instead.
    """
    shown: dict[str, list[int]] = {}
    for cell, ends in zip(outputs, moments, strict=True):
        moved = [name for name, end in shown.items() if len(end) == 1 and ends.get(name, end) != end]
        if moved and all(output["kind"] == "text/plain" for output in cell):
            cell.append({"kind": "view", "view": moved[-1]})
        for output in cell:
            if output["kind"] == "view":
                output["at"] = ends.get(output["view"], [])
        displayed = [output["view"] for output in cell if output["kind"] == "view"]
        shown = {name: ends[name] for name in dict.fromkeys([*shown, *displayed]) if name in ends}


def all_runs(paths: Sequence[Path]) -> list[Run | None]:
    """Return the runs of several notebooks, run in parallel on all cores."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(run_of, paths))


def _environment(folder: Path) -> dict[str, str]:
    """Return the kernel's environment: this checkout, without the reader's progress."""
    packages = os.pathsep.join([str(ROOT), str(ROOT / "widgets")])
    return os.environ | {"PYTHONPATH": packages, "LABENGINE_PROGRESS": str(folder / "progress.json")}


def _kept(output: Any) -> Output | None:
    """Return the part of an output that a page shows: text, markup, or a widget's id."""
    if output.output_type == "stream":
        return {"kind": "stream", "name": output.name, "text": CELL_FILE.sub(r"line \1", output.text)}
    kind = next((kind for kind in KINDS if kind in output.get("data", {})), None)
    if kind is None:
        return None
    data = output.data[kind]
    if kind == KINDS[0]:
        return {"kind": "view", "view": data["model_id"]}
    text = output.data.get("text/plain", "")
    return {"kind": kind, "data": data} | ({"text": text} if kind == "image/svg+xml" else {})


def _joined(outputs: list[Output]) -> list[Output]:
    """Return the outputs with consecutive messages of a stream joined."""
    joined: list[Output] = []
    for output in outputs:
        last = joined[-1] if joined else {}
        if output["kind"] == "stream" and last.get("name") == output["name"]:
            joined[-1] = {**output, "text": last["text"] + output["text"]}
        else:
            joined.append(output)
    return joined


def keep(path: Path) -> Path:
    """Run a notebook and keep its run; return the run's path."""
    target = kept_path(path)
    target.parent.mkdir(exist_ok=True)
    text = json.dumps(asdict(executed(path)), separators=(",", ":"))
    for private in (str(ROOT), str(Path.home())):
        if private in text:
            raise SystemExit(f"{path.name} shows {private}, which must not be in a run kept for other readers")
    target.write_bytes(lzma.compress(text.encode(), preset=9))
    return target


if __name__ == "__main__":
    for notebook in notebooks():
        if notebook.stem in sys.argv[1:] or (not sys.argv[1:] and has_weights(notebook) and run_of(notebook) is None):
            kept = keep(notebook)
            print(f"{kept.relative_to(ROOT)}: {kept.stat().st_size / 1024:.0f} KB", flush=True)
