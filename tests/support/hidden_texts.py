"""Texts that hide: control, direction and zero-width characters; and whether an output has any of them left."""

from __future__ import annotations

import unicodedata

HIDING = "x\x1b[2K\x1b[1A\x1b]0;t\x07\x9b2J\u202ey\u2066\u200bz\u2028\x0b\x0c\x85\x1c\r\x7f\u200f\ufeff\u00adw"
"""One of each kind, between letters."""

CONTROLS = {"Cc", "Cf", "Co", "Zl", "Zp"}
BLANK_LETTERS = "\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0"


def hidden_in(text: str) -> str:
    """Return the first characters of a text that are not seen, escaped, with what stands before them."""
    for place, one in enumerate(text):
        if one not in "\n\t" and (unicodedata.category(one) in CONTROLS or one in BLANK_LETTERS):
            return ascii(text[max(0, place - 60) : place + 10])
    return ""
