"""The name of a varying text: a clock, an id, a counter, a tenant, a picture."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from labengine.prefix_doctor.causes.content import is_picture
from labengine.prefix_doctor.causes.finding import Kind
from labengine.prefix_doctor.causes.groups import HALF, MOST, TextGroup, Value, VaryingGroup
from labengine.prefix_doctor.traffic.prompt import TokenText
from labengine.record.wording import spelled

_DAYS = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day|(?:mon|tue|wed|thu|fri|sat|sun)\b"
_MONTHS = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_TIME = re.compile(
    r"\d{4}-\d\d?-\d\d?(?:[T ]\d\d?:\d\d(?::\d\d)?(?:[.,]\d+)?)?(?: ?Z|[+-]\d\d:?\d\d)?"
    r"|\d{1,4}/\d\d?/\d{1,4}|\d\d?\.\d\d?\.\d{2,4}"
    r"|\d\d?:\d\d(?::\d\d)?(?:[.,]\d+)?(?: ?[ap]m)?"
    rf"|(?:\d\d?\.? )?{_MONTHS}(?: \d\d?)?(?:,? \d{{4}})?|{_DAYS}"
    r"|\b1[4-9]\d{8}(?:\.\d+|\d{3})?\b",
    re.IGNORECASE,
)
"""A date, a time of day, an ISO stamp, or seconds or milliseconds since 1970."""

_ID = re.compile(
    r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
    r"|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{10,}\b"
    r"|(?=[\w-]*\d)(?=[\w-]*[a-z])[\w-]{12,}"
    r"|(?<![\d.])\d{6,}(?![\d.])",
    re.IGNORECASE,
)
"""A UUID, a hexadecimal number, or a long word of letters and digits."""

_PICTURE = re.compile("<picture [0-9a-f]{16}>")
"""What stands for a picture in a file's chat."""

_NUMBER = re.compile(r"\d{1,18}")


def kind_of(group: VaryingGroup, token_text: TokenText | None) -> Kind:
    """Return the name of what varies in a group's prompts; without text, only a picture or a tenant can be told."""
    if sum(any(map(is_picture, one.value)) for one in group.values) > HALF * len(group.values):
        return "image"
    shown = [_Shown(value, token_text) for value in group.values] if token_text else []
    if shown and _share(shown, _PICTURE) > HALF:
        return "image"
    if shown and _share(shown, _TIME) > HALF:
        return "clock"
    if isinstance(group, TextGroup) and _is_tenant(group):
        return "tenant"
    if shown and _is_counter(shown):
        return "counter"
    if shown and _share(shown, _ID) >= MOST:
        return "id"
    return "varying_text"


class _Shown:
    """A value with the text around it."""

    def __init__(self, value: Value, token_text: TokenText) -> None:
        before, mine, after = (spelled(map(token_text, tokens)) for tokens in (value.before, value.value, value.after))
        self.text = before + mine + after
        self.start, self.end = len(before), len(before) + len(mine)

    def matches(self, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
        """Yield the matches that share a character with the value."""
        return (found for found in pattern.finditer(self.text) if found.start() < self.end and found.end() > self.start)

    def is_like(self, pattern: re.Pattern[str]) -> bool:
        """Return True if most letters and digits of the value are in matches."""
        covered = set[int]()
        for found in self.matches(pattern):
            covered.update(range(found.start(), found.end()))
        letters = [place for place in range(self.start, self.end) if self.text[place].isalnum()]
        return bool(letters) and sum(place in covered for place in letters) >= 0.6 * len(letters)


def _share(shown: Sequence[_Shown], pattern: re.Pattern[str]) -> float:
    return sum(one.is_like(pattern) for one in shown) / len(shown)


def _is_tenant(group: TextGroup) -> bool:
    """Return True if several values come again, as often as new ones come, or new ones belong to other tenants."""
    come_again = len(group.again) > 1 and group.again.total() >= group.num_prompts
    return come_again or group.num_others > MOST * group.num_prompts


def _is_counter(shown: Sequence[_Shown]) -> bool:
    """Return True if almost all values are numbers, each at least as large as the one before."""
    numbers = [int(found.group()) for one in shown for found in list(one.matches(_NUMBER))[:1] if one.is_like(_NUMBER)]
    rising = sum(one <= other for one, other in pairwise(numbers))
    return len(numbers) >= max(3, MOST * len(shown)) and rising >= 0.95 * (len(numbers) - 1)
