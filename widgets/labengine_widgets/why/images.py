"""What keeps the blocks of two requests with equal tokens apart: other images behind the tokens, or other keys."""

from __future__ import annotations

from labengine import events as ev
from labengine.record.wording import readable, request_name
from labengine_widgets.why.past import Past
from labengine_widgets.words.phrases import MAX_IMAGE

Image = tuple[int, int, str]
"""(position, length, identifier)."""


def kept_apart(past: Past, asker: int, other: int, end: int) -> str:
    """Return why blocks of two requests' first `end` tokens have unlike hashes, as a clause."""
    ours, theirs = images_of(past, asker, end), images_of(past, other, end)
    if ours == theirs:
        return "a cache salt or an adapter keeps them apart"
    pairs = [(image, other, asker) for image in theirs if image not in ours]
    pairs += [(image, asker, other) for image in ours if image not in theirs]
    (start, _, name), owner, lacking = min(pairs)
    text = f"{request_name(owner)} has the image “{readable(name, MAX_IMAGE)}” at position {start}"
    return f"{text}, and {_instead(past, lacking, start, end)}"


def _instead(past: Past, request_id: int, position: int, end: int) -> str:
    there = [name for start, _, name in images_of(past, request_id, end) if start == position]
    return f"{request_name(request_id)} has {f'“{readable(there[0], MAX_IMAGE)}”' if there else 'none'} there"


def images_of(past: Past, request_id: int, end: int) -> tuple[Image, ...]:
    """Return the images that begin among a request's first `end` tokens; none where its arrival is not recorded."""
    for _, event in past.backwards():
        if isinstance(event, ev.RequestAdded) and event.request_id == request_id:
            return tuple(image for image in event.images if image[0] < end)
    return ()
