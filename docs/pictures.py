"""The pictures of the README and of docs/, the animation, and the lesson: made anew from the code as it is.

    make pictures        or    python docs/pictures.py [NAME ...]

Needs Chromium (make browser) and Pillow (pip install -e ".[test]"). Everything is a recording on a bare page, played by
the browser halves that a notebook has, so that a picture shows what a reader will see.
"""

from __future__ import annotations

import os
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

DOCS = Path(__file__).resolve().parent
TESTS = DOCS.parent / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "support")]

from PIL import Image, ImageChops  # noqa: E402
from playwright.sync_api import Browser, Page  # noqa: E402

import labengine  # noqa: E402
from browser.chromium import launched  # noqa: E402
from labengine import Lab  # noqa: E402
from labengine.events import BlockCached, Event  # noqa: E402
from labengine.session.compare.comparison import Comparison  # noqa: E402
from labengine_widgets.browser import COMPARE, DASHBOARD, css, esm  # noqa: E402
from labengine_widgets.pages.export import pair_payloads  # noqa: E402
from labengine_widgets.pages.html_page import LOOK  # noqa: E402
from labengine_widgets.pages.whole_recording import recording_payload  # noqa: E402

WIDTH = 1220
SCALE = 2
"""Pixels of a still picture per pixel of the page: it is read on fine screens, too."""

MOUNT = """
async ([source, recordings, arrangement]) => {
  const bytes = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const { mount } = await import("data:text/javascript;base64," + source);
  window.stage = await mount(document.getElementById("lab"), recordings.map(bytes), arrangement);
}
"""
FRAME = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


class Shown:
    """Recordings on a page, and a camera before it."""

    def __init__(self, page: Page, recordings: Sequence[bytes], arrangement: dict[str, Any]) -> None:
        self.page = page
        page.set_content(f'<style>{LOOK}{css()}</style><div id="lab" style="width: {WIDTH}px"></div>')
        texts = [b64encode(data).decode() for data in recordings]
        page.evaluate(MOUNT, [b64encode(esm().encode()).decode(), texts, arrangement])
        self.settle()

    def settle(self) -> None:
        """What was asked for is painted."""
        self.page.evaluate(FRAME)

    def go_to(self, position: int | None = None) -> None:
        """Go to a moment (of a comparison: a caption); to the newest one without."""
        self.page.evaluate("(position) => stage.moveTo(position ?? stage.track.end)", position)
        self.settle()

    def open(self, tab: str) -> None:
        """Open a tab of the drawer."""
        self.page.get_by_role("tab", name=tab, exact=True).click()
        self.settle()

    def select(self, kind: str, id: int) -> None:
        """Choose something in all views."""
        self.page.evaluate("([kind, id]) => stage.select({ kind, id })", [kind, id])
        self.settle()

    def part(self, *selectors: str) -> Image.Image:
        """What stands in these elements, and between them; empty margins cut off."""
        boxes = [box for one in selectors for each in self.page.locator(one).all() if (box := each.bounding_box())]
        left, top = min(box["x"] for box in boxes), min(box["y"] for box in boxes)
        right, bottom = max(b["x"] + b["width"] for b in boxes), max(b["y"] + b["height"] for b in boxes)
        clip = {"x": left, "y": top, "width": right - left, "height": bottom - top}
        picture = Image.open(BytesIO(self.page.screenshot(clip=clip, animations="allow"))).convert("RGB")
        written = ImageChops.difference(picture, Image.new("RGB", picture.size, "white")).getbbox()
        return picture.crop(written)

    def shot(self) -> Image.Image:
        """The view as it is now."""
        data = self.page.locator(".labengine").screenshot(animations="allow", caret="hide")
        return Image.open(BytesIO(data)).convert("RGB")


@contextmanager
def shown(
    browser: Browser,
    recordings: Sequence[bytes],
    arrangement: dict[str, Any],
    scheme: str = "light",
    scale: int = SCALE,
) -> Iterator[Shown]:
    """A fresh page."""
    size = {"width": WIDTH + 40, "height": 1300}
    with browser.new_context(viewport=size, color_scheme=scheme, device_scale_factor=scale) as context:
        yield Shown(context.new_page(), recordings, arrangement)


def kept(picture: Image.Image, name: str) -> None:
    """As a PNG of 256 colours, which is all that these pictures have."""
    path = DOCS / f"{name}.png"
    picture.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.name}: {picture.width} x {picture.height}, {path.stat().st_size / 1024:.0f} KB")


