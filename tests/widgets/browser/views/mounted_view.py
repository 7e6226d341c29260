"""One view on a bare page: the browser's own modules, a recording, and a stage that only remembers what it is asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from browser.bare_pages import BROWSER, BarePage, BarePages
from browser.screenshots import keep
from checkout import ROOT
from labengine import events as ev
from labengine.record.files import codec

PICTURES = ROOT / ".artifacts" / "views"

SET_UP = """
async ([name, payload]) => {
  const { internals } = await import("/widget.js");
  const { Side, VIEWS } = internals, module = VIEWS[name];
  const side = new Side(0), root = document.getElementById("root");
  side.begin(JSON.parse(payload), null);
  const stage = {
    sides: [side], isPair: false, isLive: false, selection: null, theme: {}, wire: { canAsk: false },
    track: { guide: [], whyDifferent: null, positionAt: (_side, moment) => moment },
    text: (which, id) => side.text(id),
    select(selection) { this.selection = selection; view.mark(selection); },
    ask: () => new Promise(() => {}), askOlder() {}, moveTo() {},
    repaint: () => view.paint(side.scene, all, { moment: side.moment, isPlaying: false }),
  };
  const view = module.create(stage, side);
  root.append(view.element);
  window.mounted = { stage, side, view, title: module.title };
  const sets = { blocks: new Set(), requests: new Set(), keys: new Set() };
  const all = { all: true, ...sets, queue: true, tier: true, tree: true };
  window.goTo = (moment) => {
    const changes = window.isPainted ? side.move(moment) : (side.move(moment), all);
    window.isPainted = true;
    const before = performance.now();
    view.paint(side.scene, changes, { moment, isPlaying: false });
    window.lastPaint = performance.now() - before;
  };
  window.more = (events) => side.recording.more({ start: side.recording.end, events });
}
"""

UNFOLD = """() => {
  const { view, stage, side } = window.mounted;
  for (const id of side.scene.requests.keys()) view.folding.byHand.set(id, true);
  stage.repaint();
}"""

PLACES = """
(selector) => Object.fromEntries([...document.querySelectorAll(selector)].map((one) => {
  const { x, y } = one.getBoundingClientRect();
  return [one.dataset.anchor || one.dataset.hash || one.dataset.request || one.textContent, [x, y]];
}))
"""

WALK = """
([moments, scripts]) => {
  const asked = scripts.map((script) => (0, eval)(script));
  return moments.map((moment) => (window.goTo(moment), asked.map((ask) => ask())));
}
"""

BOXES = "(all) => all.map((one) => one.getBoundingClientRect()).map(({ x, y, width, height }) => [x, y, width, height])"


def texts_of(selector: str, kept: str = "true") -> str:
    """Return a function of the page: the texts of the elements `one` for which `kept` is true."""
    return f"() => [...document.querySelectorAll({selector!r})].filter((one) => {kept}).map((one) => one.textContent)"


def places_of(selector: str) -> str:
    """Return a function of the page: MountedView.places."""
    return f"() => ({PLACES.strip()})({selector!r})"


def boxes_of(selector: str) -> str:
    """Return a function of the page: MountedView.boxes."""
    return f"() => ({BOXES})([...document.querySelectorAll({selector!r})])"


THEMES = {
    "light": {},
    "dark": {
        "--jp-layout-color1": "#111111",
        "--jp-ui-font-color1": "#f0f0f0",
        "--jp-ui-font-color2": "#b0b0b0",
        "--jp-border-color1": "#5f5f5f",
        "--jp-border-color2": "#444444",
        "--jp-brand-color1": "#64b5f6",
        "--jp-error-color1": "#ff8a80",
    },
}


class MountedView:
    """A page that holds one view; moments are numbers of events."""

    def __init__(
        self,
        bare: BarePage,
        name: str,
        events: Sequence[ev.Event],
        words: dict[int, str] | None = None,
        width: int = 640,
    ) -> None:
        self.bare, self.page, self.name = bare, bare.page, name
        page = self.page
        frame = f"display: block; width: {width}px; height: 520px; min-width: 0; max-width: none; padding: 8px"
        bare.show(f'<body data-jp-theme-light="true"><div id="root" class="labengine" style="{frame}"></div></body>')
        texts = [[token, text] for token, text in (words or {}).items()]
        header = {"kinds": codec.KINDS, "title": "test", "is_live": False}
        payload = {"header": header, "start": 0, "keyframe": None, "events": codec.rows(events), "texts": texts}
        page.evaluate(SET_UP, [name, codec.dumps(payload).decode()])
        self.end = len(events)
        self.at(self.end)

    def at(self, moment: int) -> None:
        """Show a moment."""
        self.page.evaluate("(moment) => window.goTo(moment)", moment)

    def walk(self, moments: Iterable[int], *scripts: str) -> Iterator[tuple[int, list[Any]]]:
        """Show each moment, in one message; return each with what these functions of the page said at it."""
        moments = list(moments)
        return zip(moments, self.page.evaluate(WALK, [moments, scripts]), strict=True)

    def unfold(self) -> None:
        """Every request of the block tables with its slots."""
        self.page.evaluate(UNFOLD)

    def more(self, events: Sequence[ev.Event]) -> None:
        """More of the recording comes in, and the view follows."""
        self.page.evaluate("(rows) => window.more(rows)", json.loads(codec.dumps(codec.rows(events))))
        self.end += len(events)
        self.at(self.end)

    def text(self, selector: str) -> str:
        return str(self.page.locator(selector).first.text_content() or "")

    def texts(self, selector: str) -> list[str]:
        return self.page.locator(selector).all_text_contents()

    def count(self, selector: str) -> int:
        return self.page.locator(selector).count()

    def places(self, selector: str) -> dict[str, list[float]]:
        """Positions on the page of the elements, by the thing that each one shows."""
        found: dict[str, list[float]] = self.page.evaluate(PLACES, selector)
        return found

    def boxes(self, selector: str) -> list[list[float]]:
        """x, y, width and height of each, in order."""
        found: list[list[float]] = self.page.eval_on_selector_all(selector, BOXES)
        return found

    def dress(self, theme: str, width: int | None = None) -> None:
        style = {name: THEMES[theme].get(name, "") for name in THEMES["dark"]}
        self.page.evaluate(
            "([style, width]) => { for (const [k, v] of Object.entries(style)) document.body.style.setProperty(k, v);"
            "document.body.style.background = 'var(--jp-layout-color1, white)';"
            "if (width) document.getElementById('root').style.width = width + 'px'; }",
            [style, width],
        )

    def overflow(self) -> int:
        """How much wider the page's content is than its frame."""
        script = "() => { const r = document.getElementById('root'); return r.scrollWidth - r.clientWidth; }"
        return int(self.page.evaluate(script))

    def picture(self, title: str, theme: str = "light", width: int | None = None) -> None:
        """A screenshot to look at, in .artifacts/views."""
        self.dress(theme, width)
        keep(self.page.locator("#root"), PICTURES / f"{self.name}-{title}-{theme}.png")


def show_view(
    check: Callable[[MountedView], None],
    name: str,
    events: Sequence[ev.Event],
    *,
    words: dict[int, str] | None = None,
    width: int = 640,
    **options: Any,
) -> None:
    """Run a check on a mounted view; it must leave no error in the page.

    words: texts of tokens; options: the browser's context's.
    """

    def run(pages: BarePages) -> None:
        with pages.lent(1440, 900, **options) as bare:
            check(MountedView(bare, name, events, words, width))

    BROWSER.run(run)
