"""Models by hub id, from a local hub; and the error without one.

The hub's client reads its settings once, when it is imported, so each look-up runs in a separate process.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from labengine.config import ConfigError
from labengine.engine.sources import model_path
from labengine.engine.sources.hub import is_hub_id
from waiting import PATIENCE

COMMIT = "c0ffee" * 6 + "c0de"
MODEL = "someone/tiny-llama"
CODE = """
import sys, time
from labengine.engine.sources import hub, model_path

def sleep(seconds):
    raise AssertionError(f"retries after {seconds} s")

time.sleep = sleep
hub.ANSWER_SECONDS = float(sys.argv[2])
try:
    print(model_path(sys.argv[1]))
except Exception as error:
    print(type(error).__name__, error)
"""


def oid(file: Path) -> str:
    return sha1(file.read_bytes()).hexdigest()


class Hub(ThreadingHTTPServer):
    """Serves one model from the files in `folder`, and counts requests."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.folder = folder
        self.fetched: list[str] = []
        self.endpoint = f"http://127.0.0.1:{self.server_port}"


class Answers(BaseHTTPRequestHandler):
    """What a download asks for: which files there are, in two ways, and each file."""

    server: Hub

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        files = sorted(self.server.folder.iterdir())
        if path in (f"/api/models/{MODEL}", f"/api/models/{MODEL}/revision/main"):
            names = [{"rfilename": file.name} for file in files]
            self.answer(json.dumps({"id": MODEL, "sha": COMMIT, "siblings": names}).encode())
        elif path == f"/api/models/{MODEL}/tree/{COMMIT}":
            tree = [
                {"type": "file", "path": file.name, "size": file.stat().st_size, "oid": oid(file)} for file in files
            ]
            self.answer(json.dumps(tree).encode())
        elif path.startswith(f"/{MODEL}/resolve/{COMMIT}/"):
            name = path.rpartition("/")[2]
            if self.command == "GET":
                self.server.fetched.append(name)
            self.answer((self.server.folder / name).read_bytes())
        else:
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

    do_HEAD = do_GET

    def answer(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", f'"{sha1(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub(tiny_llama: Path, tmp_path: Path) -> Iterator[Hub]:
    folder = tmp_path / "hub"
    folder.mkdir()
    for path in tiny_llama.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "pytorch_model.bin").write_bytes(b"a pickle, which can run code")
    (folder / "modeling_tiny.py").write_bytes(b"raise SystemExit")
    with Hub(folder) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def look_up(name: str, home: Path, root: Path, *, patience: float = PATIENCE, **environment: str) -> str:
    """What model_path gives or says, in a process whose hub is the one in `environment` and has so many seconds."""
    settings = {"HF_HOME": str(home), "HF_HUB_OFFLINE": "0", "PATH": "", **environment}
    command = [sys.executable, "-c", CODE, name, str(patience)]
    done = subprocess.run(command, cwd=root, env=settings, capture_output=True, text=True, check=True, timeout=PATIENCE)
    return done.stdout.strip()


def test_a_hub_model_is_fetched_once_and_found_without_a_network(hub: Hub, tmp_path: Path, project_root: Path) -> None:
    directory = Path(look_up(MODEL, tmp_path / "home", project_root, HF_ENDPOINT=hub.endpoint))
    names = ["config.json", "generation_config.json", "model.safetensors"]
    assert sorted(path.name for path in directory.iterdir()) == sorted(hub.fetched) == names
    hub.shutdown()
    hub.server_close()
    for environment in ({"HF_ENDPOINT": hub.endpoint}, {"HF_HUB_OFFLINE": "1"}):
        assert look_up(MODEL, tmp_path / "home", project_root, **environment) == str(directory)
    assert len(hub.fetched) == 3


def test_a_model_that_the_hub_does_not_have(hub: Hub, tmp_path: Path, project_root: Path) -> None:
    said = look_up("someone/nothing", tmp_path / "home", project_root, HF_ENDPOINT=hub.endpoint)
    assert said.startswith("SourceError no local directory 'someone/nothing', ")
    assert "404" in said and "hf auth login" in said


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"HF_ENDPOINT": "http://127.0.0.1:1"}, "Connection refused"),
        ({"HF_HUB_OFFLINE": "1"}, "offline mode is enabled"),
    ],
)
def test_without_a_network_it_is_said_at_once(
    environment: dict[str, str], words: str, tmp_path: Path, project_root: Path
) -> None:
    said = look_up(MODEL, tmp_path / "home", project_root, **environment)
    assert said.startswith(f"SourceError no local directory '{MODEL}'") and words in said
    assert "retries" not in said


def test_a_silent_hub_times_out(tmp_path: Path, project_root: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        said = look_up(MODEL, tmp_path / "home", project_root, patience=3.0, HF_ENDPOINT=endpoint)
    assert said.startswith("SourceError") and "timed out" in said


def test_what_reads_like_a_hub_id() -> None:
    assert all(map(is_hub_id, ("org/name", "Qwen/Qwen3-0.6B", "HuggingFaceTB/SmolLM2-135M")))
    assert not any(map(is_hub_id, ("name", "a/b/c", "./name", "../name", "/name", "org/", "org/na me", "~/x", "")))


def test_a_path_object_is_never_looked_up_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="no model 'org/name'"):
        model_path(Path("org/name"))


def test_a_local_directory_comes_before_the_hub(
    tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "org").mkdir()
    (tmp_path / "org" / "name").symlink_to(tiny_llama)
    monkeypatch.chdir(tmp_path)
    assert model_path("org/name") == Path("org/name")
