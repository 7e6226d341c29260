"""A large file of token ids is read and judged by two more processes: the diagnosis is the same, and none is left."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from multiprocessing import active_children
from pathlib import Path
from random import Random
from typing import Any

import pytest

from labengine.config import ConfigError
from labengine.prefix_doctor.asked import Asked
from labengine.prefix_doctor.causes.ledger import Ledger
from labengine.prefix_doctor.causes.ledger_beside import LedgerBeside
from labengine.prefix_doctor.doctor import Pricing, diagnosis_of
from labengine.prefix_doctor.look_ups.look_up import LookUp, MissedTokens
from labengine.prefix_doctor.play import read_ahead as module
from labengine.prefix_doctor.play.read_ahead import read_ahead
from labengine.prefix_doctor.play.replica import Replica
from labengine.prefix_doctor.play.setting import Setting
from labengine.prefix_doctor.traffic.prompt import Prompt, Traffic
from labengine.record.hooks import Hooks
from recorded_engines import traffic_in
from waiting import wait_until

pytestmark = pytest.mark.skipif(not module.can_fork(), reason="a process can only be copied on Linux")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Prompts with salts, a long answer, large ids and two bad lines, in a file that counts as large."""
    monkeypatch.setattr(module, "MIN_BYTES", 1)
    monkeypatch.setattr(module, "BATCH", 8)
    rng = Random(4)
    lines: list[dict[str, Any]] = [
        {"prompt": [rng.randrange(9) for _ in range(i % 3)] + [*range(100)], "max_tokens": 1 + i % 7, "time": i / 9}
        for i in range(29)
    ]
    lines[5]["cache_salt"] = lines[9]["cache_salt"] = "x"
    lines[7]["prompt"][3], lines[8]["prompt"] = 2**40, [True]
    path = tmp_path / "prompts"
    path.write_text("".join(map("{}\n".format, map(json.dumps, lines))) + "{\n")
    return path


SETTING = Asked(num_blocks=100).setting(None, 0)


def ahead(path: Path) -> Traffic:
    traffic = traffic_in(path)
    found = read_ahead(traffic, SETTING)
    assert found is not traffic
    return found


def test_the_diagnosis_is_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for least in (1, 10**9):
        monkeypatch.setattr(module, "MIN_BYTES", least)
        asked = Asked(num_blocks=30, block_size=4)
        found.append(diagnosis_of(traffic_in(path), asked, Pricing(), has_curves=False).to_dict())
    assert found[0] == found[1] and "2 lines left out" in str(found[0]["notes"])


def test_the_hashes_are_those_of_the_core(path: Path) -> None:
    replica = Replica(SETTING, None, None, Hooks())
    for one, other in zip(ahead(path), traffic_in(path), strict=True):
        hashed, plain = replica.request_of(0, one), replica.request_of(0, other)
        assert len(hashed.block_hashes) == hashed.num_tokens // 16
        replica.engine.scheduler.manager.extend_hashes(plain, plain.num_tokens)
        assert (hashed.block_hashes, hashed.links) == (plain.block_hashes, plain.links)


def longer_than_a_pipe(path: Path) -> Path:
    """Repeat the file, so that the process that reads it has to wait."""
    path.write_text(path.read_text() * 500)
    return path


def is_waiting(pid: int | None) -> bool:
    """Return True while a process sleeps, such as until a full pipe is read."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def test_a_reading_that_is_broken_off_ends_its_process(path: Path) -> None:
    prompts = iter(ahead(longer_than_a_pipe(path)).read())
    next(prompts)
    assert len(active_children()) == 1
    prompts.close()  # type: ignore[attr-defined]
    assert active_children() == []


def test_what_ends_the_process_is_told_in_a_sentence(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in the middle of a message, which a pipe cannot hold."""
    monkeypatch.setattr(module, "BATCH", 4_000)
    prompts = iter(ahead(longer_than_a_pipe(path)).read())
    next(prompts)
    (process,) = active_children()
    wait_until(partial(is_waiting, process.pid), "a full pipe")
    os.kill(process.pid or 0, signal.SIGKILL)
    with pytest.raises(ConfigError, match=r"prompts was not read to its end: .* has ended \(signal 9\)"):
        list(prompts)
    path.write_text("{}\n" * 200)
    with pytest.raises(ConfigError, match="line 1: it has neither prompt nor messages"):
        list(ahead(path))
    assert active_children() == []


def test_ctrl_c_gives_what_is_known_so_far(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(traffic: Traffic) -> Iterator[Prompt]:
        yield from islice(read_ahead(traffic, SETTING), 20)
        raise KeyboardInterrupt

    def cut(traffic: Traffic, _: Setting) -> Traffic:
        return replace(traffic, read=partial(interrupted, traffic))

    monkeypatch.setattr("labengine.prefix_doctor.doctor.read_ahead", cut)
    report = diagnosis_of(traffic_in(path), Asked(num_blocks=400), Pricing()).report
    assert report.is_partial and sum(span.num_tokens for span in report.over_time) == report.sums.num_tokens > 0
    assert active_children() == []


def test_what_ends_the_ledgers_process_is_told() -> None:
    look_up, prompt = LookUp(0, "", 1, 1, 0, 9, 0, 0, 0, None, ()), Prompt("p", (7,) * 9)
    with LedgerBeside(Ledger(SETTING.config.groups)) as kept:
        kept.add(0, prompt, replace(look_up, misses=(MissedTokens("no cause", 0, 9),)))  # type: ignore[arg-type]
        with pytest.raises(KeyError, match="no cause"):
            kept.finish()
    with LedgerBeside(Ledger(SETTING.config.groups)) as kept:
        os.kill(active_children()[0].pid or 0, signal.SIGKILL)
        with pytest.raises(ConfigError, match=r"the process that judges the prompts has ended: signal 9"):
            kept.finish()
    assert active_children() == []
