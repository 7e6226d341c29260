"""Why a look-up hit or missed: the map's entries for the request's prompt at that time, group by group.

With state-space groups a hit ends where a state is cached: only after certain numbers of tokens.
"""

from __future__ import annotations

from typing import NamedTuple

from labengine import events as ev
from labengine.record.fold import Fold
from labengine.record.wording import block_names, counted, group_name, listed, request_name
from labengine_widgets.why.answer import Link, Why
from labengine_widgets.why.misses import Miss, miss_of
from labengine_widgets.why.past import Past
from labengine_widgets.why.prefixes import Equals, Lookup, equals_of
from labengine_widgets.why.waiting import came_from, received

MAX_FOUND = 6
"""Maximum number of found blocks that get a link to their registration."""


class Limit(NamedTuple):
    """The first block that a longer hit would have needed."""

    group: int
    block_index: int


def why_hit(past: Past, request_id: int) -> Why:
    """Explain a request's last look-up: the blocks found, their origin, and the end of the hit."""
    name = request_name(request_id)
    lookup, question = _last_lookup(past, request_id), f"Why did {name} hit or miss?"
    if isinstance(lookup, int):
        return Why(question, _forked(past, lookup), past.links(lookup))
    if lookup is None:
        return Why(question, _no_lookup(past, request_id), past.links(_added(past, request_id)))
    if lookup.event.is_skipped:
        return _why_not_read(past, lookup)
    equals = equals_of(past, lookup)
    found = _found_links(past, lookup)
    text = _found(lookup, past)
    miss = _miss(past, lookup, equals)
    links = [*found, past.link(lookup.number)]
    if miss is not None:
        text += " " + miss.sentence
        links += [past.link(number) for number in miss.numbers]
    if (moved := received(past, request_id)) is not None and moved[0] > lookup.number:
        text += f" {came_from(moved[1])} {_moved(lookup, moved[1])}"
        links.append(past.link(moved[0]))
    links += [past.link(number) for number in _tier(past, lookup)]
    unique = {link.event_number: link for link in links}
    return Why(_question(lookup), text.strip(), tuple(unique[number] for number in sorted(unique, key=_in_order)))


def _why_not_read(past: Past, lookup: Lookup) -> Why:
    name = request_name(lookup.event.request_id)
    text = f"{name} was added with skip_reading_prefix_cache, so nothing was looked up for it. "
    text += "Its own blocks are still cached for other requests."
    return Why(_question(lookup), text, past.links(_added(past, lookup.event.request_id), lookup.number))


def _moved(lookup: Lookup, event: ev.RequestReceived) -> str:
    """Return how many of a moved request's tokens the look-up found, and in how many blocks the rest came."""
    num_found, num_blocks = lookup.event.num_tokens, len(event.transfers)
    if not num_blocks:
        return "The prefix cache had all of them: nothing was copied."
    found = f"The {counted(num_found, 'token')} that the look-up found are shared; the rest" if num_found else "They"
    return f"{found} came in {counted(num_blocks, 'block')}."


def _in_order(number: int | None) -> int:
    return -1 if number is None else number


def _last_lookup(past: Past, request_id: int) -> Lookup | int | None:
    """Return a request's newest look-up; the number of its RequestForked if it has forked since."""
    match past.last(ev.PrefixHit, ev.RequestForked, request_id=request_id):
        case number, ev.PrefixHit() as event:
            return Lookup(number, event, past.at(number))
        case number, _:
            return number
    return None


def _forked(past: Past, number: int) -> str:
    event = past.event(number)
    assert isinstance(event, ev.RequestForked)
    name, parent = request_name(event.request_id), request_name(event.from_request_id)
    shares = f"it shares the blocks of {counted(event.num_tokens, 'token')} that {parent} had computed"
    return f"{name} did not look up its tokens: it forked from {parent}, and {shares}."


