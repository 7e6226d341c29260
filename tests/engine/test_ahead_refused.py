"""Where an engine cannot schedule ahead: which one is used instead, why, and the error for a request of it."""

from __future__ import annotations

import pytest

from engine.twins import ahead_engine
from fake_tier import FakeTier
from labengine.config import ConfigError, EngineConfig, GroupSpec
from labengine.core.editions import EDITIONS
from labengine.engine.ahead import OverlappedEngine, choose_engine
from labengine.engine.simulated import SimulatedRunner
from labengine.record.hooks import Hooks


@pytest.mark.parametrize("edition", ["vllm", "nano-vllm-2025-07"])
def test_editions_that_hash_at_allocation_are_refused(edition: str) -> None:
    with pytest.raises(ConfigError, match=edition):
        ahead_engine(parts=EDITIONS[edition])


def test_an_external_tier_is_refused() -> None:
    with pytest.raises(ConfigError, match="external tier"):
        OverlappedEngine(
            EngineConfig(8, (GroupSpec(4),)), SimulatedRunner(), EDITIONS["labengine"], Hooks(), FakeTier()
        )


class Device(SimulatedRunner):
    is_asynchronous = True


@pytest.mark.parametrize(
    ("overlap", "edition", "runner", "is_watched", "line"),
    [
        (None, "labengine", Device(), False, "overlapped"),
        (True, "nano-vllm", SimulatedRunner(), False, "overlapped"),
        (None, "labengine", SimulatedRunner(), False, "synchronous (the forward pass"),
        (False, "labengine", Device(), False, "synchronous (asked for)"),
        (None, "vllm", Device(), False, "synchronous (edition vllm"),
        (None, "labengine", Device(), True, "synchronous (the checks"),
    ],
)
def test_which_engine(overlap: bool | None, edition: str, runner: SimulatedRunner, is_watched: bool, line: str) -> None:
    selected, why = choose_engine(overlap, EDITIONS[edition], runner, has_external=False, is_watched=is_watched)
    assert why.startswith(line)
    assert (selected is OverlappedEngine) is line.startswith("overlapped")


@pytest.mark.parametrize(("edition", "is_watched"), [("vllm", False), ("labengine", True)])
def test_what_is_asked_for_and_cannot_be_is_an_error(edition: str, is_watched: bool) -> None:
    with pytest.raises(ConfigError, match="overlap=True "):
        choose_engine(True, EDITIONS[edition], Device(), has_external=False, is_watched=is_watched)
    with pytest.raises(ConfigError, match="True, False or None"):
        choose_engine("yes", EDITIONS[edition], Device(), has_external=False, is_watched=False)  # type: ignore[arg-type]
