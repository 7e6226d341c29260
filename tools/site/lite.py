"""JupyterLite in the site: the course's notebooks with Python and labengine in the page, without any other host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tools.install import install_extra
from tools.site import lite_notebooks, python_packages
from tools.site.live_page import ROOT
from tools.site.python_packages import IN_A_BROWSER, Package

TOOLS = Path(sys.prefix, "jupyterlite")
"""JupyterLite's packages. They stay out of this environment, whose JupyterLab would load the kernel."""
KERNEL = "@jupyterlite/pyodide-kernel-extension"
EXTENSIONS = (
    TOOLS / "share" / "jupyter" / "labextensions" / KERNEL,
    Path(sys.prefix, "share", "jupyter", "labextensions", "@jupyter-widgets", "jupyterlab-manager"),
    Path(sys.prefix, "share", "jupyter", "labextensions", "anywidget"),
)
SUBSTITUTES = ("jedi", "micropip", "piplite")
FROM_THE_KERNEL = ("ipykernel", "pyodide_kernel")
PROGRESS = "/drive/progress_in_the_course.json"
"""The browser keeps the files of /drive."""
START = f"/lib/python{IN_A_BROWSER['python_version']}/site-packages/labengine/live_page/notebook_start.py"
"""What IPython executes before the first cell."""
SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/apputils-extension:themes": {"adaptive-theme": True},
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
}


def build(site: Path) -> Path:
    """Write lite/ into a site with its live page, whose Pyodide it shares; return the path of its front page."""
    if not EXTENSIONS[0].is_dir():
        install_extra("lite", TOOLS)
    folder = site.resolve() / "lite"
    with TemporaryDirectory() as place:
        source = Path(place)
        names = python_packages.write(source / "python", packages())
        recorded = lite_notebooks.write(source / "notebooks")
        (source / "jupyter-lite.json").write_text(json.dumps(_page(names)), encoding="utf-8")
        (source / "overrides.json").write_text(json.dumps(SETTINGS), encoding="utf-8")
        (source / "jupyter_lite_config.json").write_text(json.dumps(_build(source, folder)), encoding="utf-8")
        _run_jupyterlite(source)
        (source / "python").rename(folder / "python")
        (folder / "recorded.json").write_text(json.dumps(recorded), encoding="utf-8")
    return folder / "index.html"


def packages() -> Iterator[Package]:
    """Yield all packages that the kernel loads."""
    yield from python_packages.needed()
    for wheel in sorted((EXTENSIONS[0] / "static" / "pypi").glob("*.whl")):
        if wheel.name.startswith(FROM_THE_KERNEL):
            yield python_packages.from_wheel(wheel)
    for name in SUBSTITUTES:
        yield python_packages.substitute(name)


def _page(names: list[str]) -> dict[str, Any]:
    """Return the page's settings: Pyodide beside it, and these packages at the start instead of an index."""
    environment = {"LABENGINE_PROGRESS": PROGRESS, "PYTHONSTARTUP": START}
    pyodide = {"lockFileURL": "./python/pyodide-lock.json", "packages": names, "env": environment}
    kernel = {
        "pyodideUrl": "./../pyodide/pyodide.mjs",
        "disablePyPIFallback": True,
        "loadPyodideOptions": pyodide,
    }
    page = {"appName": "labengine", "exposeAppInBrowser": True, "litePluginSettings": {f"{KERNEL}:kernel": kernel}}
    return {"jupyter-lite-schema-version": 0, "jupyter-config-data": page}


def _build(source: Path, folder: Path) -> dict[str, Any]:
    settings = {
        "output_dir": str(folder),
        "apps": ["lab", "notebooks"],
        "contents": [str(source / "notebooks")],
        "federated_extensions": [str(extension) for extension in EXTENSIONS],
        "ignore_sys_prefix": ["federated_extensions"],
        "no_sourcemaps": True,
        "no_unused_shared_packages": True,
    }
    return {"LiteBuildConfig": settings}


def _run_jupyterlite(source: Path) -> None:
    paths = [str(TOOLS), str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-m", "jupyterlite_core", "build", "--lite-dir", str(source)]
    done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"JupyterLite was not built:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
