"""A web server for this machine only: a page with a secret in its address, and its messages in both directions."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from hmac import compare_digest
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from secrets import token_urlsafe
from threading import Thread
from typing import Any, Protocol

from labengine.config import ConfigError
from labengine.record.wording import readable
from labengine.system.closing import Closing
from labengine.vllm.stream.page.pages import Pages
from labengine_widgets.browser import css, esm
from labengine_widgets.feed.feed import Feed
from labengine_widgets.pages.html_page import LOOK

MAX_MESSAGE = 1 << 20
"""Most bytes of a request's body."""

SECONDS_OF_PATIENCE = 30.0
"""Seconds that a connection may pause while sending its request or receiving data."""

_NAME = re.compile(r"page=([\w-]{8,64})")


POLICY = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

_START = """
labengine.serve(document.getElementById("lab"));
"""

_STYLE = """
body:has(.served-ranks) { max-width: none; }
.served-ranks { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(660px, 100%), 1fr)); gap: 12px; }
.served-ranks > * { min-width: 0; }
.served .labengine { height: max(670px, calc(100vh - 32px)); }
.served .labengine.le-is-drawn { height: max(930px, calc(100vh - 32px)); }
.served-refusal { color: var(--jp-error-color1); }
@media (max-width: 480px) { body { padding: 4px; } }
"""


def document(titles: Sequence[str]) -> bytes:
    """Return the HTML of a page with a dashboard for each title."""
    title = escape(readable(f"labengine: {titles[0]}" + (f" and {len(titles) - 1} more" if titles[1:] else "")))
    lines = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">',
        f'<title>{title}</title><link rel="stylesheet" href="page.css"></head><body>',
        f'<main id="lab" class="served{" served-ranks" if titles[1:] else ""}" data-number="{len(titles)}"></main>',
        "<noscript>This page follows a scheduler: it needs JavaScript.</noscript>",
        '<script type="module" src="page.mjs"></script></body></html>',
    )
    return "\n".join(lines).encode("utf-8", "replace")


def style() -> bytes:
    """Return the style sheet."""
    return f"{LOOK}{_STYLE}{css()}".encode()


def script() -> bytes:
    """Return the browser half, which begins by itself."""
    return (esm() + _START).encode()


class Viewed(Protocol):
    """A recording or a lab, whose page has its controls."""

    @property
    def title(self) -> str:
        """One line."""

    @property
    def feed(self) -> Feed:
        """The source of its views."""


class PageServer(Closing):
    """Serves the dashboards of recordings, or of labs, until `close`.

    Other users of this machine can connect, but lack the secret.

    address: of the page, with the secret, which is enough to view it. Raises ConfigError for a port in use.
    """

    def __init__(self, recordings: Sequence[Viewed], port: int = 0) -> None:
        self._recordings = recordings
        self.pages = Pages([one.feed for one in recordings])
        try:
            self._server = _Server(("127.0.0.1", port), _Handler)
        except OSError as error:
            raise ConfigError(f"port {port} of 127.0.0.1 cannot be used ({error.strerror}): choose another") from error
        self._server.page_server, self._server.secret = self, token_urlsafe(24)
        self.address = f"http://127.0.0.1:{self._server.server_port}/{self._server.secret}/"
        self._thread = Thread(target=self._server.serve_forever, args=(0.1,), name="labengine-page", daemon=True)
        self._thread.start()

    def document(self) -> bytes:
        """Return the page's HTML."""
        return document([one.title for one in self._recordings])

    def close(self) -> None:
        """End the connections of all pages, and the server. Twice is harmless."""
        self._server.shutdown()
        self.pages.close()
        self._server.server_close()
        self._thread.join(2.0)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    page_server: PageServer
    secret: str

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a browser that disconnects, in the middle of a line or between two."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = SECONDS_OF_PATIENCE
    server_version, sys_version = "labengine", ""

    def do_GET(self) -> None:  # http.server's name
        """Send a file of the page, or its messages for as long as it is open."""
        path = self._path()
        files: dict[str, tuple[str, Callable[[], bytes]]] = {
            "": ("text/html", self.server.page_server.document),
            "page.css": ("text/css", style),
            "page.mjs": ("text/javascript", script),
        }
        if path in files:
            kind, content = files[path]
            self._answer(200, content(), f"{kind}; charset=utf-8")
        elif path == "messages":
            self._send_messages()
        else:
            self._answer(404, b"nothing is here: the command that serves the page prints its address\n")

    def do_POST(self) -> None:  # http.server's name
        """Take messages of a page."""
        length = self.headers.get("Content-Length", "")
        is_number = length.isascii() and length.isdecimal() and len(length) < 10
        if self._path() != "messages" or not is_number or int(length) > MAX_MESSAGE:
            self.close_connection = True  # the body stays unread
            return self._answer(404, b"")
        try:
            messages = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            return self._answer(400, b"")
        is_open = self.server.page_server.pages.receive(self._page_name(), messages)
        self._answer(204 if is_open else 410, b"")

    def log_message(self, format: str, *arguments: Any) -> None:  # http.server's names
        """Print nothing, because a request's line has the secret."""

    def _path(self) -> str | None:
        """Return the path after the secret; None without the secret."""
        secret, slash, path = self.path.partition("?")[0].removeprefix("/").partition("/")
        return path if slash and compare_digest(secret.encode(), self.server.secret.encode()) else None

    def _page_name(self) -> str:
        found = _NAME.fullmatch(self.path.partition("?")[2])
        return found[1] if found else ""

    def _send_messages(self) -> None:
        name, pages = self._page_name(), self.server.page_server.pages
        try:
            page = pages.opened(name)
        except ConfigError as error:
            return self._answer(503, str(error).encode())
        try:
            self._begin(200, "application/octet-stream")
            with suppress(OSError):  # the page was closed
                for frame in page.queue.frames():
                    self.wfile.write(frame)
        finally:
            pages.closed(name)

    def _answer(self, status: int, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
        self._begin(status, kind, len(body))
        self.wfile.write(body)

    def _begin(self, status: int, kind: str, length: int | None = None) -> None:
        headers = {
            "Content-Type": kind,
            "Content-Security-Policy": POLICY,
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Resource-Policy": "same-origin",
        }
        self.send_response(status)
        for header, value in headers.items():
            self.send_header(header, value)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()
