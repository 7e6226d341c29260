"""Everything that can happen in an engine: frozen records in the past tense, holding ids and ints only.

The stream is complete: folding it (record.fold.Fold) rebuilds the engine's snapshot after every operation. Blocks are
named by block_id, requests by request_id, a block's place in a request's table by (request_id, group, index).

The files group them by what they are about, and all are imported from here.
"""

from __future__ import annotations

from labengine.events import blocks, checks, computing, external_tier, requests, steps
from labengine.events.blocks import *
from labengine.events.checks import *
from labengine.events.computing import *
from labengine.events.event import *
from labengine.events.event import Event as Event
from labengine.events.external_tier import *
from labengine.events.fields import *
from labengine.events.requests import *
from labengine.events.steps import *
from labengine.events.subjects import *

EVENT_KINDS: tuple[type[Event], ...] = tuple(
    kind
    for topic in (steps, requests, external_tier, blocks, computing, checks)
    for kind in vars(topic).values()
    if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event
)
"""Every kind of event, in the order of the files. A recording names a kind by its place here."""
