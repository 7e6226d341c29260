"""Texts of any length for random instances of questions: sentences whose first words all differ."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

_TEXTS = (
    "Alice was beginning to get very tired of sitting by her sister on the bank and of having nothing to do",
    "Call me in the morning when the first boats are back from the sea and the market has opened its doors",
    "Two roads met in a yellow wood and the traveller was sorry that one cannot walk along both of them today",
    "When the rain had stopped the children ran out into the garden to look for snails under all the wet leaves",
    "Every winter the old lighthouse keeper wrote one long letter to his brother who lived on the other side of town",
    "Please explain to my grandmother how a bicycle can stand up while it is rolling and why it falls when it stops",
    "No one in the village could say who had built the small stone bridge or why it led to an empty field",
    "Bread needs flour and water and salt and a little patience because the dough has to rest for a long night",
    "Once upon a time there was a king who had three daughters and each of them knew the name of every star",
)
"""Each has 20 words or more."""


def words(text: str, num_words: int) -> str:
    """Return a text's first words."""
    return " ".join(text.split()[:num_words])


def phrases(random: Random, *lengths: int) -> list[str]:
    """Return texts with these numbers of words, up to 20; their first words differ."""
    return [words(text, length) for text, length in zip(random.sample(_TEXTS, len(lengths)), lengths, strict=True)]


def listed(things: Sequence[object]) -> str:
    """Join things as in a sentence: "3, 12, 4 and 6"."""
    first, last = ", ".join(map(str, things[:-1])), str(things[-1])
    return f"{first} and {last}" if first else last
