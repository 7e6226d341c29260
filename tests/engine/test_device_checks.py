"""The checks of a device, on a CPU: they hold there, and they can fail."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from checkout import ROOT

sys.path.insert(0, str(ROOT / "benchmarks" / "gpu"))

import device_checks
from workload import make_model

from labengine import StaticRunner


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tiny")
    make_model(directory, device_checks.TINY)
    return directory


def test_checks_on_a_cpu(model: Path) -> None:
    assert device_checks.loads(model, "cpu", 2).startswith("2 loads")
    assert device_checks.threads(model, ("cpu", "cpu")) == "a background run on cpu gives the tokens of cpu"
    words = device_checks.wide_tables(model, "cpu", rows=9, width=600, runner=StaticRunner)
    assert words.startswith("9 rows with tables of 600 columns")


def test_checks_fail() -> None:
    mib = 2**20
    device_checks.require_no_growth([100 * mib] * 5 + [110 * mib] * 35)
    with pytest.raises(AssertionError, match="memory grew by 35 MiB"):
        device_checks.require_no_growth([(100 + load) * mib for load in range(40)])
    with pytest.raises(AssertionError, match="1 of 2 answers differ, first that of request 1"):
        device_checks.require_equal([(1,), (2,)], [(1,), (3,)])


def test_decodes_that_are_not_recorded_are_no_check(model: Path) -> None:
    with pytest.raises(AssertionError, match="not recorded"):
        device_checks.wide_tables(model, "cpu", rows=2, width=100)
