"""A pytest plugin: kernels that cases launch are compiled for a GPU that need not be here, and are not run.

    PYTHONPATH=tests python -m pytest -p engine.compiled_cases tests/engine/triton_sampler_cases.py

Nothing is computed, so whatever a case finds wrong says nothing: it fails only where a kernel does not compile. The
run fails as well if it launches none of some kernel: labengine's, and those of the case files.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import Tensor
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

from checkout import ROOT
from labengine.engine import sampler_cut_kernels, sampler_kernels, triton_sampler
from labengine.engine.attention import triton_kernels
from labengine.engine.attention.triton import TritonAttention
from labengine.engine.ops import triton_kernels as ops_kernels
from labengine.engine.ops.triton import TritonOps

sys.path.insert(0, str(ROOT / "benchmarks" / "gpu"))

from standin_driver import StandinDriver

LABENGINES = (triton_kernels, ops_kernels, sampler_kernels, sampler_cut_kernels)
COMPARISONS = {"largest_error": 0.0, "largest_difference": 0.0, "agrees": True, "are_drawn": True}
"""Functions of the case files, and what they return where all is well: a case goes on to its later launches."""
OLDEST_WITH_BFLOAT16 = 80


class CompiledCases:
    """One run: the kernels that are to be launched, and those that were."""

    def __init__(self, capability: int, every_launch: bool) -> None:
        self._capability, self._every_launch = capability, every_launch
        self.wanted: set[str] = set()
        self.compiled: set[str] = set()
        self.num_failed = 0
        self._run = JITFunction.run

    def start(self) -> None:
        """Let launches only compile, and believe that the CPU's tensors are a GPU's; for the rest of the process."""
        driver.set_active(StandinDriver(self._capability))  # type: ignore[arg-type]
        JITFunction.run = lambda kernel, *args, **options: self._compile(kernel, *args, **options)
        for backend in (TritonAttention, TritonOps):
            backend.refusal = backend.unsupported = lambda *_: None  # type: ignore[attr-defined, method-assign]
        triton_sampler.refusal = lambda device: None
        torch.equal = torch.allclose = lambda *_, **__: True  # type: ignore[assignment]
        torch.testing.assert_close = lambda *_, **__: None
        # What no kernel fills is the same in each run, so that each run launches the same.
        torch.empty, torch.empty_like, Tensor.new_empty = torch.zeros, torch.zeros_like, Tensor.new_zeros

    def _compile(self, kernel: Any, *args: Any, **options: Any) -> None:
        name = kernel.fn.__name__
        if name in self.compiled and not self._every_launch:
            return
        is_bfloat16 = any(isinstance(arg, Tensor) and arg.dtype == torch.bfloat16 for arg in args)
        if is_bfloat16 and self._capability < OLDEST_WITH_BFLOAT16:
            return
        try:
            self._run(kernel, *args, **{**options, "warmup": True})  # a launch that ends with the compiled kernel
        except BaseException:
            self.num_failed += 1
            raise
        self.compiled.add(name)

    # -- pytest's hooks ------------------------------------------------------------------------------------------------

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note the kernels, and replace the comparisons of the case files."""
        modules = {item.module for item in session.items if isinstance(item, pytest.Function)}
        for module in (*LABENGINES, *modules):
            self.wanted |= {name for name, kernel in vars(module).items() if _is_kernel_of(module, name, kernel)}
        for module in modules:
            for name in COMPARISONS.keys() & vars(module).keys():
                setattr(module, name, _going_on(getattr(module, name), COMPARISONS[name]))

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> Iterator[None]:
        """Let a case fail only if a kernel did."""
        before = self.num_failed
        try:
            yield
        except (Exception, pytest.fail.Exception):
            if self.num_failed > before:
                raise
        return True

    def pytest_runtest_logfinish(self) -> None:
        """End the run when each kernel is compiled, unless every launch is."""
        if not self._every_launch and self.compiled >= self.wanted:
            self._session.shouldstop = "each kernel is compiled"

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Keep the session, which can be stopped."""
        self._session = session

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the run if a kernel was not launched."""
        if session.exitstatus == pytest.ExitCode.INTERRUPTED and not self.num_failed:
            session.exitstatus = pytest.ExitCode.OK
        if self.wanted - self.compiled:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Name the kernels."""
        terminalreporter.write_line(f"compiled for sm_{self._capability}: {', '.join(sorted(self.compiled))}")
        if missing := self.wanted - self.compiled:
            terminalreporter.write_line(f"NOT LAUNCHED: {', '.join(sorted(missing))}")


def _is_kernel_of(module: Any, name: str, kernel: object) -> bool:
    return isinstance(kernel, JITFunction) and kernel.fn.__module__ == module.__name__ and not name.startswith("_")


def _going_on(compare: Callable[..., object], result: object) -> Callable[..., object]:
    """Return a comparison that launches what it launches, and finds all well."""

    def compared(*args: Any, **options: Any) -> object:
        with suppress(AssertionError, FloatingPointError):
            compare(*args, **options)
        return result

    return compared


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the run's two options."""
    parser.addoption("--capability", type=int, default=90, help="compile for this compute capability, times 10")
    parser.addoption("--every-launch", action="store_true", help="compile for every launch, not each kernel once")


def pytest_configure(config: pytest.Config) -> None:
    """Begin before the case files are imported: they ask for the driver's device."""
    cases = CompiledCases(config.getoption("--capability"), config.getoption("--every-launch"))
    cases.start()
    config.pluginmanager.register(cases)
