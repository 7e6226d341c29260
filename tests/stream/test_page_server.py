"""The server of `labengine attach --page`: its secret, its messages, slow and closed pages, its end."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from gzip import decompress
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from struct import unpack
from typing import Any
from urllib.parse import urlsplit

import pytest

import labengine
from differential import vllm_streams
from labengine.__main__ import main
from labengine.vllm.stream.page import pages
from labengine.vllm.stream.page.pages import FrameQueue
from labengine.vllm.stream.page.server import MAX_MESSAGE, PageServer
from recorded_files import written
from replaying import ReplayedTap
from waiting import PATIENCE, wait_until

NAME = "page=0123456789"


@pytest.fixture
def tap(tmp_path: Path) -> Iterator[ReplayedTap]:
    with ReplayedTap(tmp_path / "tap", 2) as tap:
        yield tap


@pytest.fixture
def server(tap: ReplayedTap, tmp_path: Path) -> Iterator[PageServer]:
    with labengine.attach(f"unix:{tmp_path / 'tap'}") as stream, PageServer([stream]) as server:
        yield server


def asked(server: PageServer, path: str, body: bytes | None = None, method: str = "") -> HTTPResponse:
    """The answer to a request; path: behind the address, or from the root."""
    parts = urlsplit(server.address)
    connection = HTTPConnection(parts.netloc, timeout=PATIENCE)
    target = path if path.startswith("/") else parts.path + path
    connection._encode_request = lambda request: request.encode("latin-1")  # type: ignore[method-assign,attr-defined]
    connection.request(method or ("GET" if body is None else "POST"), target, body)
    return connection.getresponse()


def message(answer: HTTPResponse) -> tuple[dict[str, Any], bytes]:
    """The next message of a page's connection: {number, content}, and its buffer. Signs of life are passed over."""
    while True:
        text, data = unpack(">II", answer.read(8))
        if text:
            return json.loads(answer.read(text)), answer.read(data)


def messages(answer: HTTPResponse, kind: str) -> tuple[dict[str, Any], bytes]:
    """The next message of a kind."""
    while True:
        found, data = message(answer)
        if found["content"]["type"] == kind:
            return found, data


def post(server: PageServer, *contents: dict[str, Any], number: int = 0) -> int:
    body = json.dumps([{"number": number, "content": content} for content in contents]).encode()
    return asked(server, f"messages?{NAME}", body).status


# -- who may look ------------------------------------------------------------------------------------------------------


NOWHERE = ("/", "/page.mjs", "/messages?page=0123456789", "/{}x/", "/x/", "/{}", "/%C3/", "/\xe9/")


@pytest.mark.parametrize("path", NOWHERE)
def test_nothing_is_there_without_the_secret(server: PageServer, path: str) -> None:
    secret = urlsplit(server.address).path.strip("/")
    assert len(secret) >= 32
    for one in (path.format(secret), path.format(secret.lower() + "A")):
        answer = asked(server, one)
        assert answer.status == 404 and secret not in str(answer.headers) and secret.encode() not in answer.read()
    assert asked(server, path.format("x"), b"[]").status == 404


def test_it_listens_on_this_machine_alone_and_browsers_are_to_fetch_nothing_else(server: PageServer) -> None:
    assert server._server.server_address[0] == "127.0.0.1"
    for path, kind in (("", "text/html"), ("page.css", "text/css"), ("page.mjs", "text/javascript")):
        answer = asked(server, path)
        assert answer.status == 200 and (answer.headers["Content-Type"] or "").startswith(kind)
        assert "default-src 'none'" in (answer.headers["Content-Security-Policy"] or "")
        assert answer.headers["Referrer-Policy"] == "no-referrer" and answer.headers["Cache-Control"] == "no-store"
        text = answer.read().decode()
        assert kind != "text/html" or "vllm 0.32.0" in text
        assert kind != "text/html" or ("http" not in text and "//" not in text)
    assert asked(server, "other").status == 404


