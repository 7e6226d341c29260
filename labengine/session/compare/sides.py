"""The sides of a comparison: labs or opened traces, and which of them can be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from labengine.config import ConfigError, EngineConfig
from labengine.engine.request_maker import seed_of
from labengine.events import RequestAdded
from labengine.record.timeline import Timeline
from labengine.record.wording import request_name
from labengine.session.history.inputs import AddInput
from labengine.session.looking import Looking
from labengine.session.saved.trace import Trace
from labengine.session.session import Session

if TYPE_CHECKING:  # widgets are imported for views only
    pass

SAME_WAY = "compare two empty labs, or two with the same requests, such as those that lab.fork(edition=...) makes"


class LiveSide(Looking):
    """A side that can be stepped: a lab."""

    session: Session
    """The lab's parts."""


def session_of(side: object) -> Session | None:
    """Return the session of a lab; None for an opened trace."""
    session = getattr(side, "session", None)
    return session if isinstance(session, Session) else None


def timeline_of(side: Looking) -> Timeline:
    """Return the recording of a side. ConfigError without one."""
    if side.timeline is None:
        raise ConfigError("a lab made with record=False has no recording and cannot be compared")
    return side.timeline


# -- names -------------------------------------------------------------------------------------------------------------


def names_of(left: Looking, right: Looking) -> tuple[str, str]:
    """Return the names of the sides: their editions, or releases of driven engines."""
    one, other = _engine(left), _engine(right)
    return (f"{one}, left", f"{other}, right") if one == other else (one, other)


def _engine(side: Looking) -> str:
    if isinstance(side, Trace):
        return side.edition
    session = session_of(side)
    assert session is not None
    return session.parts.name if session.model.has_edition else session.model.name


def checked_names(names: object) -> tuple[str, str] | None:
    """Return two texts, or None for the names of the editions. ConfigError for anything else."""
    if names is None:
        return None
    if not isinstance(names, (tuple, list)) or len(names) != 2 or not all(isinstance(n, str) and n for n in names):
        raise ConfigError(f'names must be a name for each side, such as names=("before", "after"), got {names!r}')
    return names[0], names[1]


# -- refusals ----------------------------------------------------------------------------------------------------------


def refuse_incomparable(left: Looking, right: Looking) -> None:
    """Raise ConfigError for two sides that cannot be compared."""
    for side in (left, right):
        if session_of(side) is None and not isinstance(side, Trace):
            raise ConfigError(f"a side must be a lab or an opened trace, got {side!r}. {_instead(side)}")
    for side in (left, right):
        timeline_of(side)
    if left is right:
        raise ConfigError(
            "both sides are the same object: make a second lab with lab.fork(edition=...), or compare it with a saved "
            "recording, labengine.open(path)"
        )
    _refuse_other_requests(left, right)


def _instead(side: object) -> str:
    if isinstance(side, str):
        return f"lab.fork(edition={side!r}) makes a lab of that edition with the same history"
    return "lab.fork(edition=...) makes a second lab with the same history"


def _refuse_other_requests(left: Looking, right: Looking) -> None:
    """Raise ConfigError for sides with different requests, and for labs after different steps.

    One recording may be shorter, and end before the other's last requests are added.
    """
    are_live = session_of(left) is not None and session_of(right) is not None
    requests = _requests_of(left), _requests_of(right)
    unequal = first_unequal(*requests)
    if not unequal and are_live and len(requests[0]) != len(requests[1]):
        numbers = f"the left lab has had {len(requests[0])} requests, the right lab {len(requests[1])}"
        raise ConfigError(f"{numbers}: {SAME_WAY}")
    if unequal:
        raise ConfigError(f"the sides have had different requests: {unequal}. {SAME_WAY.capitalize()}")
    steps = left.snapshot().step, right.snapshot().step
    if are_live and steps[0] != steps[1]:
        raise ConfigError(
            f"the left lab is after step {steps[0]}, the right lab after step {steps[1]}: step the one behind "
            f"first, or rewind the other with lab.rewind({min(steps)})"
        )


