"""Random operations of each edition: nothing is found, no block leaks, and much has been met on the way.

2,000 operations at every change, 20,000 in the sweep.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from random import Random

import pytest

import soak
from check.random_operations import KINDS, Episode, Kind
from ctrl_c import python_handles_sigint
from driving import ALL_EDITIONS, EDITION_FAULTS, TOKEN_BUDGET_EDITIONS, TREE_EDITIONS, as_parts
from labengine.core.merge_policy import LateMerge
from labengine.core.mini_sglang.scheduler import WorstCaseScheduler
from random_cases import for_random

NUM_OPERATIONS = 250
WITH_FORKS = ("labengine", "labengine-radix")
EPISODES = [8, pytest.param(80, marks=pytest.mark.sweep)]


def play(
    rng: Random,
    edition: str,
    num_operations: int = NUM_OPERATIONS,
    kinds: Collection[Kind] = (),
) -> Counter[str]:
    """One episode under watch, and all invariants on the whole state now and then; what it met."""
    episode = Episode(rng, edition, kinds=kinds)
    setup, done = episode.setup, list[str]()
    for operation in episode.operations(num_operations):
        done.append(operation)
        assert setup.watch.violations == [], f"after {', '.join(done)}"
        if len(done) % 10 == 0:
            assert setup.watch.check(setup.engine.snapshot()) == [], f"after {', '.join(done)}"
    episode.drain()
    snapshot = setup.engine.snapshot()
    assert setup.watch.check(snapshot) == []
    assert snapshot.num_used_blocks == 0
    return episode.met + Counter(operations=len(done))


@pytest.mark.parametrize("num_episodes", EPISODES)
@pytest.mark.parametrize("edition", ALL_EDITIONS)
def test_nothing_is_found(edition: str, num_episodes: int) -> None:
    met: Counter[str] = Counter()
    for seed in range(num_episodes):
        try:
            met += play(Random(f"{seed}"), edition)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    assert met["operations"] >= num_episodes * NUM_OPERATIONS
    wanted = {"hit", "hit on a free block", "preempted", "broken step", "evicted", "abort", "reset"}
    if edition in TOKEN_BUDGET_EDITIONS:
        wanted |= {"load", "late load", "failed load", "hanging load", "cancelled load", "window", "tier raised"}
    if issubclass(as_parts(edition).merge_policy, LateMerge):
        wanted |= {"merged"}
    if edition in TREE_EDITIONS:
        wanted -= {"hit on a free block"}  # what a tree keeps is not free
    if issubclass(as_parts(edition).scheduler, WorstCaseScheduler):
        wanted -= {"preempted"}
    if num_episodes < 80:
        wanted -= {"tier raised"}  # too rare for the sample
    assert {what: n for what in wanted if (n := met[what]) < num_episodes // 8} == {}, met


def test_a_late_load_of_a_preempted_request_may_fail_to_begin() -> None:
    """The tier raises between the event that says that the request waits and the wait."""
    assert play(Random("1000321"), "labengine", 300)["update_state_after_alloc raised"]


@pytest.mark.parametrize(
    ("edition", "num_episodes"),
    [("labengine", 16), ("labengine-radix", 4), *(pytest.param(e, 80, marks=pytest.mark.sweep) for e in WITH_FORKS)],
)
def test_nothing_is_found_with_forks(edition: str, num_episodes: int) -> None:
    met: Counter[str] = Counter()
    for seed in range(num_episodes):
        try:
            met += play(Random(f"{seed}"), edition, kinds=["forks"])
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    wanted = {"fork", "copy", "branch", "preempted", "broken step", "merged", "late load", "window"}
    wanted -= {"late load", "window"} if edition in TREE_EDITIONS else set()
    assert {what: n for what in wanted if (n := met[what]) < num_episodes // 8} == {}, met


@pytest.mark.parametrize("num_episodes", [12, pytest.param(80, marks=pytest.mark.sweep)])
@pytest.mark.parametrize("edition", ["labengine", "vllm"])
def test_nothing_is_found_with_drafts(edition: str, num_episodes: int) -> None:
    """Beside forks, whose siblings share blocks and no drafts. Edition vllm has no forks here."""
    met: Counter[str] = Counter()
    for seed in range(num_episodes):
        try:
            kinds: list[Kind] = ["forks", "drafts"] if edition == "labengine" else ["drafts"]
            met += play(Random(f"{seed}"), edition, kinds=kinds)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    wanted = {"accepted", "rejected", "preempted", "broken step", "window", "late load"}
    if edition == "labengine":
        wanted |= {"fork", "copy", "merged"}
    assert {what: n for what in wanted if (n := met[what]) < num_episodes // 8} == {}, met


@pytest.mark.parametrize("num_episodes", EPISODES)
@pytest.mark.parametrize("drafts", [[], ["drafts"]])
@pytest.mark.parametrize(("edition", "kinds"), [("labengine", ["forks", "states"]), ("vllm", ["states"])])
def test_nothing_is_found_with_states(edition: str, kinds: list[Kind], drafts: list[Kind], num_episodes: int) -> None:
    met: Counter[str] = Counter()
    for seed in range(num_episodes):
        try:
            met += play(Random(f"{seed}"), edition, kinds=[*kinds, *drafts])
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    wanted = {"state copied", "state freed", "junction", "preempted", "broken step", "hit", "window"}
    wanted |= {"fork", "copy", "merged"} if "forks" in kinds else set()
    wanted |= {"scratch moved", "accepted", "rejected"} if drafts else set()
    assert {what: n for what in wanted if (n := met[what]) < num_episodes // 8} == {}, met


@pytest.mark.parametrize("num_episodes", [6, pytest.param(80, marks=pytest.mark.sweep)])
@pytest.mark.parametrize("edition", TOKEN_BUDGET_EDITIONS)
def test_nothing_is_found_with_everything_mixed(edition: str, num_episodes: int) -> None:
    """After each operation the events fold to the state of the core; tests/soak.py does the same a million times."""
    met: Counter[str] = Counter()
    with python_handles_sigint():
        for seed in range(num_episodes):
            met += soak.play(seed, edition, 200, KINDS)
    wanted = {
        "image",
        "preempted",
        "undone at an event",
        "interrupted, rolled back",
        "accepted",
        "state copied",
        "scratch moved",
    }
    wanted |= {"fork", "copy", "beam replaced", "merged"} if edition == "labengine" else set()
    assert {what: n for what in wanted if (n := met[what]) < num_episodes // 8} == {}, met


@pytest.mark.parametrize("edition", TOKEN_BUDGET_EDITIONS)
def test_nothing_is_found_in_short_episodes(edition: str) -> None:
    for_random(lambda rng: play(rng, edition, rng.randint(1, 40)), examples=10)


@pytest.mark.parametrize("num_episodes", EPISODES)
def test_the_edition_that_reads_anothers_kv_breaks_no_other_rule(num_episodes: int) -> None:
    """The rules that it breaks are those of the engine that it equals."""
    broken: Counter[str] = Counter()
    for seed in range(num_episodes):
        episode = Episode(Random(f"{seed}"), "nano-vllm-2025-07")
        for _ in episode.operations(NUM_OPERATIONS):
            pass
        episode.drain()
        broken.update(violation.rule for violation in episode.setup.watch.check(episode.setup.engine.snapshot()))
    assert set(broken) == EDITION_FAULTS["nano-vllm-2025-07"].keys(), broken


def test_kinds_that_an_edition_lacks_are_refused_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["soak.py", "--edition", "nano-vllm", "--kinds", "all"])
    with pytest.raises(SystemExit):
        soak.main()
    said = "soak.py: error: this edition has no state groups: use edition 'labengine' or 'vllm'"
    assert capsys.readouterr().err.splitlines()[-1] == said
