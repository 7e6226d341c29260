"""Texts that hide: characters that draw nothing, of every kind; and whether an output has any of them left."""

from __future__ import annotations

import unicodedata

HIDING = (
    "x\x1b[2K\x1b[1A\x1b]0;t\x07\x9b2J\u202ey\u2066\u200bz\u2028\x0b\x0c\x85\x1c\r\x7f\u200f\ufeff\u00adw"
    "\u3164\ufe0fi\u180b\u200d\U000e0041\U000e0100\u00a0\u3000\u2800\ufffc\ue000\U00013441v"
)
"""One of each kind, between letters."""

CATEGORIES = {"Cc", "Cf", "Co", "Cs", "Zl", "Zp", "Zs"}
IGNORABLE = "34f 115f-1160 17b4-17b5 180b-180f 2065 3164 fe00-fe0f ffa0 fff0-fff8 e0000-e0fff"
"""Default_Ignorable_Code_Point of DerivedCoreProperties.txt, Unicode 17, where it is not of these categories."""
BLANK = "2800 fffc 13441-13442 16fe4 1d159"
EGYPTIAN = "13430-1343f"
"""Of category Cf since Unicode 15, which Python 3.11 does not know."""


def _numbers(ranges: str) -> set[int]:
    pairs = [one.partition("-") for one in ranges.split()]
    return {number for first, _, last in pairs for number in range(int(first, 16), int(last or first, 16) + 1)}


LISTED = _numbers(f"{IGNORABLE} {BLANK} {EGYPTIAN}")


def is_hidden(number: int) -> bool:
    """Return whether a code point draws nothing."""
    return number != 0x20 and (unicodedata.category(chr(number)) in CATEGORIES or number in LISTED)


def hidden_in(text: str) -> str:
    """Return the first characters of a text that are not seen, escaped, with what stands before them."""
    for place, one in enumerate(text):
        if one not in "\n\t" and not (" " < one <= "~") and is_hidden(ord(one)):
            return ascii(text[max(0, place - 60) : place + 10])
    return ""
