"""The site's front page, a lab that runs in the page. Pyodide comes from node_modules."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from gzip import compress
from html import escape
from importlib.metadata import distribution
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from labengine.core.editions import EDITIONS
from labengine.live_page.permalink import Permalink
from labengine.live_page.session import open_session, sliders_of
from labengine.scenarios import bugs
from labengine.scenarios.scenario import Scenario
from labengine.scenarios.tiny_model import TinyModelScenario
from labengine.session.compare.comparison import Comparison
from labengine_widgets.pages.export import pair_payloads
from labengine_widgets.pages.html_page import LOOK
from tools.site import real_model
from tools.site.opening import opening

ROOT = Path(__file__).parent.parent.parent
SOURCES = ROOT / "widgets" / "live_page"
PYODIDE = ROOT / "node_modules" / "pyodide"
PYODIDE_FILES = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip")
PACKAGES = {"labengine": ROOT / "labengine", "labengine_widgets": ROOT / "widgets" / "labengine_widgets"}
PURE = "tqdm"
"""An installed package that the simulated lab needs too, for its progress bars."""
SUFFIXES = (".py", ".json", ".toml")
"""Files of the packages that the page needs, without the browser half, which comes with the page."""


def build(
    site: Path, scenarios: Iterable[Scenario] | None = None, write_model: Callable[[Path], object] | None = None
) -> Path:
    """Write the site into a folder, which is emptied first; return the path of its front page.

    scenarios: those to record and offer; None for all that need no model. write_model: writes the real model's files
    (real_model.write); without it the page does not offer one.
    """
    shown = [one for one in scenarios or bugs() if not isinstance(one, TinyModelScenario)]
    shutil.rmtree(site, ignore_errors=True)
    site.mkdir(parents=True)
    copy_pyodide(site / "pyodide")
    bundle(site)
    (site / "look.css").write_text(LOOK, encoding="utf-8")
    write_packages(site / "labengine.zip")
    (site / "recorded").mkdir()
    (site / "recorded" / "opening.bin").write_bytes(opening())
    for scenario in shown:
        (site / "recorded" / f"{scenario.id}.bin").write_bytes(recorded(scenario))
    shutil.copyfile(SOURCES / "doctor.html", site / "doctor.html")
    write_offline(site)
    if write_model is not None:
        write_model(site)
    index = site / "index.html"
    index.write_text(page(shown, real_model.num_bytes(site)), encoding="utf-8")
    return index


def write_offline(site: Path) -> None:
    """Write the service worker that keeps all files of the page; all but its front page must exist."""
    files = (file.relative_to(site).as_posix() for file in site.rglob("*") if file.is_file())
    text = (SOURCES / "offline.js").read_text(encoding="utf-8")
    (site / "offline.js").write_text(text.replace("@FILES@", " ".join(["./", *sorted(files)])), encoding="utf-8")


def copy_pyodide(folder: Path) -> None:
    """Copy Pyodide, with a lock without packages, as the page fetches none."""
    if not PYODIDE.is_dir():
        raise SystemExit(f"{PYODIDE.relative_to(ROOT)} is missing: make setup fetches it from npm's registry")
    folder.mkdir()
    for name in PYODIDE_FILES:
        shutil.copyfile(PYODIDE / name, folder / name)
    lock = json.loads((PYODIDE / "pyodide-lock.json").read_text(encoding="utf-8"))
    (folder / "pyodide-lock.json").write_text(json.dumps({**lock, "packages": {}}), encoding="utf-8")


def bundle(site: Path) -> None:
    """Bundle the page's scripts and its style sheet."""
    command = [sys.executable, "-m", "tools.node", "node", str(SOURCES / "bundle.mjs"), str(site.resolve())]
    subprocess.run(command, cwd=ROOT, check=True)


def write_packages(path: Path) -> None:
    """Write both packages as an archive that is identical for identical sources."""
    with ZipFile(path, "w") as archive:
        for name, file in sorted(_package_files()):
            archive.writestr(ZipInfo(name), file.read_bytes(), ZIP_DEFLATED, 9)


def _package_files() -> Iterator[tuple[str, Path]]:
    for package, folder in PACKAGES.items():
        for file in folder.rglob("*"):
            if file.suffix in SUFFIXES and "__pycache__" not in file.parts:
                yield f"{package}/{file.relative_to(folder).as_posix()}", file
    for installed in distribution(PURE).files or []:
        if installed.suffix == ".py":
            yield installed.as_posix(), Path(str(installed.locate()))


def recorded(scenario: Scenario) -> bytes:
    """Return a scenario's opening comparison and sliders, to show before Python has loaded, as gzipped JSON.

    Its labs have the names of the first two labs of a process, like the page's labs.
    """
    session = open_session(Permalink(bug=scenario.id))
    assert isinstance(session.shown, Comparison)
    with session.shown as comparison:
        recordings = [json.loads(payload) for payload in pair_payloads(comparison, comparison.title)]
        sliders = sliders_of(session)
    for number, one in enumerate(recordings[:2], 1):
        one["header"]["lab"] = f"lab {number}"
    picture = {"recordings": recordings, "varied": None if sliders is None else sliders.to_dict()}
    return compress(json.dumps(picture, separators=(",", ":")).encode(), mtime=0)


def page(scenarios: Iterable[Scenario], model_bytes: int) -> str:
    """Return the front page, with these scenarios and all editions to choose from.

    model_bytes: size of the real model's weights, 0 for a site without one.
    """
    options = "".join(
        f'<option value="{escape(one.id)}">{escape(f"{one.id}: {one.title}")}</option>' for one in scenarios
    )
    editions = "".join(f'<option value="{escape(name)}">{escape(name)}</option>' for name in EDITIONS)
    text = (SOURCES / "index.html").read_text(encoding="utf-8")
    values = {
        "SCENARIOS": options,
        "EDITIONS": editions,
        "MODEL_BYTES": str(model_bytes),
        "MODEL_MB": str(round(model_bytes / 1e6)),
    }
    return re.sub("@([A-Z_]+)@", lambda found: values[found[1]], text)
