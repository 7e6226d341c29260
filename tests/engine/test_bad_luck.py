"""Aborts, resets, abandoned steps, full pools, and a tier that fails, hangs, loses or raises: everything drains.

After every operation the fold is the snapshot and the rules hold; at the end no block is held, and each request has the
tokens of an undisturbed run (an aborted one the first of them). Every read is checked by the memory underneath.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest

from ctrl_c import press_ctrl_c
from disturbing import Countdown, Disturbance, SignalPoints, core_calls_of_a_step, raise_disturbance
from driving import Drive, LiveFold, assert_drained, assert_sound, difference, tokens_of
from fake_tier import FakeTier, Luck, TierDown
from grounds import TIERED, Ground, at_every_change
from labengine.record.hooks import Hooks
from seeds import EVERY_SEED, selected

BAD_LUCK = {
    "loads fail": Luck(fails=0.6),
    "loads hang": Luck(hangs=0.4),
    "calls raise": Luck(raises=0.03),
    "everything": Luck(fails=0.3, hangs=0.2, loses=0.2, raises=0.05),
}
NUM_SEEDS = 10
FAILING = 6
"""A workload in which late loads fail, on every ground; those that cover a ground are chosen without bad luck."""


@pytest.mark.parametrize(
    ("ground", "kind"),
    [(ground, kind) for ground in TIERED for kind in BAD_LUCK if ground.tier == "late" or kind != "loads hang"],
    ids=str,
)
def test_everything_drains_and_nobody_reads_anothers_kv(ground: Ground, kind: str) -> None:
    met: Counter[str] = Counter()
    for seed in dict.fromkeys((*selected(str(ground), NUM_SEEDS), FAILING)):
        hooks = Hooks(strict=True)
        live = LiveFold(hooks)
        drive = ground.drive(seed, hooks, BAD_LUCK[kind])
        for operation in operations(drive, Random(seed)):
            met[operation] += 1
            wrong = difference(live.state.snapshot(), drive.engine.snapshot())
            assert wrong is None, f"workload {seed} after {operation}: {wrong}"
            if operation in ("add", "abort", "reset", "rollback", "update", "tier down", "patience is over"):
                assert_sound(drive.engine.snapshot(), ground.edition)
        assert_same_end(drive, ground, seed)
        met += tier_of(drive).met
    assert {"add", "abort", "rollback", "update", "save", *expected(ground, BAD_LUCK[kind])} <= set(met)


def expected(ground: Ground, luck: Luck) -> set[str]:
    """What a number of runs has to have met, or the test shows nothing."""
    names = {
        "load": not luck.hangs,
        "failed load": luck.fails > 0,
        "short load": luck.fails > 0 and (EVERY_SEED or not luck.hangs),
        "tier down": luck.raises > 0,
        "has raised": luck.raises > 0,
        "hanging load": luck.hangs > 0 and ground.tier == "late",
        "cancelled load": luck.hangs > 0 and ground.tier == "late",
        "patience is over": luck.hangs > 0 and ground.tier == "late",
    }
    return {name for name, is_expected in names.items() if is_expected}


def operations(drive: Drive, rng: Random) -> Iterator[str]:
    """As Drive.operations; it goes on when the tier raises, and a request whose load hangs is aborted at last."""
    pending = drive.operations(rng)
    while True:
        try:
            operation = next(pending)
        except StopIteration:
            return
        except TierDown:
            operation, pending = "tier down", drive.operations(rng)
        yield operation
        hanging = tier_of(drive).hanging
        if operation == "update" and hanging and rng.random() < 0.1:
            drive.engine.abort(rng.choice(hanging))
            yield "patience is over"


def tier_of(drive: Drive) -> FakeTier:
    assert isinstance(drive.connector, FakeTier)
    return drive.connector


def assert_same_end(drive: Drive, ground: Ground, seed: int) -> None:
    """Nothing is held, nothing is on its way, and the tokens are those of an undisturbed run."""
    undisturbed = ground.undisturbed(seed)
    for request_id, tokens in tokens_of(drive.engine.snapshot()).items():
        is_aborted = drive.engine.requests[request_id].finish_reason == "abort"
        assert tokens == (undisturbed[request_id][: len(tokens)] if is_aborted else undisturbed[request_id])
    assert_drained(drive.engine)
    assert not tier_of(drive).on_their_way
    assert not tier_of(drive)._loading


@pytest.mark.parametrize("ground", at_every_change(TIERED), ids=str)
def test_errors_and_ctrl_c_anywhere_on_top_of_it(ground: Ground) -> None:
    met: Counter[str] = Counter()
    for seed in selected(str(ground), 3):
        rng, drive = Random(seed), ground.drive(seed, Hooks(), BAD_LUCK["everything"])
        while not drive.is_done:
            list(drive.arrive())
            try:
                disturbed(rng).run(drive.engine.step)
            except (Disturbance, KeyboardInterrupt, TierDown) as error:
                met[type(error).__name__] += 1
            assert_sound(drive.engine.snapshot(), ground.edition)
            for request_id in tier_of(drive).hanging:
                drive.engine.abort(request_id)
        assert_same_end(drive, ground, seed)
    assert met["Disturbance"] > 20
    assert met["KeyboardInterrupt"] > 20
    assert met["TierDown"] > 0


def disturbed(rng: Random) -> Countdown:
    """A third of the steps meets an error at a call of the core, a third Ctrl-C, a third nothing but the tier."""
    return rng.choice(
        (
            Countdown(core_calls_of_a_step),
            Countdown(core_calls_of_a_step, rng.randrange(150), raise_disturbance),
            Countdown(SignalPoints(), rng.randrange(400), press_ctrl_c),
        )
    )