def test_text_of_a_stream_is_no_markup(tmp_path: Path) -> None:
    with ReplayedTap(tmp_path / "tap", 2) as tap:
        tap.header["model"] = "<script>alert(1)<"
        with labengine.attach(f"unix:{tmp_path / 'tap'}") as stream, PageServer([stream]) as server:
            assert "alert" in stream.title and b"<script>" not in asked(server, "").read()


# -- messages ----------------------------------------------------------------------------------------------------------


def test_a_page_gets_all_then_news_and_answers(server: PageServer, tap: ReplayedTap) -> None:
    page = asked(server, f"messages?{NAME}")
    assert post(server, {"type": "resync", "side": 0, "view": "v"}) == 204
    found, data = messages(page, "full")
    assert found["number"] == 0 and found["content"]["view"] == "v" and data
    tap.send(20)
    assert messages(page, "more")[1]
    assert post(server, {"type": "why", "side": 0, "view": "v", "id": "1", "subject": {"request": 0}}) == 204
    found, data = messages(page, "why")
    assert found["content"]["id"] == "1" and json.loads(data)["answer"]["question"]
    assert post(server, {"type": "command", "side": 0, "view": "v", "action": "step"}) == 204
    assert "vLLM's own scheduler" in messages(page, "answer")[0]["content"]["error"]
    page.close()


def test_files_of_a_stream_are_served_as_they_are(tmp_path: Path) -> None:
    _, items = next(iter(vllm_streams.read()))
    with labengine.attach(written(items, tmp_path)) as trace, PageServer([trace]) as server:
        page = asked(server, f"messages?{NAME}")
        assert post(server, {"type": "resync", "view": "v"}) == 204
        _, data = messages(page, "full")
        full = json.loads(decompress(data))
        assert full["header"]["is_live"] is False and full["names"][0] == [0, trace.request_names[0]]
        assert post(server, {"type": "why", "view": "v", "id": "1", "subject": {"request": 0}}) == 204
        assert "vllm/v1/core/" in messages(page, "why")[1].decode()
        page.close()


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"{", 400), (b"[" * 100_000, 400), (b"7", 204), (b'[7, {"number": "0"}, {"number": 9}, {"number": true}]', 204)],
)
def test_what_is_no_message_is_left_out(server: PageServer, tap: ReplayedTap, body: bytes, status: int) -> None:
    page = asked(server, f"messages?{NAME}")
    assert asked(server, f"messages?{NAME}", body).status == status
    assert post(server, {"type": "resync", "view": "v"}, {"type": 7}, {"no": "type"}) == 204
    assert messages(page, "full")
    page.close()


