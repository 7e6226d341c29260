"""Requests by their letters, A, B, C ..., as every view calls them: for whoever gives a name in place of an id."""

from __future__ import annotations

from re import compile as pattern

_LETTERS = pattern("[A-Z]{1,4}|[a-z]{1,2}")
"""As they are printed; short ones small, too. A longer word was meant as something else."""


def request_id_of(named: object) -> object:
    """The id that "A" or "AB" stands for. Anything else comes back as it is, and whoever wants an id judges it."""
    if not isinstance(named, str) or not _LETTERS.fullmatch(named):
        return named
    number = 0
    for letter in named.upper():
        number = 26 * number + ord(letter) - ord("A") + 1
    return number - 1
