"""labengine.compare: two engines side by side, given by the user or made here."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from labengine.config import ConfigError, checked_text, shown
from labengine.core.connector import Connector
from labengine.core.parts import Parts
from labengine.lab import Lab
from labengine.session.compare.comparison import Comparison
from labengine.session.compare.sides import checked_names
from labengine.session.looking import Looking


def compare(left: Looking | str | Parts, right: Looking | str | Parts, **settings: Any) -> Comparison:
    """Return two engines side by side: labs or opened traces, or editions by name or as Parts, for which labs are made.

    settings: keywords of Lab for the labs that are made, model="simulated" by default; names=(left, right), title=.
    A connector serves one engine: it cannot be given to two labs.
    """
    words = {name: settings.pop(name) for name in ("names", "title") if name in settings}
    checked_names(words.get("names"))
    checked_text("title", words.get("title", ""))
    is_made = [isinstance(side, str) or not hasattr(side, "timeline") for side in (left, right)]
    if settings and not any(is_made):
        raise ConfigError(f"omit {', '.join(settings)}: compare() takes settings only for labs that it makes")
    if all(is_made) and isinstance(settings.get("external"), Connector):
        raise ConfigError(
            f"external={shown(settings['external'])} is a connector, which serves only one engine: make two labs, each "
            "with its own connector, and compare those"
        )
    with ExitStack() as made:
        sides: list[Any] = [
            made.enter_context(_lab(side, settings)) if made_here else side
            for side, made_here in zip((left, right), is_made, strict=True)
        ]
        comparison = Comparison(sides[0], sides[1], **words)
        made.pop_all()
    return comparison


def _lab(side: Any, settings: dict[str, Any]) -> Lab:
    if not isinstance(side, str | Parts):
        raise ConfigError(f"a side must be a lab, an opened trace, an edition's name or labengine.Parts, got {side!r}")
    settings = {"model": "simulated", **settings}
    return Lab(edition=side, **settings) if isinstance(side, str) else Lab(parts=side, **settings)
