"""What a page has painted, asked in one message: tests ask thousands of times, and each message takes milliseconds."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Locator

FRAME = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
"""Returns when what was received and pressed before is on the screen."""

_AFTER = (
    "async ({}) => {{ {}; await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))); }}"
)
_DATA = """async (root, name) => {
  root.scrollIntoViewIfNeeded();
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  return root.dataset[name];
}"""


def then_painted(arguments: str, statement: str) -> str:
    """Return a function of the page that does something and returns when it is on the screen."""
    return _AFTER.format(arguments, statement)


def press(root: Locator, *keys: str) -> None:
    """Press keys with an element focused."""
    first, *more = keys
    root.press(first)
    for key in more:
        root.page.keyboard.press(key)
    root.page.evaluate(FRAME)


def painted_data(root: Locator, name: str) -> Any:
    """Return a data attribute of an element, None where it has none, after the next paint in sight."""
    return root.evaluate(_DATA, name)
