"""JSON files of a model directory: one object each, validated against a schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from reprlib import Repr
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import PydanticCustomError

from labengine.config import ConfigError

MAX_BYTES = 256 << 20
"""Maximum bytes of a file; the largest known tokenizer.json has 33 MB."""
MAX_REPORTED = 3
"""Maximum number of errors reported per file; an unrelated file has dozens."""


class FileModel(BaseModel):
    """Schema of one JSON object: JSON's own types, never converted, and finite numbers."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


Schema = TypeVar("Schema", bound=BaseModel)
Place = tuple[int | str, ...]
_RELATION = "relation"
_ALTERNATIVE = re.compile(r"(constrained-)?(int|str|bool|float)|(list|dict)\[.*\]|nullable")


def read_object(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file. Raises ConfigError, naming the file, for anything else."""
    content = read_bytes(path)
    try:
        found = json.loads(content, object_pairs_hook=_without_duplicates)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{path} must hold a single JSON object, got {shown(found)}")
    return found


def read_bytes(path: Path) -> bytes:
    """Return a file's content. Raises ConfigError unless it is a readable file of at most MAX_BYTES."""
    try:
        size = path.stat().st_size
        if not path.is_file() or size > MAX_BYTES:
            what = "not a file" if not path.is_file() else f"too large: {size:,} bytes (the limit is {MAX_BYTES:,})"
            raise ConfigError(f"{path} is {what}")
        return path.read_bytes()
    except FileNotFoundError:
        missing = f"{path} is missing: a model directory needs config.json and *.safetensors"
        raise ConfigError(missing) from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error


def validated(schema: type[Schema], content: object, path: Path) -> Schema:
    """Return the content as the schema's object. Raises ConfigError with the file, the wrong fields and their types."""
    try:
        return schema.model_validate(content)
    except ValidationError as error:
        raise refusal(error, path) from None


@contextmanager
def errors_about(path: Path) -> Iterator[None]:
    """Prefix ConfigErrors of the block with the file's path."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def relation_error(message: str, **values: object) -> PydanticCustomError:
    """Return the error for fields that are each valid but contradict each other."""
    return PydanticCustomError(_RELATION, message, values)


def refusal(error: ValidationError, path: Path) -> ConfigError:
    """Return the ConfigError for an invalid file: its first wrong fields, and the accepted values."""
    found: dict[Place, list[dict[str, Any]]] = {}
    for details in error.errors(include_url=False):
        found.setdefault(_place(details["loc"]), []).append(dict(details))
    # The alternatives of a union fail together: the deepest one is the intended one.
    furthest = [place for place in found if not any(_is_inside(other, place) for other in found)]
    lines = [_line(place, found[place]) for place in furthest]
    more = f"; and {len(lines) - MAX_REPORTED} more" if len(lines) > MAX_REPORTED else ""
    return ConfigError(f"{path}: {'; '.join(lines[:MAX_REPORTED])}{more}")


def shown(value: object) -> str:
    """Return a value for an error message: one short line."""
    short = Repr()
    short.maxstring = short.maxother = short.maxlong = 60
    return short.repr(value)


def _place(location: tuple[int | str, ...]) -> Place:
    """Return the place in the file, without pydantic's names of a union's alternatives."""
    return tuple(part for part in location if isinstance(part, int) or not _ALTERNATIVE.fullmatch(part))


def _is_inside(inner: Place, outer: Place) -> bool:
    return len(inner) > len(outer) and inner[: len(outer)] == outer


def _line(place: Place, alternatives: list[dict[str, Any]]) -> str:
    name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")
    first = alternatives[0]
    message = " or ".join(dict.fromkeys(_plain(str(details["msg"])) for details in alternatives)).replace(
        " or must be", " or"
    )
    if first["type"] == "missing":
        return f"{name!r} is missing"
    if first["type"] == "extra_forbidden":
        return f"{name} is not a known field; omit it"
    if first["type"] in (_RELATION, "json_invalid"):
        return f"{name}: {message}" if name else message
    return f"{name} {message}, got {shown(first['input'])}".lstrip()


def _plain(message: str) -> str:
    """Return pydantic's message in JSON's terms."""
    message = re.sub(r"^(Input|Dictionary|List|Object|Array) should", "must", message)
    message = message.replace("Invalid JSON", "is not JSON")
    return re.sub(r" or instance of \w+", "", message).replace("a valid dictionary", "an object")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"{twice!r} appears twice in one object; delete one of them")
    return found