def story(comparison: Comparison) -> list[bytes]:
    """Both sides and their words."""
    return pair_payloads(comparison, comparison.title)


# -- the pictures ------------------------------------------------------------------------------------------------------


BEFORE_MERGE = 15
"""The caption of #219's step after which the two engines differ."""


def compare_219(browser: Browser) -> None:
    """Both engines before they differ, for a slide; and at the end of the step: eight blocks and three lost; five."""
    with labengine.bug("nano-vllm-219").compare() as comparison, shown(browser, story(comparison), COMPARE) as page:
        page.go_to(BEFORE_MERGE)
        kept(page.part(".le-column-heads", ".le-tables-list"), "slide_219")
        page.go_to()
        kept(page.shot(), "compare_219")


def animation(browser: Browser) -> None:
    """The step of #219, caption by caption; the end is held."""
    frames: list[tuple[Image.Image, int]] = []
    with (
        labengine.bug("nano-vllm-219").compare() as comparison,
        shown(browser, story(comparison), COMPARE, scale=1) as page,
    ):
        for position in range(*page.page.evaluate("() => [stage.track.guided[0][1], stage.track.end + 1]")):
            frames += filmed(page, position)
    pictures, durations = zip(*frames, strict=True)
    path = DOCS / "compare_219.webp"
    pictures[0].save(
        path,
        save_all=True,
        append_images=pictures[1:],
        duration=[*durations[:-1], HELD_MS],
        loop=0,
        lossless=True,
        quality=80,
        method=4,
    )
    print(f"{path.name}: {len(frames)} frames, {sum(durations) / 1000:.0f} s, {path.stat().st_size / 1024:.0f} KB")


CAPTION_MS, STOP_MS, HELD_MS, SLIDE_MS = 650, 1900, 7000, 60
"""Milliseconds for which a caption, a guided sentence, the end, and each picture of a slide are shown."""


def filmed(page: Shown, position: int) -> Iterator[tuple[Image.Image, int]]:
    """The way to a moment, and the moment: pictures and how long each is seen."""
    page.page.evaluate("(position) => stage.go(position, true)", position)
    for part in (0.3, 0.6, 0.85):
        if page.page.evaluate(
            "(part) => { const all = document.getAnimations();"
            " for (const one of all) { one.pause(); one.currentTime = part * one.effect.getTiming().duration; }"
            " return all.length; }",
            part,
        ):
            yield page.shot(), SLIDE_MS
    page.page.evaluate("() => { for (const one of document.getAnimations()) one.finish(); }")
    page.settle()
    is_stop = page.page.evaluate("(position) => stage.track.guided.some(([, at]) => at === position)", position)
    yield page.shot(), STOP_MS if is_stop else CAPTION_MS


def inside_219(browser: Browser) -> None:
    """Inside that step: both have computed, eight blocks hold four contents twice, and no hash is known yet."""
    with late_merge() as lab, shown(browser, [recording_payload(lab.view_source())], DASHBOARD, "dark") as page:
        page.go_to(moment_before(lab, BlockCached))
        kept(page.shot(), "inside_219")


def why_two(browser: Browser) -> None:
    """Why is #0's ref count 2? The chain of events, and the method that decided."""
    with late_merge() as lab, shown(browser, [recording_payload(lab.view_source())], DASHBOARD) as page:
        page.go_to()
        page.open("Why?")
        page.select("block", 0)
        kept(page.shot(), "why_ref_count")
        kept(page.part(".le-drawer-body"), "slide_why")


def preempted(browser: Browser) -> None:
    """A pool that is too small: lanes of requests, bands of blocks, and the same moments in both."""
    with preempting() as lab:
        recording = recording_payload(lab.view_source())
    with shown(browser, [recording], {"kind": "view", "views": ["timeline"]}, "dark") as page:
        page.go_to(page.page.evaluate("() => stage.sides[0].recording.steps.find(({ step }) => step === 19).end"))
        page.select("request", 4)
        kept(page.shot(), "timeline")


def misplaced(browser: Browser) -> None:
    """nano-vLLM #71: a token's keys and values go to another slot than the one that attention will read."""
    with labengine.bug("nano-vllm-71").broken() as lab:
        recording = recording_payload(lab.view_source())
    with shown(browser, [recording], DASHBOARD) as page:
        page.open("Step")
        kept(page.shot(), "slots_71")
        kept(page.part(".le-tables-list"), "slide_71")


