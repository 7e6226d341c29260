"""What a side of a comparison was asked: its requests, and the first of them that the other side was not given so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from labengine.engine.engine import seed_of
from labengine.events import RequestAdded
from labengine.session.time.inputs import AddInput

if TYPE_CHECKING:
    from labengine.config import EngineConfig
    from labengine.lab import Lab
    from labengine.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Given:
    """One request. settings: max_tokens, temperature, cache_salt ..., as far as it is known how it was asked for."""

    token_ids: tuple[int, ...]
    settings: Mapping[str, Any]

    def differs_from(self, other: Given) -> str:
        """In what, as a setting's name, or "the prompt"; empty when the two are the same as far as both are known."""
        if self.token_ids != other.token_ids:
            return "the prompt"
        names = (name for name in self.settings if name in other.settings)
        return next((name for name in names if self.settings[name] != other.settings[name]), "")


def requests_of(side: Any) -> list[Given]:
    """The requests of a lab, or of an opened trace, by their ids."""
    if hasattr(side, "_stepper"):
        return requests_of_lab(side)
    told = getattr(side, "facts", {}).get("inputs")
    return _from_inputs(told) or _from_recording(side.timeline)


def requests_of_lab(lab: Lab, first: int = 0) -> list[Given]:
    """Those of a lab, from an id on."""
    with lab._stepper.turn_to_look():
        adds = [given for given in lab._inputs.done if isinstance(given, AddInput)]
        return [_of(given, request_id, lab.config) for request_id, given in enumerate(adds[first:], first)]


def _of(given: AddInput, request_id: int, config: EngineConfig) -> Given:
    drawn = {"the seed": seed_of(given.sampling, request_id, config)} if given.sampling.temperature else {}
    keys = _keys((*given.extra_keys, ("cache_salt", given.cache_salt or "")))
    return Given(tuple(given.token_ids), {**asdict(given.sampling), **keys, **drawn})


def _keys(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """The salt apart from what else KV depends on."""
    keys = dict(pairs)
    return {"cache_salt": keys.pop("cache_salt", None) or None, "extra_keys": keys}


def _from_inputs(told: object) -> list[Given]:
    """What a trace keeps of how requests were added: a file's words, of which nothing is certain."""
    adds = [one for one in told if isinstance(one, dict) and one.get("do") == "add"] if isinstance(told, list) else []
    found = []
    for add in adds:
        tokens, sampling, keys = add.get("token_ids"), add.get("sampling"), add.get("extra_keys")
        salt = {"cache_salt": add.get("cache_salt") or ""}
        pairs = {**(keys if isinstance(keys, dict) else {}), **salt}
        settings = {**(sampling if isinstance(sampling, dict) else {}), **_keys(pairs.items())}
        found.append(Given(tuple(tokens) if isinstance(tokens, list) else (), settings))
    return found


def _from_recording(timeline: Timeline) -> list[Given]:
    """Of a recording alone: prompts, and max_tokens of those whose RequestAdded is kept."""
    most = {event.request_id: event.max_tokens for event in timeline.of_kind(RequestAdded)}
    kept = timeline.state().requests
    if [*kept] != [*range(len(kept))]:  # some are forgotten: what they were is not told
        return []
    return [
        Given(
            tuple(request.token_ids[: request.num_prompt_tokens]),
            {"max_tokens": most[request_id]} if request_id in most else {},
        )
        for request_id, request in kept.items()
    ]


def first_stranger(left: Sequence[Given], right: Sequence[Given], first: int = 0) -> str:
    """The first request that the two sides were not given alike, in words; empty when there is none."""
    from labengine_widgets.names import request_name

    for request_id, (one, other) in enumerate(zip(left, right, strict=False), first):
        what = one.differs_from(other)
        if what == "the prompt":
            return f"request {request_name(request_id)} has another prompt on the right than on the left"
        if what:
            values = one.settings[what], other.settings[what]
            return (
                f"request {request_name(request_id)} has {what} {values[0]!r} on the left, {values[1]!r} on the right"
            )
    return ""
