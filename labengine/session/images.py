"""Images of a request as given to a lab, {position: (identifier, length)}: checked, and read from a file."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from labengine.config import ConfigError, checked_int, checked_text, shown
from labengine.core.request import Image

GivenImages = dict[int, tuple[str, int]]


def checked_images(images: object) -> tuple[Image, ...]:
    """Return images in the order of their positions.

    Raises ConfigError for anything but such a mapping, and for an image that overlaps another one.
    """
    if images is None:
        return ()
    if not isinstance(images, Mapping):
        raise ConfigError(f"images must be a mapping {{position: (identifier, length)}}, got {shown(images)}")
    placed = tuple(sorted(_checked(position, images[position]) for position in images))
    for one, other in pairwise(placed):
        if one.start + one.length > other.start:
            raise ConfigError(f"images: {one.identifier!r} at position {one.start} overlaps the one at {other.start}")
    return placed


def refuse_images_beyond(images: tuple[Image, ...], num_tokens: int) -> None:
    """Raise ConfigError if the last image ends after a prompt of num_tokens tokens."""
    if images and (end := images[-1].start + images[-1].length) > num_tokens:
        raise ConfigError(f"images: {images[-1].identifier!r} ends at token {end}, but the prompt has {num_tokens}")


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


def images_of_rows(rows: object) -> GivenImages:
    """Return the images of a file's rows [start, length, identifier] as `Lab.add` takes them; {} without any."""
    if not isinstance(rows, list):
        return {}
    return {int(start): (str(identifier), int(length)) for start, length, identifier in rows}
