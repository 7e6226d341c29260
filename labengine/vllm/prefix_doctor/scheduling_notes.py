"""What the doctor says of drafts and priorities: they decide how many tokens a step gives, and who waits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from labengine import events as ev
from labengine.record.wording import counted


def notes_of(pieces: Iterable[Sequence[ev.Event]]) -> Iterator[str]:
    """Yield a sentence on drafts and one on priorities, as far as a recording has any."""
    num_judged = num_accepted = num_drafts = 0
    overtaken: set[int] = set()
    for events in pieces:
        judged = [event for event in events if isinstance(event, ev.DraftsJudged)]
        num_judged += len(judged)
        num_accepted += sum(event.num_accepted for event in judged)
        num_drafts += sum(event.num_accepted + event.num_rejected for event in judged)
        overtaken |= _overtaken(events)
    if num_drafts:
        yield (
            f"Of {counted(num_drafts, 'draft')} that were computed, padding included, the model accepted "
            f"{num_accepted:,} ({num_accepted / num_drafts:.1%}): {1 + num_accepted / num_judged:.2f} tokens of a "
            "request per step."
        )
    if overtaken:
        yield f"{counted(len(overtaken), 'request')} waited while more urgent ones that came later were admitted."


def _overtaken(events: Sequence[ev.Event]) -> set[int]:
    """Return the requests that waited when a more urgent one was admitted that had come later."""
    waiting: dict[int, int] = {}
    found: set[int] = set()
    if not any(isinstance(event, ev.RequestAdded) and event.priority for event in events):
        return found
    for event in events:
        match event:
            case ev.RequestAdded(request_id):
                waiting[request_id] = event.priority
            case ev.PrefixHit(request_id):
                priority = waiting.pop(request_id, None)
                if priority is not None:
                    found.update(i for i, other in waiting.items() if i < request_id and other > priority)
            case ev.RequestFinished(request_id):
                waiting.pop(request_id, None)
    return found
