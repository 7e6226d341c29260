"""A view whose recording is still on its way: clicks and keys do no harm, and commands are sent."""

from __future__ import annotations

import pytest

from browser.bare_pages import BROWSER, BarePages

pytestmark = pytest.mark.browser

TOUCH_ALL = """async (kind) => {
  const { mount } = await import("/widget.js"), sent = [],
    source = { send: (message) => sent.push(message.action), listen: () => () => {} },
    stage = await mount(document.body, [], { kind, views: ["pool", "log"] }, source),
    touch = (selector, act) => [...stage.root.querySelectorAll(selector)]
      .filter((one) => one.checkVisibility({ visibilityProperty: true }) && !one.disabled).map(act);
  touch("button, [role=tab]", (one) => one.click());
  touch("input[type=range]", (one) => one.dispatchEvent(new Event("input")));
  const keys = ["ArrowLeft", "ArrowRight", "PageUp", "PageDown", "Home", "End", "r", "m", "w", "-", "+", "Escape"];
  for (const key of keys) stage.root.dispatchEvent(new KeyboardEvent("keydown", { key }));
  stage.close();
  return sent;
}"""


STEPPING = ["step", "phase", "start"]


@pytest.mark.parametrize(
    ("kind", "commands"), [("dashboard", ["add", *STEPPING, "reset"]), ("compare", STEPPING), ("view", [])]
)
def test_a_view_without_a_recording_takes_every_click_and_key(kind: str, commands: list[str]) -> None:
    def check(pages: BarePages) -> None:
        with pages.lent(1200, 900) as bare:
            bare.show("<body></body>")
            sent = bare.page.evaluate(TOUCH_ALL, kind)
            assert [action for action in sent if action] == commands

    BROWSER.run(check)
