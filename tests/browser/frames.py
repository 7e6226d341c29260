"""What a page has painted, asked in one message: tests ask thousands of times, and each message takes milliseconds."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Locator

_FRAMES = "await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))));"
"""The second one's size observers have run, too."""
MAX_LOOKS = 50
"""Looks at the page after the next paint; gives up on a view that cannot be painted, as in a hidden tab."""

# Long messages are unpacked first. A slow view is painted a frame or more after the rest; a view that comes into sight,
# when the browser has said so. While a lab runs, or a play, there is always more to come.
_ALL = f"""
  const isLate = ({{ isShown, pending: {{ all, queue, tier, blocks, requests, keys }} }}) =>
    isShown() && (all || queue || tier || blocks.size + requests.size + keys.size > 0);
  const isBehind = ({{ stage }}) => {{
    const canPaint = stage?.isReady && stage.visibility?.isVisible,
      isAtRest = canPaint && !stage.isPlaying && !stage.sides.some(({{ status }}) => status.running);
    return isAtRest && (stage.painting.isDirty || stage.painting.shows.some(isLate));
  }};
  const roots = [...document.querySelectorAll(".labengine")];
  await Promise.all(roots.map(({{ stage }}) => stage?.wire?.queue));
  {_FRAMES}
  for (let i = 0; i < {MAX_LOOKS} && roots.some(isBehind); i++) {_FRAMES}
"""

FRAME = f"async () => {{ {_ALL} }}"
"""Returns when what was received and pressed before is on the screen, in slow views too."""

_DATA = f"""async (root, name) => {{
  root.scrollIntoViewIfNeeded();
  for (let i = 0; i < {MAX_LOOKS} && root.stage?.visibility?.isOnPage === false; i++) {_FRAMES}
  {_ALL}
  return root.dataset[name];
}}"""


def then_painted(arguments: str, statement: str) -> str:
    """Return a function of the page that does something and returns when it is on the screen."""
    return f"async ({arguments}) => {{ {statement}; {_ALL} }}"


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