def tree(browser: Browser) -> None:
    """A prefix tree of questions with common beginnings, two of them running."""
    with questions() as lab:
        recording = recording_payload(lab.view_source())
    with shown(browser, [recording], {"kind": "view", "views": ["tree"]}) as page:
        page.page.evaluate("() => (document.querySelector('.labengine').style.height = '430px')")
        page.go_to()
        kept(page.shot(), "prefix_tree")


def questions() -> Lab:
    """Questions to two assistants, in a lab whose prefixes are in a tree."""
    lab = Lab("smollm2", num_blocks=160, block_size=1, edition="mini-sglang+142")
    library, zoo = "You help in a library. ", "You help in a zoo. "
    asked = [f"{library}Where are the maps?", f"{library}Where are the novels?", f"{zoo}When do lions eat?"]
    for question in (*asked, f"{zoo}When do the seals eat?", f"{library}When do you close?"):
        lab.generate(question, max_tokens=3)
    lab.add(f"{zoo}When do you close?", max_tokens=9, ignore_eos=True)
    lab.add(f"{library}Where are the maps of Rome?", max_tokens=9, ignore_eos=True)
    lab.step(3)
    return lab


def examined(browser: Browser) -> None:
    """The doctor's sums and look-ups, as a notebook shows them."""
    with library() as lab:
        html = labengine.doctor(lab)._repr_html_()
    with browser.new_context(viewport={"width": 1000, "height": 700}, device_scale_factor=SCALE) as context:
        page = context.new_page()
        page.set_content(f"<style>{LOOK}{NOTEBOOK_TABLES}</style>{html}")
        data = page.locator("body > div").screenshot()
    kept(Image.open(BytesIO(data)).convert("RGB"), "doctor")


NOTEBOOK_TABLES = """
body { font: 13px sans-serif; } table { border-collapse: collapse; font-size: 12px; }
th, td { padding: 4px 8px; } tbody tr:nth-child(odd) { background: rgba(127, 127, 127, 0.12); }
"""
"""What JupyterLab does to tables."""


def library() -> Lab:
    """The example of docs/doctor.md."""
    lab = Lab("smollm2", num_blocks=22, block_size=8, edition="vllm")
    rules = "You are a helpful assistant of the city library. Answer in one sentence, and name the shelf. "
    questions = ["Where are the maps?", "Who wrote Emma?", "When do you close?"]
    for second, question in enumerate(questions):
        lab.generate(f"It is 12:00:{second:02d} now. {rules}{question}", max_tokens=4)
    for question in questions:
        lab.generate(f"{rules}It is noon. {question}", max_tokens=4)
    lab.generate("Tell a long story about the sea. " * 20, max_tokens=4)
    lab.generate(f"{rules}It is noon. {questions[0]}", max_tokens=4)
    return lab


def late_merge() -> Lab:
    """The right side of #219 after its step."""
    comparison = labengine.bug("nano-vllm-219").compare()
    comparison.left.close()
    return comparison.right


def preempting() -> Lab:
    """Six requests in a pool that holds four."""
    lab = Lab("simulated", num_blocks=26, block_size=4, edition="vllm", seed=3)
    for i in range(6):
        lab.add(token_ids=range(20 * i, 20 * i + 9 + 2 * i), max_tokens=14 + 3 * i)
    lab.run()
    return lab


def moment_before(lab: Lab, kind: type[Event]) -> int:
    """The moment before the first event of a kind."""
    return next(i for i, event in enumerate(lab.timeline.events()) if isinstance(event, kind))


def lesson(browser: Browser) -> None:
    """The page to scrub without an install: the whole story of #219, with what it costs later."""
    with labengine.bug("nano-vllm-219").compare() as comparison:
        comparison.follow_up()
        path = comparison.export_html(DOCS / "lesson_219.html")
    print(f"{path.name}: {path.stat().st_size / 1024:.0f} KB")


PICTURES: dict[str, Callable[[Browser], None]] = {
    "compare_219": compare_219,
    "animation": animation,
    "lesson": lesson,
    "inside_219": inside_219,
    "why_ref_count": why_two,
    "timeline": preempted,
    "slots_71": misplaced,
    "prefix_tree": tree,
    "doctor": examined,
}


def main(names: Sequence[str]) -> None:
    """Make those that are named, or all."""
    with launched() as browser:
        for name in names or PICTURES:
            PICTURES[name](browser)


if __name__ == "__main__":
    main(sys.argv[1:])