def _no_lookup(past: Past, request_id: int) -> str:
    """Explain why the recording has no look-up: it is still to come, never came, or was before the recording."""
    request, name = past.state.requests[request_id], request_name(request_id)
    added = past.last(ev.RequestAdded, request_id=request_id)
    if request.status == "waiting" and added is not None and added[1].from_request_id is not None:
        parent = request_name(added[1].from_request_id)
        return f"{name} looks nothing up: it waits until {parent}'s tokens have been computed, then shares its blocks."
    has_generated = len(request.token_ids) > request.num_prompt_tokens
    if request.status in ("running", "preempted") or any(request.block_tables) or has_generated:
        return f"{name} looked up its prompt {past.before}; the result is unknown."
    if request.status == "finished" and (past.is_complete or added is not None):
        return f"{name} never looked up its prompt: it ended before it was admitted to a step."
    if request.status == "finished":
        return f"If {name} looked up its prompt, that was {past.before}."
    return f"{name} has not looked up its prompt yet: that happens when it is admitted to a step."


def _added(past: Past, request_id: int) -> int | None:
    found = past.last(ev.RequestAdded, request_id=request_id)
    return None if found is None else found[0]


def _question(lookup: Lookup) -> str:
    name, hit = request_name(lookup.event.request_id), lookup.event.num_tokens
    if not hit:
        return f"Why did {name} hit nothing?"
    return f"Why did {name} hit {hit} of its {counted(lookup.num_tokens, 'token')}?"


# -- the blocks found --------------------------------------------------------------------------------------------------


def _found(lookup: Lookup, past: Past) -> str:
    ids = [i for group in lookup.event.block_ids for i in group if i != lookup.state.null_block]
    if not ids:
        return ""
    free = [i for i in dict.fromkeys(ids) if not lookup.state.ref_counts[i]]
    text = f"The map led it to {block_names(ids)}"
    if free:
        are = "was" if len(free) == 1 else "were"
        which = "all of them" if 1 < len(free) == len(set(ids)) else block_names(free)
        text += f"; {which} {are} free, but had not been reused"
    return text + "."


def _found_links(past: Past, lookup: Lookup) -> list[Link]:
    """Return links to the events that registered the hit blocks."""
    wanted = {i for group in lookup.event.block_ids for i in group if i != lookup.state.null_block}
    links = []
    for number, event in past.backwards(lookup.number) if wanted else ():
        if isinstance(event, ev.BlockCached) and event.block_id in wanted:
            wanted.discard(event.block_id)
            links.append(past.link(number))
            if not wanted or len(links) == MAX_FOUND:
                break
    return links[::-1]


def _tier(past: Past, lookup: Lookup) -> list[int]:
    """Return the numbers of the ExternalHit events that follow the look-up: one, or none."""
    stop = min(lookup.number + 2, past.moment)
    return [n for n, event in past.forwards(lookup.number + 1, stop) if isinstance(event, ev.ExternalHit)]


# -- the end of the hit ------------------------------------------------------------------------------------------------


def _miss(past: Past, lookup: Lookup, equals: Equals) -> Miss | None:
    sizes = [group.block_size for group in lookup.state.groups]
    if all(lookup.event.num_tokens + size > lookup.num_tokens - 1 for size in sizes):
        return _all_found(lookup)
    limit = _limit(lookup, equals)
    if limit is None:
        return _state_miss(past, lookup, equals, _bound(lookup, equals)) or Miss(_unexplained(lookup), ())
    miss = miss_of(past, lookup, equals, limit.group, limit.block_index)
    if len(lookup.state.groups) == 1:
        return miss
    where = group_name(lookup.state.groups, limit.group)
    text = f"All groups must agree on one length, and the {where} limited it. {miss.sentence}"
    return Miss(text, miss.numbers)


def _all_found(lookup: Lookup) -> Miss:
    left = lookup.num_tokens - lookup.event.num_tokens
    if not lookup.event.num_tokens:
        size = min(group.block_size for group in lookup.state.groups)
        text = "Only full blocks are looked up, and its last token is always computed: with "
        return Miss(
            f"{text}{counted(lookup.num_tokens, 'token')} and blocks of {size} there was no block to look for.", ()
        )
    if not left:
        return Miss("That is all of it, so nothing was left to compute.", ())
    what = "its last token is" if left == 1 else f"its last {left} tokens are"
    text = f"That is all there was to find: {what} computed in any case, to produce the next token."
    return Miss(text, ())


