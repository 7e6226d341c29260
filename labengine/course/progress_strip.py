"""The progress of one notebook: a strip of its questions, and a picture that right answers uncover part by part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from html import escape
from typing import overload

from labengine.config import ConfigError, shown
from labengine.course.check_result import boxed
from labengine.course.progress import ProgressTable
from labengine.course.progress import progress as all_progress
from labengine.course.progress_file import Attempts
from labengine.course.words import NOTEBOOKS, exercise_names

HUES = {"b": "#56B4E9", "g": "#009E73", "y": "#F0E442", "o": "#E69F00", "p": "#CC79A7", "k": "#0072B2"}
"""The colours of blocks in the pictures."""
_SQUARES = {"b": "🟦", "g": "🟩", "y": "🟨", "o": "🟧", "p": "🟪", "k": "⬛", ".": "⬜"}
"""The same as emoji, for pages without styles such as GitHub's; a style hides them elsewhere."""
_HIDDEN = "⬜"
_COVERED = "#88888840"
_SMALL = "display:inline-block;width:15px;height:15px;margin:1px;border-radius:3px;font-size:0;background:{}"
_TILE = "display:inline-block;padding:1px 7px;margin:2px;border-radius:4px;{}"

_CAT = ("o....o....", "oo..oo....", "oooooo....", "okookoo..o", "ooppooooo.", ".oooooooo.", "..oo..oo..")
_SUN = ("..y..y..y.", "...yyyy...", "y.yyyyyy.y", "..yyyyyy..", "y.yyyyyy.y", "...yyyy...", "..y..y..y.")
_TRAIN = ("..kk......", "..kk...bbb", "ggggg..bbb", "gbbgggobbb", "gbbggg.bbb", "gggggg.bbb", ".k..k..k.k")
_FISH = ("...bbbb...", "o.bbbbbbb.", "oobbbbbkbb", ".obbbbbbbb", "oobbbbbbb.", "o.bbbbbb..", "...bbb....")
_HEART = (".pp....pp.", "pppp..pppp", "pppppppppp", ".pppppppp.", "..pppppp..", "...pppp...", "....pp....")
PICTURES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "why-blocks": (_CAT, "a cat, in blocks: it sleeps all day"),
    "first-light": (_SUN, "first light"),
    "continuous-batching": (_TRAIN, "a train that takes on new passengers while it runs"),
    "prefix-caching": (_FISH, "one from the sea, about which A and B have asked"),
}
_ANY = (_HEART, "all blocks are where they belong")


@dataclass(frozen=True, repr=False)
class ProgressStrip:
    """The questions of one notebook and the reader's answers. names: in course order."""

    notebook: str
    names: tuple[str, ...]
    attempts: Mapping[str, Attempts]

    @property
    def num_passed(self) -> int:
        """Number of questions answered correctly."""
        return sum(self._state(name) == "✓" for name in self.names)

    @property
    def is_complete(self) -> bool:
        """True if all are answered correctly."""
        return self.num_passed == len(self.names)

    def _state(self, name: str) -> str:
        tried = self.attempts.get(name)
        return "·" if tried is None or not (tried.passed or tried.tries) else "✓" if tried.passed else "✗"

    @property
    def headline(self) -> str:
        """A sentence on the number of answers, and on the picture."""
        _, title = PICTURES.get(self.notebook, _ANY)
        if self.is_complete:
            return f"All {len(self.names)} questions of this notebook answered: {title}."
        return (
            f"{self.num_passed} of {len(self.names)} questions of this notebook answered. Each right answer uncovers a "
            "part of the picture; run this cell again to see it."
        )

    def __repr__(self) -> str:
        return "\n".join([self.headline, *(f"{self._state(name)} {_short(name)}" for name in self.names)])

    def _repr_html_(self) -> str:
        tiles = "".join(map(self._tile, self.names))
        rows = "".join(f'<div style="line-height:0">{"".join(row)}</div>' for row in self._uncovered())
        return boxed(
            f"<p>{escape(self.headline)}</p><p>{tiles}</p>{rows}", HUES["g"] if self.is_complete else "#888888"
        )

    def _tile(self, name: str) -> str:
        state = self._state(name)
        look = {
            "✓": f"background:{HUES['g']};color:#fff",
            "✗": f"border:1px dashed {HUES['o']}",
            "·": "border:1px solid #888",
        }[state]
        return f'<span style="{_TILE.format(look)}">{state} {escape(_short(name))}</span> '

    def _uncovered(self) -> Iterator[list[str]]:
        """Yield the picture's rows, uncovered from the left in proportion to the right answers."""
        picture, _ = PICTURES.get(self.notebook, _ANY)
        width = len(picture[0])
        num_shown = width if self.is_complete else width * self.num_passed // len(self.names)
        for row in picture:
            yield [
                _square(HUES.get(sign, "none"), _SQUARES[sign]) if place < num_shown else _square(_COVERED, _HIDDEN)
                for place, sign in enumerate(row)
            ]


def _square(color: str, sign: str) -> str:
    return f'<span style="{_SMALL.format(color)}">{sign}</span>'


@overload
def progress(notebook: None = None) -> ProgressTable: ...
@overload
def progress(notebook: str) -> ProgressStrip: ...
def progress(notebook: str | None = None) -> ProgressTable | ProgressStrip:
    """Return the reader's progress: a table of the exercises tried so far, kept only on this machine.

    notebook: return a strip of this notebook's questions instead; the first half of their names, such as "first-light".
    Raises ConfigError for an unknown name.
    """
    attempts = all_progress()
    if notebook is None:
        return attempts
    if notebook not in NOTEBOOKS:
        near = get_close_matches(str(notebook), NOTEBOOKS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(NOTEBOOKS)}"
        raise ConfigError(f"no notebook {shown(notebook)}; {hint}")
    names = tuple(name for name in exercise_names() if name.startswith(f"{notebook}/"))
    return ProgressStrip(notebook, names, attempts)


def _short(name: str) -> str:
    return name.partition("/")[2].replace("-", " ")
