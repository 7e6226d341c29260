"""The lecturers' slides: docs/slides.md as one HTML file that contains its pictures.

In a clone, `make slides`; in an environment with labengine's lab extra, python -m tools.slides OUT.html
"""

from __future__ import annotations

import re
import sys
from base64 import b64encode
from pathlib import Path

import mistune

SOURCE = Path(__file__).parent.parent / "docs" / "slides.md"
KINDS = {".svg": "image/svg+xml", ".png": "image/png"}

_STYLE = """
:root { color-scheme: light dark; }
body { margin: 0; font: 3.8vmin/1.4 system-ui, sans-serif; background: Canvas; color: CanvasText; }
section { display: none; box-sizing: border-box; height: 100vh; padding: 4vmin 8vmin; flex-direction: column;
  justify-content: center; }
section.is-shown { display: flex; }
h1, h2 { line-height: 1.15; margin: 0 0 .7em; }
h1 { font-size: 8vmin; } h2 { font-size: 6vmin; }
p, ul, table { margin: .4em 0; }
img { max-width: 100%; max-height: 66vh; min-height: 0; align-self: center; object-fit: contain; background: #fff; }
p:has(img) { display: flex; justify-content: center; min-height: 0; }
td, th { text-align: left; padding: .2em 1.2em .2em 0; border-bottom: 1px solid #8888; }
strong { color: light-dark(#a43c00, #ffb27a); }
footer { position: fixed; right: 2vmin; bottom: 1.5vmin; font-size: 2vmin; opacity: .6; }
@media print { section, section.is-shown { display: flex; break-after: page; } footer { display: none; } }
"""
_SCRIPT = """
const slides = [...document.querySelectorAll("section")], foot = document.querySelector("footer");
const STEPS = { ArrowRight: 1, PageDown: 1, " ": 1, n: 1, ArrowLeft: -1, PageUp: -1, b: -1, Home: -1e3, End: 1e3 };
let at = 0;
function show(number) {
  at = Math.max(0, Math.min(slides.length - 1, number));
  slides.forEach((slide, i) => slide.classList.toggle("is-shown", i === at));
  foot.textContent = `${at + 1} / ${slides.length}`;
  history.replaceState(null, "", `#${at + 1}`);
}
addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.key === "p") print();
  if (!(event.key in STEPS)) return;
  event.preventDefault();
  show(at + STEPS[event.key]);
});
addEventListener("click", (event) => event.target.closest("a") || show(at + (event.clientX < innerWidth / 3 ? -1 : 1)));
show((parseInt(location.hash.slice(1)) || 1) - 1);
"""


def slides_page() -> str:
    """Return the slides as HTML that fetches nothing."""
    texts = re.split(r"^---$", SOURCE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    to_html = mistune.create_markdown(plugins=["table"])
    slides = "".join(f"<section>{_with_pictures(str(to_html(text)))}</section>" for text in texts)
    title = texts[0].strip().splitlines()[0].lstrip("# ")
    return (
        f'<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
        f"{slides}<footer></footer><script>{_SCRIPT}</script></html>"
    )


def _with_pictures(html: str) -> str:
    """Replace each picture's path by its bytes."""
    return re.sub(r'src="([^"]+)"', lambda found: f'src="{_data_of(SOURCE.parent / found[1])}"', html)


def _data_of(path: Path) -> str:
    return f"data:{KINDS[path.suffix]};base64,{b64encode(path.read_bytes()).decode()}"


def main(arguments: list[str]) -> int:
    """Write the page into the named file; return the exit status."""
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    Path(arguments[0]).write_text(slides_page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