def _limit(lookup: Lookup, equals: Equals) -> Limit | None:
    """Return the block that limits a hit: the first missing one of a full group, or one in a window before the end."""
    state, hit = lookup.state, lookup.event.num_tokens
    runs = {
        g: _run(state, equals, g, (lookup.num_tokens - 1) // group.block_size)
        for g, group in enumerate(state.groups)
        if group.kind == "full"
    }
    tokens = {g: run * state.groups[g].block_size for g, run in runs.items()}
    if tokens and min(tokens.values()) <= hit:
        group = min(tokens, key=lambda g: tokens[g])
        return Limit(group, runs[group])
    return _window_limit(state, equals, _bound(lookup, equals), hit)


def _bound(lookup: Lookup, equals: Equals) -> int:
    """Return how many tokens the full-attention groups let a hit have; all but the last without such a group."""
    groups = lookup.state.groups
    most = {g: (lookup.num_tokens - 1) // group.block_size for g, group in enumerate(groups) if group.kind == "full"}
    runs = (_run(lookup.state, equals, g, num) * groups[g].block_size for g, num in most.items())
    return min(runs, default=lookup.num_tokens - 1)


def _run(state: Fold, equals: Equals, group: int, most: int) -> int:
    return next((i for i in range(most) if not _is_there(state, equals, group, i)), most)


def _is_there(state: Fold, equals: Equals, group: int, index: int) -> bool:
    return any(key in state.prefix_map for key in equals.keys(group, index))


def _window_limit(state: Fold, equals: Equals, bound: int, hit: int) -> Limit | None:
    """Return the last block that a hit of up to `bound` tokens needs and a window group lacks."""
    for g, group in enumerate(state.groups):
        if group.kind == "full" or group.window is None:
            continue
        needed = -(-(group.window - 1) // group.block_size)
        end = bound // group.block_size
        for index in range(end - 1, max(-1, end - 1 - needed), -1):
            if not _is_there(state, equals, g, index):
                return Limit(g, index)
    return None


def _unexplained(lookup: Lookup) -> str:
    """Return the text for a miss although the map had all blocks, under this or another hash."""
    return (
        "Blocks of equal tokens were in the map, but under other hashes or where not all groups have whole "
        "blocks: a cache salt or an adapter keeps requests apart."
    )


def _state_miss(past: Past, lookup: Lookup, equals: Equals, bound: int) -> Miss | None:
    """Explain a hit that a group of states has ended; None without such a group.

    bound: the tokens that the full-attention groups let a hit have.
    """
    groups = lookup.state.groups
    group = next((i for i, one in enumerate(groups) if one.kind == "state"), None)
    if group is None:
        return None
    size, name = groups[group].block_size, group_name(groups, group)
    full = [group_name(groups, i) for i, one in enumerate(groups) if one.kind == "full"]
    others = f"The {listed(full)} {'has' if len(full) == 1 else 'have'} its first {counted(bound, 'token')}"
    others = others if full else ""
    end = bound // size * size
    if end <= lookup.event.num_tokens:
        text = f"a state is cached only after multiples of {counted(size, 'token')}."
        return Miss(f"{others}; {text}" if others else text.capitalize(), ())
    index = end // size - 1
    missing = f"{others}, but the {name} had no state after {end}. " if others else ""
    if equals.before(group, index):
        miss = miss_of(past, lookup, equals, group, index)
        return Miss(missing + miss.sentence, miss.numbers)
    passed = _passed(past, lookup, end)
    if passed is None:
        return Miss(f"{missing or f'No state after {end} tokens was cached. '}No request had left one there.", ())
    number, chunk = passed
    text = f"{missing}{request_name(chunk.request_id)} computed positions {chunk.start} to "
    text += f"{chunk.start + chunk.num_tokens - 1} in one step, and only the state at the end of a step is kept."
    return Miss(text, (number,))


def _passed(past: Past, lookup: Lookup, end: int) -> tuple[int, ev.RequestScheduled] | None:
    """Return the newest scheduling of another request that went past this number of equal tokens."""
    tokens = lookup.token_ids[:end]
    for number, event in past.backwards(lookup.number):
        if not isinstance(event, ev.RequestScheduled) or not event.start < end < event.start + event.num_tokens:
            continue
        other = lookup.state.requests.get(event.request_id)
        if other is not None and other.token_ids[:end] == tokens:
            return number, event
    return None
