from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import cast

import pytest

import labengine
from kv_batches import SOURCE, Publisher, messages, payload, stored
from labengine.__main__ import main
from labengine.config import ConfigError
from labengine.record.files.parsing import TraceError
from labengine.vllm.cache_events import live
from labengine.vllm.cache_events import prefixes as module_of_prefixes
from labengine.vllm.cache_events.kv_files import EventRecorder
from labengine.vllm.cache_events.live import LivePrefixes
from labengine.vllm.cache_events.places import PublisherPlace as Endpoint
from labengine.vllm.cache_events.places import publishers
from waiting import PATIENCE, wait_until

BATCHES = [payload(stored([number], [number] * 4), at=1000.0 + number) for number in range(1, 9)]


def recorded(path: Path) -> Path:
    with EventRecorder(path, (SOURCE,)) as recorder:
        for message in messages(*BATCHES):
            recorder.keep(message)
    return path


@pytest.mark.parametrize("topic_in_replay", [True, False])
def test_a_late_reader_gets_all_by_the_replay_and_records_it(tmp_path: Path, topic_in_replay: bool) -> None:
    publisher = Publisher(tmp_path, BATCHES, topic_in_replay=topic_in_replay)
    out = tmp_path / "out.kvevents"
    with publisher.running():
        place = f"kv:{publisher.endpoint}"
        with cast(LivePrefixes, labengine.kv_events(place, replay=publisher.replay, record=out)) as prefixes:
            wait_until(lambda: prefixes.stream.num_replayed == len(BATCHES))
            assert prefixes.is_connected and prefixes.stream.num_batches == len(BATCHES)
        assert prefixes.wait(PATIENCE)
    assert prefixes.notes == [] and len(prefixes.chains()) == len(BATCHES) and not prefixes.is_connected
    assert out.stat().st_mode & 0o777 == 0o600
    assert str(labengine.kv_events(out)) == str(prefixes)


def test_batches_that_were_missed_are_asked_for_after_a_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "SECONDS_OF_SILENCE", 0.05)
    publisher = Publisher(tmp_path, BATCHES[:3])
    with (
        publisher.running(),
        cast(LivePrefixes, labengine.kv_events(f"kv:{publisher.endpoint}", replay=publisher.replay)) as prefixes,
    ):
        wait_until(lambda: prefixes.stream.num_batches == 3)
        publisher._batches += BATCHES[3:5]
        wait_until(lambda: prefixes.stream.num_batches == 5)
    assert prefixes.notes == []


