"""A browser on a thread of its own: the tests in JupyterLab keep an event loop on the main one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

from browser.chromium import launched

Look = Callable[..., None]
"""look(check, ...): what a page's own `looks` says."""


@contextmanager
def looking(checked: Callable[..., None]) -> Iterator[Look]:
    """Calls checked(browser, ...) on that thread with whatever the Look is called with, as often as it is."""
    with ThreadPoolExecutor(1) as thread, ExitStack() as stack:
        browser = thread.submit(lambda: stack.enter_context(launched())).result()
        try:
            yield lambda *arguments, **options: thread.submit(checked, browser, *arguments, **options).result()
        finally:
            thread.submit(stack.close).result()
