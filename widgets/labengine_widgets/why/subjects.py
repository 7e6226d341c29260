"""Subjects of questions and selections: blocks, requests, hashes, nodes and events of the recording."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from labengine.config import as_int
from labengine.events import RequestForgotten
from labengine.record.wording import listed, request_name
from labengine_widgets.selection import Selection
from labengine_widgets.why.answer import NO_ENGINE_YET, WhyError
from labengine_widgets.why.map_entries import key_of
from labengine_widgets.why.past import Past, Recording
from labengine_widgets.why.prefix_tree import first_of

ABOUT: dict[str, tuple[str, ...]] = {
    "block": ("ref_count", "lost", "free", "queue"),
    "request": ("hit", "preempted", "waiting", "finished", "token", "drafts", "beam"),
    "hash": (),
    "node": (),
    "event": (),
    "next_victim": (),
}
"""The questions for each kind of subject; without one, the likeliest is answered."""

EXAMPLES = "why(block=3), why(request=0), why(hash='1f3a'), why(event=17) or why(next_victim=True)"


class Subject(NamedTuple):
    """kind: block, request, hash, node, event or next_victim; about: one of ABOUT[kind], or None."""

    kind: str
    id: Any
    about: str | None


def parsed(subject: Mapping[str, Any] | Selection) -> Subject:
    """Parse keywords ({"block": 3, "about": "free"}) or a selection ({"kind": "block", "id": 3})."""
    if isinstance(subject, Selection):
        subject = subject.to_dict()
    if not isinstance(subject, Mapping):
        raise WhyError(f"a question must be about one thing, as in {EXAMPLES}, got {subject!r}")
    about = subject.get("about")
    named = {name: value for name, value in subject.items() if name != "about"}
    if set(named) == {"kind", "id"} or set(named) == {"kind"}:
        kind, asked = named["kind"], named.get("id")
    elif len(named) == 1:
        [(kind, asked)] = named.items()
    else:
        raise WhyError(
            f"a question must be about one thing, as in {EXAMPLES}, got {sorted(map(str, named)) or 'nothing'}"
        )
    if not isinstance(kind, str) or kind not in ABOUT:
        raise WhyError(f"no questions about a {kind!r}: ask {EXAMPLES}")
    if about is not None and about not in ABOUT[kind]:
        what = f"about must be one of {', '.join(map(repr, ABOUT[kind]))}" if ABOUT[kind] else "omit about"
        raise WhyError(f"for {'an' if kind == 'event' else 'a'} {kind}, {what}, got {about!r}")
    if kind == "next_victim" and asked is not True and "kind" not in named:
        raise WhyError(f"next_victim must be True, got {asked!r}: use block=3 to ask about a block")
    return Subject(kind, asked, about)


FORGOTTEN = "has finished and is no longer kept (see Lab(keep_finished=...)); an earlier moment may still have it"

MAX_NAMED = 8
"""Maximum number of requests to list; of more, the first two and the last are named."""


def number(kind: str, asked: Any) -> int:
    """Return an id as an int, from Python's, numpy's or torch's integers. Raises WhyError unless it is an int >= 0."""
    value = as_int(asked)
    if value is None or value < 0:
        raise WhyError(f"{kind}= must be a non-negative integer, got {asked!r}")
    return value


def known_block(past: Past, asked: Any) -> int:
    """Return the id of a block of the pool. Raises WhyError for any other id."""
    block_id, total = number("block", asked), len(past.state.ref_counts)
    if not total:
        raise WhyError(NO_ENGINE_YET.format(past.moment))
    if block_id >= total:
        raise WhyError(f"no block {block_id}: the pool has blocks 0 to {total - 1}")
    return block_id


def known_request(past: Past, asked: Any) -> int:
    """Return the id of a request added by the moment. Raises WhyError for any other id."""
    request_id, known = as_int(asked), past.state.requests
    if request_id in known and request_id is not None:
        return request_id
    there_are = known_requests_text(known)
    if request_id is None or request_id < 0:
        raise WhyError(f"request= must be a non-negative integer, or a name such as 'A', got {asked!r}: {there_are}")
    if RequestForgotten(request_id) in past.timeline.events(past.first, past.moment):
        raise WhyError(f"request {request_id} ({request_name(request_id)}) {FORGOTTEN}")
    when = " at this moment" if past.moment < past.timeline.end else ""
    raise WhyError(f"no request {request_id}{when}: {there_are}")


def known_node(past: Past, asked: Any) -> int:
    """Return the id of a node that the prefix tree has or had. Raises WhyError for any other id."""
    node_id = number("node", asked)
    if node_id in past.state.tree.nodes or first_of(past, node_id) is not None:
        return node_id
    there_are = past.state.tree.nodes
    what = f"its nodes are {listed(map(str, sorted(there_are)))}" if there_are else "it has no nodes"
    raise WhyError(f"no node {node_id} in the prefix tree up to this moment: {what}")


def known_event(past: Past, asked: Any) -> int:
    """Return the number of a recorded event. Raises WhyError for any other number."""
    wanted, first, last = number("event", asked), past.first, past.timeline.end - 1
    if first <= wanted <= last:
        return wanted
    kept = f"the recording has events {first} to {last}" if first <= last else "no events are recorded"
    raise WhyError(f"no event {wanted}: {kept}")


def known_requests_text(ids: Iterable[int]) -> str:
    """List requests, as 'the requests are 0 (A) and 1 (B)'."""
    named = [f"{request_id} ({request_name(request_id)})" for request_id in ids]
    if len(named) < 2:
        return f"the only request is {named[0]}" if named else "no request has been added yet"
    return f"the requests are {listed(named, MAX_NAMED)}"


def known_selection(timeline: Recording, selection: Selection) -> Selection:
    """Return the selection, with a hash in full. Raises WhyError, naming those that exist, for an unknown subject."""
    past = Past(timeline)
    if selection.kind == "hash":
        group, block_hash = key_of(past, str(selection.id))
        return Selection("hash", f"{group}:{block_hash.hex()}")
    known = {"block": known_block, "request": known_request, "node": known_node, "event": known_event}[selection.kind]
    return Selection(selection.kind, known(past, selection.id))
