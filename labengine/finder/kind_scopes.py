"""Scopes with forks, beams, drafts, states and pictures, which only some searches need."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from labengine.core.proposer import FixedDrafts
from labengine.core.request import Image
from labengine.engine.simulated import default_next_token
from labengine.finder.operations import Add
from labengine.finder.scopes import OTHER, Scope, Tier, config

Scopes = tuple[tuple[Scope, ...], tuple[Scope, ...]]
"""Scopes to search completely, and scopes for random searches."""

NUM_DRAFTS = 2
DRAFTS = FixedDrafts(
    tuple(OTHER if position % 3 == 2 else default_next_token(0, position) for position in range(20)), NUM_DRAFTS
)
"""Two of three guesses are right: a step accepts both, the first one, or neither."""


def _prompt(length: int) -> tuple[int, ...]:
    """Return a prompt that continues like its own answer."""
    return tuple(default_next_token(0, position) for position in range(length))


_FORKS = ("fork", "branch", "join", "has_seats", "of_batch", "start", "follow")
_SHARING = ("num_shared_tokens", "add_shared", "shared_blocks")
_COPIES = ("copies_before_write", "entries_to_copy", "copy", "take_copies")
_BEAMS = ("decide", "places", "replace_beam", "take_tokens", "end_search")
FORKING = frozenset((*_FORKS, *_SHARING, *_COPIES, *_BEAMS))
DRAFTING = frozenset(("judge", "num_accepted", "book_accepted", "keep", "num_wanted", "num_affordable", "fitting"))
KEEPING_STATES = frozenset(
    ("chunk_end", "carry_over", "last_hit_end", "chunk_unit", "num_scratch", "move", "state_entry", "entries_of_states")
)
SHOWING = frozenset({"keyed"})


def kind_scopes(overridden: Collection[str] = (), **settings: Any) -> tuple[Scopes, Scopes]:
    """Return the scopes of the kinds that overridden methods decide, to be searched first, and the other scopes.

    overridden: names of methods. settings: of EngineConfig, for all scopes.
    """
    first: list[Scopes] = []
    others: list[Scopes] = []
    for methods, scopes in (
        (FORKING, fork_scopes),
        (DRAFTING, draft_scopes),
        (KEEPING_STATES, state_scopes),
        (SHOWING, picture_scopes),
    ):
        (others if methods.isdisjoint(overridden) else first).append(scopes(**settings))
    return _together(first), _together(others)


def _together(found: Sequence[Scopes]) -> Scopes:
    return sum((small for small, _ in found), ()), sum((large for _, large in found), ())


def fork_scopes(**settings: Any) -> Scopes:
    """Return scopes with several answers to a prompt, and scopes with beam searches."""
    answers = tuple(Add(_prompt(length), 3, n=n) for n in (1, 2) for length in (2, 3))
    searches = tuple(Add(_prompt(length), 4, beams=beams) for beams in (1, 3) for length in (2, 3))
    few: dict[str, Any] = {"max_requests": 3, "broken": ()}
    small = (
        Scope("several answers", config(6, **settings), **few, only=answers, max_operations=6),
        Scope("beams", config(9, **settings), **few, only=searches, max_operations=7),
    )
    more = tuple(Add(_prompt(length), 5, n=n) for n in (1, 3) for length in (1, 4, 5))
    wide = tuple(Add(_prompt(length), 5, beams=beams) for beams in (1, 3) for length in (1, 4, 5))
    large = (
        Scope("answers in a tight pool", config(7, budget=4, **settings), only=more, branches=True),
        Scope("answers and a late tier", config(8, **settings), only=more, tier=Tier(steps_late=1)),
        Scope("beams in a tight pool", config(9, budget=4, **settings), only=wide),
        Scope("beams, branches and a window", config(14, window=3, **settings), only=wide + more, branches=True),
    )
    return small, large


def draft_scopes(**settings: Any) -> Scopes:
    """Return scopes with speculation."""
    some: dict[str, Any] = {"proposer": DRAFTS}
    few: dict[str, Any] = {"max_requests": 2, "num_prompt_blocks": 1, "broken": (), "max_tokens": (5,), **some}
    settings |= {"num_drafts": NUM_DRAFTS}
    answers = tuple(Add(_prompt(length), 6, n=n) for n in (1, 2) for length in (1, 4, 5))
    small = (
        Scope("drafts", config(7, **settings), **few, max_operations=6),
        Scope("drafts in a tight pool", config(5, **settings), **few, max_operations=8),
    )
    large = (
        Scope("drafts and chunks", config(8, budget=4, **settings), max_tokens=(1, 4, 6), **some),
        Scope("drafts and a window", config(14, window=3, **settings), max_tokens=(2, 6), **some),
        Scope("drafts and answers", config(9, **settings), only=answers, branches=True, **some),
        Scope("drafts and states", config(16, state=2, **settings), max_tokens=(2, 6), **some),
        Scope("drafts and a late tier", config(8, **settings), max_tokens=(2, 6), tier=Tier(steps_late=1), **some),
    )
    return small, large


def state_scopes(**settings: Any) -> Scopes:
    """Return scopes with groups of state-space layers."""
    few: dict[str, Any] = {"max_requests": 2, "broken": (), "max_tokens": (1, 4)}
    long: dict[str, Any] = {"num_prompt_blocks": 3, "max_tokens": (1, 2, 4)}
    few_prompts = tuple(Add(_prompt(length), 2) for length in (3, 6, 7))
    small = (
        Scope("states", config(8, state=2, **settings), num_prompt_blocks=1, **few, max_operations=6),
        Scope("states in chunks", config(8, state=4, budget=3, **settings), **few, only=few_prompts, max_operations=6),
    )
    large = (
        Scope("states in a tight pool", config(7, state=2, **settings), **long),
        Scope("states in long blocks", config(12, state=4, budget=6, **settings), **long),
        Scope("states and a window in chunks", config(14, window=3, state=2, budget=3, **settings), **long),
        Scope("states and branches", config(12, state=2, budget=5, **settings), **long, branches=True),
    )
    return small, large


def picture_scopes(**settings: Any) -> Scopes:
    """Return scopes with pictures, which are extra keys of the blocks that they cover."""

    def showing(start: int, name: str, length: int = 5) -> Add:
        return Add((OTHER,) * length, 1, images=(Image(start, 2, name),))

    requests = tuple(showing(start, name) for start in (0, 1, 2) for name in "ab")
    small = (Scope("pictures", config(6, **settings), max_requests=2, broken=(), only=requests, max_operations=6),)
    more = (*requests, *(showing(start, name, 8) for start in (3, 4, 5) for name in "ab"))
    large = (
        Scope("pictures in chunks", config(8, budget=3, **settings), only=more),
        Scope("pictures and a late tier", config(7, **settings), only=more, tier=Tier(steps_late=1)),
    )
    return small, large


def priority_scopes(**settings: Any) -> Scopes:
    """Return scopes to search completely, and scopes for random searches, for parts that know priorities."""
    some: dict[str, Any] = {"priorities": (0, 1, -1)}
    few: dict[str, Any] = {"max_requests": 2, "num_prompt_blocks": 1, "broken": (), "max_tokens": (1, 3), **some}
    small = (
        Scope("two priorities", config(3, **settings), **few),
        Scope("two priorities in chunks", config(4, budget=3, **settings), **few),
    )
    large = (
        Scope("priorities", config(5, **settings), **some),
        Scope("priorities in chunks", config(7, budget=3, **settings), **some),
        Scope("priorities and a window", config(10, window=3, budget=8, **settings), num_prompt_blocks=3, **some),
        Scope("priorities and a late tier", config(5, **settings), tier=Tier(steps_late=1), **some),
    )
    return small, large
