"""Images of a request as they are given to a lab, {position: (identifier, length)}; checked, and as a file has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

from labengine.config import ConfigError, checked_int, checked_text, shown
from labengine.core.request import Image

GivenImages = dict[int, tuple[str, int]]


def checked_images(images: object, num_tokens: int) -> tuple[Image, ...]:
    """Return images in the order of their positions.

    Raises ConfigError for what is no such mapping, and for an image that overlaps another one or leaves the prompt of
    num_tokens tokens.
    """
    if images is None:
        return ()
    if not isinstance(images, Mapping):
        raise ConfigError(f"images must be a mapping {{position: (identifier, length)}}, got {shown(images)}")
    placed = tuple(sorted(_checked(position, images[position]) for position in images))
    for one, other in pairwise(placed):
        if one.start + one.length > other.start:
            raise ConfigError(
                f"images: {one.identifier!r} at position {one.start} reaches into the one at {other.start}"
            )
    if placed and placed[-1].start + placed[-1].length > num_tokens:
        last = placed[-1]
        raise ConfigError(
            f"images: {last.identifier!r} ends at token {last.start + last.length}, and the prompt has {num_tokens}"
        )
    return placed


def _checked(position: object, image: object) -> Image:
    if not isinstance(image, (tuple, list)) or len(image) != 2:
        raise ConfigError(f"images[{shown(position)}] must be (identifier, length), got {shown(image)}")
    identifier, length = image
    name = f"images[{shown(position)}]"
    return Image(
        checked_int("a position in images", position, 0),
        checked_int(f"the length of {name}", length, 1),
        checked_text(f"the identifier of {name}", identifier),
    )


def images_as_given(images: Iterable[Image]) -> GivenImages:
    """Return images as `Lab.add` takes them."""
    return {image.start: (image.identifier, image.length) for image in images}


def images_of_rows(rows: object) -> GivenImages:
    """Return the images of a file's rows [start, length, identifier] as `Lab.add` takes them; {} without any."""
    if not isinstance(rows, list):
        return {}
    return {int(start): (str(identifier), int(length)) for start, length, identifier in rows}
