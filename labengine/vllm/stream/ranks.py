"""All engines of one place, as the ranks of a deployment, with their dashboards side by side."""

from __future__ import annotations

from contextlib import ExitStack
from os import PathLike
from typing import TYPE_CHECKING, Any

from labengine.config import ConfigError
from labengine.system.closing import Closing
from labengine.vllm.stream.attach import attach
from labengine.vllm.stream.listing import answering_places
from labengine.vllm.stream.live import LiveStream

if TYPE_CHECKING:  # widgets, for views only
    from ipywidgets import GridBox

MAX_RANKS = 8
"""Most engines attached at once."""


class Ranks(Closing):
    """The streams of a deployment's engines, by rank. They are independent: their steps do not correspond."""

    def __init__(self, streams: list[LiveStream]) -> None:
        self.streams = streams

    def show(self) -> GridBox:
        """Return the dashboards side by side, or one above the other on a narrow page."""
        from ipywidgets import GridBox, Layout  # for views only

        columns = "repeat(auto-fit, minmax(min(660px, 100%), 1fr))"
        layout = Layout(grid_template_columns=columns, grid_gap="12px", width="100%")
        return GridBox([stream.show() for stream in self.streams], layout=layout)

    def close(self) -> None:
        """Disconnect from all engines, and close the views. Twice is harmless."""
        for stream in self.streams:
            stream.close()

    def __repr__(self) -> str:
        return "\n\n".join(stream.summary() for stream in self.streams)

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self.show()._repr_mimebundle_(**options)


def attach_ranks(place: str, *, tokenizer: str | PathLike[str] | None = None, **options: Any) -> Ranks:
    """Attach to every engine that answers at a place (unix:DIR, tcp:127.0.0.1:PORT), by rank; options as of attach().

    Raises ConfigError if no engine answers, or more than 8.
    """
    places = answering_places(place)
    if len(places) > MAX_RANKS:
        raise ConfigError(f"{len(places)} engines answer at {place}, but at most {MAX_RANKS} can be shown: choose one")
    with ExitStack() as attached:
        streams = [attached.enter_context(attach(one, tokenizer=tokenizer, **options)) for one in places]
        attached.pop_all()
    return Ranks([one for one in streams if isinstance(one, LiveStream)])