# -- requests ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RequestSettings:
    """A request's prompt and settings (max_tokens, temperature, cache_salt ...), as far as known."""

    token_ids: tuple[int, ...]
    settings: Mapping[str, Any]

    def differs_from(self, other: RequestSettings) -> str:
        """Return the name of a setting that differs, or "the prompt"; empty if all known ones are equal."""
        if self.token_ids != other.token_ids:
            return "the prompt"
        names = (name for name in self.settings if name in other.settings)
        return next((name for name in names if self.settings[name] != other.settings[name]), "")


def requests_of(session: Session, first: int = 0) -> list[RequestSettings]:
    """Return the requests of a session by id, from `first` on."""
    with session.stepper.reading():
        adds = [done for done in session.inputs.done if isinstance(done, AddInput)]
        return [_of_input(add, request_id, session.config) for request_id, add in enumerate(adds[first:], first)]


def _requests_of(side: Looking) -> list[RequestSettings]:
    session = session_of(side)
    if session is not None:
        return requests_of(session)
    inputs = side.facts.get("inputs") if isinstance(side, Trace) else None
    return _of_facts(inputs) or _of_recording(timeline_of(side))


def _of_input(add: AddInput, request_id: int, config: EngineConfig) -> RequestSettings:
    asked, sampling = add.options, add.options.sampling
    seed = {"the seed": seed_of(sampling, request_id, config)} if not sampling.is_greedy else {}
    keys = {"cache_salt": asked.cache_salt, "extra_keys": asked.other_keys}
    others = {"priority": asked.priority, "images": [list(image) for image in asked.images]}
    return RequestSettings(tuple(add.token_ids), {**asdict(sampling), **keys, **seed, **others})


def _of_facts(inputs: object) -> list[RequestSettings]:
    """Read the inputs in a trace's file, which may hold anything."""
    adds = (
        [one for one in inputs if isinstance(one, dict) and one.get("do") in ("add", "branch", "receive")]
        if isinstance(inputs, list)
        else []
    )
    found = []
    for add in adds:
        tokens, sampling, keys = add.get("token_ids"), add.get("sampling"), add.get("extra_keys")
        settings = dict(sampling) if isinstance(sampling, dict) else {}
        settings |= {"cache_salt": add.get("cache_salt") or None, "extra_keys": keys if isinstance(keys, dict) else {}}
        settings |= {"priority": add.get("priority", 0), "images": add.get("images", [])}
        found.append(RequestSettings(tuple(tokens) if isinstance(tokens, list) else (), settings))
    return found


def _of_recording(timeline: Timeline) -> list[RequestSettings]:
    """Read a recording: prompts, and max_tokens of requests whose RequestAdded is kept."""
    max_tokens = {event.request_id: event.max_tokens for event in timeline.of_kind(RequestAdded)}
    kept = timeline.state().requests
    if [*kept] != [*range(len(kept))]:  # the prompts of forgotten requests are unknown
        return []
    return [
        RequestSettings(
            tuple(request.token_ids[: request.num_prompt_tokens]),
            {"max_tokens": max_tokens[request_id]} if request_id in max_tokens else {},
        )
        for request_id, request in kept.items()
    ]


def first_unequal(left: Sequence[RequestSettings], right: Sequence[RequestSettings], first: int = 0) -> str:
    """Describe the first request that differs between the sides; empty without one. first: the first id."""
    for request_id, (one, other) in enumerate(zip(left, right, strict=False), first):
        what = one.differs_from(other)
        if what == "the prompt":
            return f"request {request_name(request_id)} has different prompts on the left and the right"
        if what:
            values = one.settings[what], other.settings[what]
            return (
                f"request {request_name(request_id)} has {what} {values[0]!r} on the left, {values[1]!r} on the right"
            )
    return ""