@pytest.fixture
def endpoint() -> Iterator[str]:
    """A port that nobody else gets meanwhile: a socket holds it and does not listen; ZeroMQ shares such a port."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield f"tcp://127.0.0.1:{held.getsockname()[1]}"


def test_an_engine_that_connects_is_met_by_binding(tmp_path: Path, endpoint: str) -> None:
    publisher = Publisher(tmp_path, BATCHES)
    with cast(LivePrefixes, labengine.kv_events(f"kv:bind:{endpoint}")) as prefixes:
        assert "no batch has arrived" in str(prefixes)
        numbers = count(1)
        with publisher.running(connects_to=endpoint):

            def is_heard() -> bool:
                publisher.publish(next(numbers))
                return prefixes.stream.num_batches > 0

            wait_until(is_heard)
    assert [*prefixes.stream.late] == [(0, 0)] and prefixes.stream.sources == (f"bind:{endpoint}",)


def test_a_view_in_a_notebook_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "SECONDS_BETWEEN_VIEWS", 0.01)
    publisher = Publisher(tmp_path, BATCHES)
    with publisher.running(), cast(LivePrefixes, labengine.kv_events(publisher.endpoint)) as prefixes:
        shown = prefixes.show()

        def is_heard() -> bool:
            publisher.publish(0)
            return "4 tokens" in shown.value

        wait_until(is_heard)
        bundle = prefixes._repr_mimebundle_()
    assert "4 tokens" in bundle["text/html"] and "application/vnd.jupyter.widget-view+json" in bundle


def test_the_command_prints_a_file_as_text_as_json_and_as_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = recorded(tmp_path / "run.kvevents")
    assert main(["attach-kv", str(path), "--html", str(tmp_path / "page.html")]) == 0
    assert "8 batches" in capsys.readouterr().out and "8 batches" in (tmp_path / "page.html").read_text()
    assert main(["attach-kv", f"{path}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["num_chains"] == 8


def test_the_command_follows_for_some_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attach-kv", f"ipc://{tmp_path}/events", "--seconds", "0.05"]) == 0
    text = capsys.readouterr().out
    assert "following until Ctrl-C, or for 0.05 s\n" in text and "0 batches" in text
    assert main(["attach-kv", f"ipc://{tmp_path}/events", "--json", "--seconds", "0"]) == 0
    assert json.loads(capsys.readouterr().out)["num_chains"] == 0


@pytest.mark.parametrize(
    ("place", "replay", "why"),
    [
        ("kv:tcp://*:5557", None, "kv:tcp://127.0.0.1:5557"),
        ("kv:bind:tcp://0.0.0.0:5557", None, "only loopback addresses"),
        ("kv:bind:tcp://*:5557", None, "must name the host"),
        ("kv:tcp://127.0.0.1", None, "an endpoint must be"),
        ("kv:tcp://127.0.0.1:99999", None, "an endpoint must be"),
        ("kv:tcp://a:1,tcp://a:2", "tcp://a:3", "2 publishers need"),
        ("kv:tcp://a:1", "localhost:3", "an endpoint must be"),
        ("kv:nowhere.kvevents", None, "no file nowhere.kvevents"),
    ],
)
def test_places_are_refused_with_what_to_write(place: str, replay: str | None, why: str) -> None:
    with pytest.raises(ConfigError) as error:
        labengine.kv_events(place, replay=replay)
    assert why in str(error.value)


def test_several_publishers_have_a_replay_each() -> None:
    assert publishers("kv:tcp://h:1,bind:ipc:///tmp/x", "tcp://h:3,tcp://h:4") == (
        Endpoint("tcp://h:1", False, "tcp://h:3"),
        Endpoint("ipc:///tmp/x", True, "tcp://h:4"),
    )


def test_the_tap_and_kv_events_are_kept_separate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = recorded(tmp_path / "run.kvevents")
    with pytest.raises(ConfigError, match=r"labengine\.kv_events"):
        labengine.attach(f"kv:{path}")
    with pytest.raises(ConfigError, match="for a running engine"):
        labengine.kv_events(path, replay="tcp://a:1")
    with pytest.raises(ConfigError, match="already exists"):
        labengine.kv_events("kv:ipc:///tmp/none", record=path)
    assert main(["attach", str(path)]) == 2
    assert f"labengine attach-kv {path}" in capsys.readouterr().err


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    complete = recorded(tmp_path / "complete.kvevents").read_text().splitlines(keepends=True)

    def refusal(*lines: str) -> str:
        path = tmp_path / "damaged.kvevents"
        path.write_text("".join(lines))
        with pytest.raises(TraceError) as error:
            labengine.kv_events(path)
        return str(error.value)

    assert "not a file of KV events" in refusal('{"a": 1}\n') and "not a file of KV events" in refusal()
    assert "newer labengine" in refusal(complete[0].replace("1", "9", 1))
    assert "damaged" in refusal(complete[0], "[1]\n") and "damaged" in refusal(complete[0], "{\n")
    assert "damaged" in refusal(complete[0], '{"s": 1, "n": 0, "b": ""}\n')
    assert "damaged" in refusal(complete[0], '{"s": 0, "n": 0, "b": "?"}\n')


def test_a_file_that_ends_in_a_line_is_read_to_there(tmp_path: Path) -> None:
    path = recorded(tmp_path / "cut.kvevents")
    path.write_text(path.read_text()[:-10])
    prefixes = labengine.kv_events(path)
    assert prefixes.stream.num_batches == len(BATCHES) - 1 and "ends in the middle of a line" in prefixes.notes[0]


def test_notes_are_read_while_the_stream_is_held_still(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prefixes = labengine.kv_events(recorded(tmp_path / "run.kvevents"))
    held: list[bool] = []

    def about(stream: object) -> list[str]:
        held.append(prefixes._guard._is_owned())
        return []

    monkeypatch.setattr(module_of_prefixes, "_about_stream", about)
    assert prefixes.notes == [] and held == [True]
