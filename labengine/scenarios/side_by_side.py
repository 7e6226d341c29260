"""Two answers to the same prompts beside one another, and the first word in which they differ."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from itertools import zip_longest


@dataclass(frozen=True, slots=True, repr=False)
class SideBySide:
    """texts: per name, one text per request, in the order of the requests."""

    names: tuple[str, str]
    texts: tuple[tuple[str, ...], ...]

    def parting(self, request: int) -> tuple[int, str, str] | None:
        """(number of the word from 0, one word, the other): the first difference of a request; None without one."""
        left, right = (re.findall(r"\s*\S+", texts[request]) for texts in self.texts)
        for number, (one, other) in enumerate(zip_longest(left, right, fillvalue="")):
            if one.strip() != other.strip():
                return number, one.strip(), other.strip()
        return None

    @property
    def num_differing(self) -> int:
        """Requests whose texts differ."""
        return sum(self.parting(request) is not None for request in range(len(self.texts[0])))

    def __repr__(self) -> str:
        width = max(map(len, self.names))
        lines = []
        for request, both in enumerate(zip(*self.texts, strict=True)):
            lines += [f"{name.ljust(width)}  {text!r}" for name, text in zip(self.names, both, strict=True)]
            lines += [f"{'':{width}}  {self._told(request)}", ""]
        return "\n".join(lines).rstrip()

    def _told(self, request: int) -> str:
        parting = self.parting(request)
        if parting is None:
            return "the same words"
        number, one, other = parting
        return f"they part at word {number + 1}: {one or 'the end'!r} instead of {other or 'the end'!r}"

    def _repr_html_(self) -> str:
        head = "".join(f'<th style="text-align:left">{escape(name)}</th>' for name in self.names)
        body = "".join(
            "<tr>" + "".join(self._html_text(request, texts[request]) for texts in self.texts) + "</tr>"
            for request in range(len(self.texts[0]))
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def _html_text(self, request: int, text: str) -> str:
        parting = self.parting(request)
        words = re.findall(r"\s*\S+", text)
        if parting is None or parting[0] >= len(words):
            marked = escape(text)
        else:
            number = parting[0]
            before, word, after = "".join(words[:number]), words[number], "".join(words[number + 1 :])
            space = word[: len(word) - len(word.lstrip())]
            marked = f"{escape(before)}{space}<mark>{escape(word.lstrip())}</mark>{escape(after)}"
        return f'<td style="text-align:left;vertical-align:top;white-space:pre-wrap">{marked}</td>'
