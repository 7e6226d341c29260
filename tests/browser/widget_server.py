"""Serves a page, the widgets' module and their style sheet: the browser fetches them once, not for each test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote, urlsplit

from labengine_widgets.browser import css, esm

HEAD = '<!doctype html><link rel="icon" href="data:,"><link rel="stylesheet" href="/widget.css">'


class Handler(BaseHTTPRequestHandler):
    """Answers /widget.js, /widget.css, and /?BODY with a page of that body; all may be kept."""

    def do_GET(self) -> None:
        """Serve one of them."""
        url = urlsplit(self.path)
        if url.path == "/widget.js":
            self._answer("text/javascript", esm())
        elif url.path == "/widget.css":
            self._answer("text/css", css())
        else:
            self._answer("text/html", HEAD + unquote(url.query))

    def _answer(self, kind: str, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Cache-Control", "max-age=86400, immutable")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def served_widget() -> Iterator[str]:
    """Serve them on this machine; yield the address, with a slash at its end."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
