"""Settings of all tests: a quiet machine, no network, the browser last."""

from __future__ import annotations

import os

# Before torch is imported: two cores are shared, spinning threads starve each other. Nothing here talks to a hub.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GOMP_SPINCOUNT", "0")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["HF_HUB_OFFLINE"] = "1"

import _thread
import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from checkout import ROOT
from costs import Costs, recorded
from ctrl_c import python_handles_sigint
from labengine.engine import endless
from labengine.isolation import alone, limits, memory_limit
from labengine_vllm.outbox import Outbox
from waiting import PATIENCE

if TYPE_CHECKING:
    from labengine.lab import Lab


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --costs."""
    parser.addoption("--costs", action="store_true", help="measure the tests' processor seconds, for tests/costs.txt")


def pytest_configure(config: pytest.Config) -> None:
    """Measure the costs if asked."""
    if config.getoption("--costs"):
        config.pluginmanager.register(Costs())


@pytest.fixture(scope="session")
def project_root() -> Path:
    """The folder that holds labengine/, widgets/, notebooks/ and tests/."""
    return ROOT


@pytest.fixture(scope="session", autouse=True)
def interrupts_as_in_a_terminal() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt in these tests and in the processes that they start."""
    with python_handles_sigint():
        yield


@pytest.fixture(scope="session", autouse=True)
def steps_may_take_long() -> Iterator[None]:
    """No step counts as endless after half a second, as long as a slow machine may take; their own tests set less."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(endless, "PATIENCE_S", PATIENCE)
        yield


@pytest.fixture(scope="session", autouse=True)
def taps_write_to_the_end() -> Iterator[None]:
    """A tap that is closed waits until its files are written, not for two seconds only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Outbox.close, "__defaults__", (PATIENCE,))
        yield


@pytest.fixture
def memory_ends_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copied process's memory ends before its time does, on a slow processor too."""
    monkeypatch.setattr(memory_limit, "MEMORY_BYTES", 2**25)
    monkeypatch.setattr(limits, "OPERATION_S", 300.0)
    monkeypatch.setattr(alone, "COMPUTING_S", 300.0)


@pytest.fixture(autouse=True)
def no_loop_runs_where_no_page_is_open(request: pytest.FixtureRequest) -> Iterator[None]:
    """Hide the event loop that playwright keeps on the main thread from tests that open no page."""
    loop = None if "browser" in request.fixturenames else asyncio._get_running_loop()
    if loop is not None:
        asyncio._set_running_loop(None)
    yield
    if loop is not None:
        asyncio._set_running_loop(loop)


@pytest.fixture(autouse=True)
def ctrl_c_stays_pythons() -> Iterator[None]:
    """Every test finds Python's own handler of SIGINT and leaves it in place."""
    with python_handles_sigint():
        yield


@pytest.fixture
def has_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread starts after this, as in a browser's Python, and no CPU time is known."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    monkeypatch.delattr(time, "thread_time")


@pytest.fixture(scope="session")
def jupyter_dirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Jupyter and IPython without this user's settings, kernels and history: set for the session, and returned."""
    base = tmp_path_factory.mktemp("jupyter")
    names = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "run",
        "IPYTHONDIR": "ipython",
    }
    dirs = {name: str(base / folder) for name, folder in names.items()}
    for folder in dirs.values():
        Path(folder).mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("JUPYTER_PATH", raising=False)
        for name, folder in dirs.items():
            patch.setenv(name, folder)
        yield dirs


@pytest.fixture(scope="session")
def loaded_smollm2() -> Iterator[Lab]:
    """The real model with 64 blocks of 4."""
    from labengine.lab import Lab

    with Lab("smollm2", num_blocks=64, block_size=4) as lab:
        yield lab


@pytest.fixture
def smollm2(loaded_smollm2: Lab) -> Lab:
    """The real model with an empty pool."""
    loaded_smollm2.reset()
    return loaded_smollm2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One worker more than there are cores: a test in a browser waits half of its time."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_finish() -> None:
    """Leave what was imported and collected out of every later garbage collection: there are millions of objects.

    Collect seventy times more rarely than Python does by itself, which took a seventh of the tests' processor time;
    a test of what is left over collects before it looks.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what drives a JupyterLab; it goes last, because it waits most.

    A test that is too expensive for every change is a sweep, unless it is a journey; all are when they are measured.
    """
    expensive = {} if config.getoption("--costs") else recorded()
    for item in items:
        if item.nodeid in expensive and not item.get_closest_marker("journey"):
            item.add_marker(pytest.mark.sweep)
    browser = Path(__file__).parent / "browser"
    for item in items:
        if item.path.is_relative_to(browser):
            item.add_marker(pytest.mark.browser)
    items.sort(key=lambda item: item.get_closest_marker("browser") is not None)
    _skip_gpu_tests_without_a_gpu([item for item in items if item.get_closest_marker("gpu")])


def _skip_gpu_tests_without_a_gpu(items: list[pytest.Item]) -> None:
    """A machine without CUDA says so in the summary; torch is imported only if some test asks."""
    if not items:
        return
    import torch

    if not torch.cuda.is_available():
        for item in items:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device; this machine has none"))
