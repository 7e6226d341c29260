"""The captions of a scenario's compare view, without a browser."""

from __future__ import annotations

from labengine.session.compare.comparison import Comparison
from labengine_widgets.compare.captions import PairCaption, PairCaptions


def captions(comparison: Comparison) -> list[PairCaption]:
    """Return all captions so far; those of the guide have a `stop`."""
    words = (comparison.left.token_text, comparison.right.token_text)
    compared = PairCaptions(*comparison.timelines, words, comparison.guide)
    compared.grow(comparison.aligned_at, comparison.last_boundary)
    return compared.captions


def reached_stops(comparison: Comparison) -> list[int]:
    """Return the numbers of the guide's stops that the comparison reaches, in order."""
    return [caption.stop for caption in captions(comparison) if caption.stop is not None]
