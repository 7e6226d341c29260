"""How torch's threads wait, without a change of the user's environment. Each case in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SAY = "import os; print(sorted(n for n in os.environ if n in ('GOMP_SPINCOUNT', 'OMP_WAIT_POLICY')), line, sep='|')"
LOAD = "from labengine.engine.torch_threads import load_torch; line = load_torch()"


def run(code: str, **environment: str) -> tuple[str, str, str]:
    """The variables that are set in the end, what load_torch said, and stderr."""
    kept = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; {SAY}"],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    names, _, line = done.stdout.strip().partition("|")
    return names, line, done.stderr


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="GNU's OpenMP is what torch brings on Linux")
def test_threads_wait_asleep_and_the_environment_is_as_before() -> None:
    names, line, stderr = run(f"{LOAD}; assert line == load_torch()", OMP_DISPLAY_ENV="verbose")
    assert (names, line) == ("[]", "wait asleep")
    assert "GOMP_SPINCOUNT = '0'" in stderr


@pytest.mark.parametrize(("name", "value"), [("GOMP_SPINCOUNT", "1000"), ("OMP_WAIT_POLICY", "ACTIVE")])
def test_a_users_setting_is_kept(name: str, value: str) -> None:
    names, line, _ = run(LOAD, **{name: value})
    assert (names, line) == (f"['{name}']", f"wait as {name}={value} says")


def test_a_torch_that_is_there_is_left_alone() -> None:
    names, line, _ = run(f"import torch; {LOAD}")
    assert names == "[]" and line.startswith("spin while they wait: torch was loaded before")
