"""Why a hit ends where it does with state-space groups: only after some numbers of tokens a state is cached."""

from __future__ import annotations

from labengine import events as ev
from labengine.record.wording import counted, group_name, listed, request_name
from labengine_widgets.why.misses import Miss, miss_of
from labengine_widgets.why.past import Past
from labengine_widgets.why.prefixes import Equals, Lookup


def state_miss(past: Past, lookup: Lookup, equals: Equals, bound: int) -> Miss | None:
    """Explain a hit that a group of states has ended; None without such a group.

    bound: the tokens that a hit could have had by the groups of full attention.
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
        text = f"a state is cached after multiples of {counted(size, 'token')} alone."
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
    text += f"{chunk.start + chunk.num_tokens - 1} in one step, and only the state at the end of a step is left."
    return Miss(text, (number,))


def _passed(past: Past, lookup: Lookup, end: int) -> tuple[int, ev.RequestScheduled] | None:
    """Return the newest step's share of another request that went past this number of equal tokens."""
    tokens = lookup.token_ids[:end]
    for number, event in past.backwards(lookup.number):
        if not isinstance(event, ev.RequestScheduled) or not event.start < end < event.start + event.num_tokens:
            continue
        other = lookup.state.requests.get(event.request_id)
        if other is not None and other.token_ids[:end] == tokens:
            return number, event
    return None
