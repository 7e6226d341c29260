"""A session of a model with weights, repeated on the simulated model, which samples the recorded tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any

from labengine.engine.simulated import default_next_token
from labengine.session.session import Session

_OF_WEIGHTS = ("attention", "block_size", "cuda_graphs", "device", "dtype", "groups", "num_blocks", "overlap")


@dataclass(frozen=True, slots=True)
class StandIn:
    """Facts of a session without weights, and the tokens of its requests: prompts and samples, by request id.

    A scheduler never sees a tensor: on the same tokens it makes the same decisions.
    """

    facts: Mapping[str, Any]
    tokens: Mapping[int, Sequence[int]]

    def next_token(self, request_id: int, position: int) -> int:
        """Return the recorded token; any token after the last one."""
        tokens = self.tokens.get(request_id, ())
        return tokens[position] if position < len(tokens) else default_next_token(request_id, position)

    def on_tokens(self, library: Any) -> Any:
        """Return a stand-in for the module labengine, whose labs sample these tokens."""
        return _OnTokens(library, self)


def stand_in_of(session: Session, facts: Mapping[str, Any]) -> StandIn | None:
    """Return a stand-in for a session; None if its model has no weights."""
    if session.settings.model == "simulated":
        return None
    tokens = {i: one.token_ids for i, one in session.inspection.snapshot().requests.items()}
    config = session.model.config
    kept = {name: value for name, value in facts["settings"].items() if name not in _OF_WEIGHTS}
    groups = [asdict(group) for group in config.groups]
    settings = {**kept, "model": "simulated", "num_blocks": config.num_blocks, "groups": groups}
    return StandIn({**facts, "settings": settings, "inputs": [*_inputs(session, facts["inputs"], tokens)]}, tokens)


def _inputs(
    session: Session, inputs: Sequence[Mapping[str, Any]], tokens: Mapping[int, Sequence[int]]
) -> Iterator[Mapping[str, Any]]:
    """Yield the inputs; a request that has finished by itself ends after its sampled tokens."""
    aborted = {done["request_id"] for done in inputs if done["do"] == "abort"}
    ids = count()
    for done in inputs:
        if done["do"] != "add":
            yield done
            continue
        request_id = next(ids)
        sampling = {**done["sampling"], "seed": None, "ignore_eos": True}
        if request_id not in aborted and _is_finished(session, request_id):
            sampling["max_tokens"] = len(tokens[request_id]) - len(done["token_ids"])
        yield {**done, "sampling": sampling}


def _is_finished(session: Session, request_id: int) -> bool:
    request = session.stepper.engine.requests.get(request_id)
    return request is not None and request.finish_reason is not None


class _OnTokens:
    def __init__(self, library: Any, stand_in: StandIn) -> None:
        self._library, self._stand_in = library, stand_in

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    def Lab(self, *arguments: Any, **settings: Any) -> Any:
        """Make a lab whose model samples the recorded tokens."""
        lab = self._library.Lab(*arguments, **settings)
        lab.session.model.runner._next_token = self._stand_in.next_token
        return lab
