"""All events of an engine: frozen records, named in the past tense, that hold only ids and ints.

The stream is complete: folding it (record.fold.Fold) rebuilds the engine's snapshot after every operation. A block is
identified by block_id, a request by request_id, and a block's place in a request's table by (request_id, group, index).

The modules group events by subject; import all of them from here.
"""

from __future__ import annotations

from labengine.events import blocks, checks, computing, external_tier, prefix_tree, requests, steps
from labengine.events.blocks import *
from labengine.events.checks import *
from labengine.events.computing import *
from labengine.events.event import *
from labengine.events.event import Event as Event
from labengine.events.external_tier import *
from labengine.events.fields import *
from labengine.events.prefix_tree import *
from labengine.events.requests import *
from labengine.events.steps import *
from labengine.events.subjects import *

EVENT_KINDS: tuple[type[Event], ...] = tuple(
    kind
    for topic in (steps, requests, external_tier, blocks, computing, checks, prefix_tree)
    for kind in vars(topic).values()
    if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event
)
"""Every kind of event, in the order of the modules. A recording identifies a kind by its place here."""
