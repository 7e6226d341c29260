"""One pass over a recording: every request's tokens, and its blocks' hashes as far as events tell them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from labengine import events as ev
from labengine.prefix_doctor.look_ups.content import CachedContent
from labengine.prefix_doctor.look_ups.recorded_engine import RecordedEngine
from labengine.record.fold_state import Key
from labengine.record.snapshot import GroupState


@dataclass(slots=True)
class RequestFacts:
    """Facts of all requests. tokens: all that a request ever had. hashes: by (group, end of the block in tokens).

    registered: the last event after which a request's block was in the map, by (request, group, end). unfinished: the
    number of computed tokens of each request that holds blocks at the recording's end.
    """

    groups: tuple[GroupState, ...] = ()
    tokens: dict[int, list[int]] = field(default_factory=dict)
    hashes: dict[int, dict[tuple[int, int], bytes]] = field(default_factory=lambda: defaultdict(dict))
    registered: dict[tuple[int, int, int], int] = field(default_factory=dict)
    unfinished: dict[int, int] = field(default_factory=dict)

    @property
    def told(self) -> set[Key]:
        """The keys whose content a request tells."""
        return {(group, found) for hashes in self.hashes.values() for (group, _), found in hashes.items()}


def facts_of(recording: RecordedEngine) -> RequestFacts:
    """Collect tokens and hashes."""
    facts, content = RequestFacts(), CachedContent(recording.first)
    for request_id, request in recording.first.requests.items():
        facts.tokens[request_id] = list(request.token_ids)
        for group, table in enumerate(request.block_tables):
            for index, block_id in enumerate(table):
                if block_id != recording.first.null_block:
                    _note(facts, content, block_id, (request_id, group, index))
    for number, event in enumerate(recording.events):
        content.apply(event)
        match event:
            case ev.RequestAdded(request_id, token_ids):
                facts.tokens[request_id] = list(token_ids)
            case ev.TokenSampled(request_id, token_id):
                facts.tokens[request_id].append(token_id)
            case ev.BlockCached(block_id, request_id, group, index) if event.is_full:
                end = _note(facts, content, block_id, (request_id, group, index))
                facts.registered[request_id, group, end] = number
            case ev.BlockTouched(block_id, request_id, group, index):
                _note(facts, content, block_id, (request_id, group, index))
            case _ if isinstance(event, ev.EntryReplaced):
                end = _note(facts, content, event.into_block_id, (event.request_id, event.group, event.index))
                if content.full_key(event.into_block_id, event.group) is not None:
                    facts.registered[event.request_id, event.group, end] = number
    state = content.state
    facts.groups = state.groups
    facts.unfinished = {i: one.num_computed_tokens for i, one in state.requests.items() if any(one.block_tables)}
    return facts


def _note(facts: RequestFacts, content: CachedContent, block_id: int, entry: tuple[int, int, int]) -> int:
    """Note the hash, if any, of a block in a request's table; return the block's end in tokens."""
    request_id, group, index = entry
    end = (index + 1) * content.state.groups[group].block_size
    if (key := content.full_key(block_id, group)) is not None:
        facts.hashes[request_id][group, end] = key[1]
    return end
