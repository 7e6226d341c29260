"""Live: `vllm serve` with the tap, attached while it serves; either side is killed, and its answers stay the same.

LABENGINE_VLLM_PYTHON=path/to/vllm/bin/python pytest tests/differential/test_serve_vllm.py
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import labengine
from differential.vllm_process import VARIABLE, VERSION, named_interpreter
from differential.vllm_server import MODEL_NAME, NUM_BLOCKS, VllmServer
from labengine.__main__ import main
from labengine.engine.sources import model_path
from labengine.vllm.stream.endpoints import endpoints
from labengine.vllm.stream.live import LiveStream
from waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.sweep, pytest.mark.timeout(1800)]

SUBJECTS = ("a block table", "the free queue", "an old clock", "two prompts")
PROMPTS = [f"{'Once upon a time ' * (4 + i % 7)}there was {SUBJECTS[i % 4]}, number {i % 5}." for i in range(24)]
NUM_TOKENS = 24
LISTENS = 0x10000
"""A flag in /proc/net/unix."""

Answers = list[list[int]]


@pytest.fixture(scope="module")
def python() -> str:
    found = named_interpreter()
    if found is None:
        pytest.skip(f"set {VARIABLE} to an interpreter with vLLM {VERSION}: this starts its server")
    return found


@pytest.fixture(scope="module")
def model() -> Path:
    return Path(model_path("smollm2"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("serve")


@pytest.fixture(scope="module")
def untapped(python: str, model: Path, folder: Path) -> Answers:
    """What a server without the tap answers."""
    with VllmServer(python, model, folder / "untapped", "") as server:
        server.wait_for_start()
        return server.tokens(PROMPTS, NUM_TOKENS)


@pytest.fixture(scope="module")
def server(python: str, model: Path, folder: Path, untapped: Answers) -> Iterator[VllmServer]:
    """A tapped server that has answered before anybody attaches."""
    with VllmServer(python, model, folder / "tapped", f"unix:{folder / 'tap'}") as server:
        server.wait_for_start()
        assert server.tokens(PROMPTS, NUM_TOKENS) == untapped
        yield server


def asked(server: VllmServer, untapped: Answers) -> None:
    assert server.tokens(PROMPTS, NUM_TOKENS) == untapped


def recording(folder: Path, name: str) -> subprocess.Popen[str]:
    """Start `labengine attach --record`, and wait until it records."""
    command = [sys.executable, "-m", "labengine", "attach", f"unix:{folder / 'tap'}", "--record", str(folder / name)]
    viewer = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert viewer.stdout
    for line in viewer.stdout:
        if "recording until" in line:
            return viewer
    raise AssertionError(f"attach ended with {viewer.wait()}")


def live(folder: Path) -> LiveStream:
    stream = labengine.attach(f"unix:{folder / 'tap'}")
    assert isinstance(stream, LiveStream)
    return stream


def test_attached_late_it_shows_every_request_without_a_contradiction(
    server: VllmServer, untapped: Answers, folder: Path
) -> None:
    with live(folder) as stream:
        asked(server, untapped)
        wait_until(lambda: len(stream.snapshot().requests) == len(PROMPTS) and not stream.is_running, "all requests")
        stream.check()
        wait_until(lambda: stream.reader.pieces[-1].num_keyframes > 1, "a keyframe that agrees")
        state = stream.snapshot()
        outputs = sorted(list(one.token_ids[one.num_prompt_tokens :]) for one in state.requests.values())
        assert outputs == sorted(untapped) and len(state.blocks) == NUM_BLOCKS
        assert list(stream.pieces) == [1] and not stream.violations
        assert all(name.startswith("cmpl-") for name in stream.request_names.values())


def test_vllms_own_benchmark_is_recorded(server: VllmServer, folder: Path) -> None:
    with live(folder) as stream:
        command = [server.python, "-m", "vllm.entrypoints.cli.main", "bench", "serve", "--port", str(server.port)]
        command += ["--model", MODEL_NAME, "--tokenizer", str(server.model), "--dataset-name", "random"]
        command += ["--random-input-len", "64", "--random-output-len", "16", "--num-prompts", "12"]
        environment = {name: value for name, value in server.environment.items() if name != "LABENGINE_TAP"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert "Successful requests:                     12" in done.stdout, done.stdout + done.stderr
        wait_until(lambda: not stream.is_running, "the last event")
        lengths = [one.num_prompt_tokens for one in stream.snapshot().requests.values()]
        assert len(lengths) >= 12 and not stream.violations and list(stream.pieces) == [1]


def test_a_killed_viewer_leaves_the_server_as_it_was(server: VllmServer, untapped: Answers, folder: Path) -> None:
    viewer = recording(folder, "killed.lab")
    asked(server, untapped)
    viewer.kill()
    viewer.wait()
    asked(server, untapped)
    viewer = recording(folder, "kept.lab")
    asked(server, untapped)
    viewer.send_signal(signal.SIGINT)
    assert viewer.stdout is not None
    said = viewer.stdout.read()
    assert viewer.wait() == 0 and "no violations" in said, said
    kept = labengine.open(folder / "kept.lab")
    assert len(kept.snapshot().requests) == len(PROMPTS) and not kept.violations


def test_a_viewer_that_never_reads_is_not_waited_for(server: VllmServer, untapped: Answers, folder: Path) -> None:
    (place,) = endpoints(f"unix:{folder / 'tap'}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(str(place.address))
        asked(server, untapped)
        asked(server, untapped)


def test_no_other_process_holds_the_taps_socket(server: VllmServer, folder: Path) -> None:
    """A worker that has inherited it would keep viewers waiting after the engine is gone."""
    (place,) = endpoints(f"unix:{folder / 'tap'}")
    bound = f".{Path(str(place.address)).stem}"  # it is renamed once it answers
    rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines() if line.endswith(bound)]
    (inode,) = (row[6] for row in rows if int(row[3], 16) & LISTENS)
    holders = {int(link.parts[2]) for link in Path("/proc").glob("[0-9]*/fd/*") if _target(link) == f"socket:[{inode}]"}
    assert holders == set(server.engine_pids())


def _target(link: Path) -> str:
    try:
        return os.readlink(link)
    except OSError:  # closed meanwhile, or another user's
        return ""


def test_a_killed_engine_ends_the_viewer_with_a_sentence_and_a_complete_recording(
    server: VllmServer, untapped: Answers, folder: Path
) -> None:
    """The last test of this server: it is gone afterwards."""
    viewer = recording(folder, "engine.lab")
    with live(folder) as other:  # both are sent the same
        asked(server, untapped)
        wait_until(lambda: _num_finished(other) == len(PROMPTS), "the last event")
    for pid in server.engine_pids():
        os.kill(pid, signal.SIGKILL)
    assert viewer.stdout is not None
    said = viewer.stdout.read()
    assert viewer.wait() == 0 and "vLLM was killed, or a tunnel was closed" in said, said
    kept = labengine.open(folder / "engine.lab")
    state = kept.snapshot()
    assert {one.status for one in state.requests.values()} == {"finished"} and not kept.violations
    outputs = sorted(list(one.token_ids[one.num_prompt_tokens :]) for one in state.requests.values())
    assert outputs == sorted(untapped)


def _num_finished(stream: LiveStream) -> int:
    return sum(one.status == "finished" for one in stream.snapshot().requests.values())


def test_two_data_parallel_ranks_are_listed_by_one_command_and_attached_side_by_side(
    python: str, model: Path, untapped: Answers, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = f"unix:{folder / 'ranks'}"
    with VllmServer(python, model, folder / "parallel", place, ("--data-parallel-size", "2")) as server:
        server.wait_for_start()
        assert main(["attach", place]) == 0
        listed = capsys.readouterr().out
        assert "rank 0 · vllm 0.32" in listed and "rank 1 · vllm 0.32" in listed and "--rank N" in listed
        with labengine.attach(place, rank=0) as first, labengine.attach(place, rank=1) as second:
            assert server.tokens(PROMPTS, NUM_TOKENS) == untapped
            wait_until(lambda: len(first.snapshot().requests) + len(second.snapshot().requests) == len(PROMPTS))
            assert "rank 0" in first.title and "rank 1" in second.title
            assert first.snapshot().requests and second.snapshot().requests
            assert not first.violations and not second.violations
