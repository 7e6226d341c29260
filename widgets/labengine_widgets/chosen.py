"""What one may choose: only what the recording knows."""

from __future__ import annotations

from labengine_widgets.selection import Selection
from labengine_widgets.why.hashes import key_of
from labengine_widgets.why.known import known_block, known_event, known_request
from labengine_widgets.why.past import Past, Recording


def known_selection(timeline: Recording, chosen: Selection) -> Selection:
    """The selection, a hash in full. WhyError for a block, request, hash or event that is not there, naming what is."""
    past = Past(timeline)
    if chosen.kind == "hash":
        group, block_hash = key_of(past, str(chosen.id))
        return Selection("hash", f"{group}:{block_hash.hex()}")
    known = {"block": known_block, "request": known_request, "event": known_event}[chosen.kind]
    return Selection(chosen.kind, known(past, chosen.id))
