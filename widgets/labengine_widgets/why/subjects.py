"""What a question is about: one of block, request, hash, event or next_victim, and which question about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from labengine_widgets.selection import Selection
from labengine_widgets.why.answer import WhyError

ABOUT: dict[str, tuple[str, ...]] = {
    "block": ("ref_count", "lost", "free", "queue"),
    "request": ("hit", "preempted", "waiting", "finished"),
    "hash": (),
    "event": (),
    "next_victim": (),
}
"""Per kind of subject, the questions one can ask about it; without one, the likeliest is answered."""

EXAMPLES = "why(block=3), why(request=0), why(hash='1f3a'), why(event=17) or why(next_victim=True)"


class Subject(NamedTuple):
    """kind: block, request, hash, event or next_victim; about: one of ABOUT[kind], or None."""

    kind: str
    id: Any
    about: str | None


def parsed(subject: Mapping[str, Any] | Selection) -> Subject:
    """From keywords ({"block": 3, "about": "free"}) or a selection ({"kind": "block", "id": 3})."""
    if isinstance(subject, Selection):
        subject = subject.to_dict()
    if not isinstance(subject, Mapping):
        raise WhyError(f"a question is about one thing: {EXAMPLES}; got {subject!r}")
    about = subject.get("about")
    named = {name: value for name, value in subject.items() if name != "about"}
    if set(named) == {"kind", "id"} or set(named) == {"kind"}:
        kind, asked = named["kind"], named.get("id")
    elif len(named) == 1:
        [(kind, asked)] = named.items()
    else:
        raise WhyError(f"a question is about one thing: {EXAMPLES}; got {sorted(map(str, named)) or 'nothing'}")
    if not isinstance(kind, str) or kind not in ABOUT:
        raise WhyError(f"nothing is known about a {kind!r}: {EXAMPLES}")
    if about is not None and about not in ABOUT[kind]:
        what = f"about is one of {', '.join(map(repr, ABOUT[kind]))}" if ABOUT[kind] else "there is but one question"
        raise WhyError(f"for {'an' if kind == 'event' else 'a'} {kind}, {what}; got {about!r}")
    if kind == "next_victim" and asked is not True and "kind" not in named:
        raise WhyError(f"next_victim=True asks which block is evicted next; got {asked!r}: block=3 asks about a block")
    return Subject(kind, asked, about)
