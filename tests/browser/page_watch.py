"""What must not happen on a page: an uncaught error, a word on the console's error channel, a request to elsewhere."""

from __future__ import annotations

from urllib.parse import urlsplit

from playwright.sync_api import ConsoleMessage, Page, Request, WebSocket

LOCAL_SCHEMES = ("data", "blob", "about")


class PageWatch:
    """Listens to a page from its first moment; `complaints()` is empty when all was well."""

    def __init__(self, page: Page, origin: str) -> None:
        self.page_errors: list[str] = []
        self.console_errors: list[str] = []
        self.foreign_requests: list[str] = []
        self._host = urlsplit(origin).netloc
        page.on("pageerror", lambda error: self.page_errors.append(error.stack or str(error)))
        page.on("console", self._on_console)
        page.on("request", self._on_request)
        page.on("websocket", self._on_request)

    def complaints(self) -> list[str]:
        """Everything that must not be, one line each."""
        kinds = (
            ("page error", self.page_errors),
            ("console error", self.console_errors),
            ("request", self.foreign_requests),
        )
        return [f"{kind}: {text}" for kind, texts in kinds for text in texts]

    def forget(self) -> None:
        """Start over, for a test that caused its complaints on purpose and has looked at them."""
        for texts in (self.page_errors, self.console_errors, self.foreign_requests):
            texts.clear()

    def report(self) -> str:
        """The complaints, or that there are none."""
        return "\n".join(self.complaints()) or "the page itself has complained of nothing"

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.console_errors.append(f"{message.text} ({message.location.get('url', '')})")

    def _on_request(self, request: Request | WebSocket) -> None:
        url = urlsplit(request.url)
        if url.scheme not in LOCAL_SCHEMES and url.netloc != self._host:
            self.foreign_requests.append(request.url)