def test_what_is_too_long_or_for_no_page_is_refused(server: PageServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(server, f"messages?{NAME}", b"[]").status == 410
    parts = urlsplit(server.address)
    for length in (str(MAX_MESSAGE + 1), "-1", "+5", "1e3", " ", "0x10", "٣", "²", "9" * 5_000):
        with socket.create_connection((parts.hostname or "", parts.port or 0)) as connection:
            head = f"POST {parts.path}messages?{NAME} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n"
            connection.sendall(head.encode())
            assert connection.recv(100).startswith(b"HTTP/1.0 404"), length
    assert capsys.readouterr().err == ""
    assert asked(server, f"messages?{NAME}", method="PUT").status == 501


@pytest.mark.parametrize("length", ["9" * 5_000, "-1", "٣", "1e3", ""])
def test_a_length_that_is_none_is_refused(length: str, server: PageServer, capfd: pytest.CaptureFixture[str]) -> None:
    parts = urlsplit(server.address)
    with socket.create_connection((parts.hostname or "", parts.port or 0)) as connection:
        head = f"POST {parts.path}messages?{NAME} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n"
        connection.sendall(head.encode())
        assert connection.recv(100).startswith(b"HTTP/1.0 404")
    assert capfd.readouterr().err == ""


def test_only_so_many_pages_and_a_closed_one_makes_room(server: PageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "SECONDS_BETWEEN_SIGNS", 0.01)
    held = [asked(server, f"messages?page=0123456{number:03}") for number in range(pages.MAX_PAGES)]
    refused = asked(server, f"messages?{NAME}x")
    assert refused.status == 503 and b"4 pages are open" in refused.read()
    held.pop().close()
    wait_until(lambda: asked(server, f"messages?{NAME}x").status == 200, "the room of the page that was closed")
    for one in held:
        one.close()


def test_a_page_that_does_not_read_loses_news_and_no_answer() -> None:
    waiting, frames = FrameQueue(max_bytes=100), []
    for number in range(5):
        waiting.put(number, {"type": "more"}, [b"x" * 20])
    waiting.put(7, {"type": "why", "view": "v"}, [b"x"])
    taken = waiting.frames()
    frames += [next(taken) for _ in range(3)]
    waiting.put(8, {"type": "more"}, None)
    frames.append(next(taken))
    texts = [frame[8 : 8 + unpack(">I", frame[:4])[0]] for frame in frames]
    assert [json.loads(text)["number"] for text in texts] == [0, 1, 7, 8]
    waiting.put(9, {"type": "full", "view": "v"}, [b"x" * 401])
    assert waiting.is_closed and list(taken) == []


# -- the end -----------------------------------------------------------------------------------------------------------


def test_closing_ends_the_pages_and_leaves_no_thread(tap: ReplayedTap, tmp_path: Path) -> None:
    with labengine.attach(f"unix:{tmp_path / 'tap'}") as stream:
        server = PageServer([stream])
        page = asked(server, f"messages?{NAME}")
        assert stream.feed.is_sending
        server.close()
        server.close()
        page.read()
        assert page.read() == b"", "the connection has ended"
        wait_until(lambda: not stream.feed.is_sending, "the end of the page's view")
        wait_until(lambda: not server._thread.is_alive(), "the end of the server")
    with pytest.raises(OSError):
        asked(server, "")


def test_a_port_that_is_taken_is_named(server: PageServer, tmp_path: Path) -> None:
    port = urlsplit(server.address).port or 0
    refusal = pytest.raises(labengine.ConfigError, match=f"port {port} of 127.0.0.1")
    with labengine.attach(f"unix:{tmp_path / 'tap'}") as stream, refusal:
        PageServer([stream], port)


def test_the_command_serves_and_records(tap: ReplayedTap, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run.lab"
    assert main(["attach", f"unix:{tmp_path / 'tap'}", "--page", "--record", str(out), "--seconds", "0"]) == 0
    recording, title, address, *_ = capsys.readouterr().out.splitlines()
    assert recording == f"recording into {tmp_path / 'run.labstream'}"
    assert title.startswith("vllm 0.32.0") and address.startswith("http://127.0.0.1:")
    assert labengine.open(out).title == title
    with pytest.raises(OSError):
        HTTPConnection(urlsplit(address).netloc).connect()


def test_a_command_shows_all_ranks(tap: ReplayedTap, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ReplayedTap(tmp_path / "tap", 5, rank=1):
        assert main(["attach", f"unix:{tmp_path / 'tap'}"]) == 0
        *listed, last = capsys.readouterr().out.splitlines()
        assert [line.split(" · ")[0].split()[-2:] for line in listed] == [["rank", "0"], ["rank", "1"]]
        assert "--page shows them all" in last and main(["attach", listed[1].split()[0]]) == 0
        assert "· rank 1 ·" in capsys.readouterr().out.splitlines()[0]
        assert main(["attach", f"unix:{tmp_path / 'tap'}", "--page", "--seconds", "0"]) == 0
        first, second, address, *_ = capsys.readouterr().out.splitlines()
        assert "rank 0" in first and "rank 1" in second and address.startswith("http://127.0.0.1:")
        assert main(["attach", f"unix:{tmp_path / 'tap'}", "--page", "--html", "x.html"]) == 2
        assert "--rank N" in capsys.readouterr().err
