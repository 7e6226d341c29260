"""The running engines at a place: one line for each, or the chosen one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from labengine.config import ConfigError
from labengine.record.files.parsing import TraceError, parsed
from labengine.record.wording import readable
from labengine.vllm.stream.connection import SECONDS_TO_CONNECT, Connection
from labengine.vllm.stream.endpoints import Endpoint, endpoints
from labengine.vllm.stream.header import StreamHeader, header_of


def one_of(found: Sequence[Endpoint], rank: int | None) -> Connection:
    """Connect to the engine of a rank, or to the only one.

    Raises ConfigError if none answers or, naming them, if several do.
    """
    wanted = [one for one in found if rank is None or one.rank == rank]
    if not wanted:
        ranks = ", ".join(str(number) for number in sorted({one.rank for one in found}))
        raise ConfigError(f"no rank {rank}: the ranks are {ranks}")
    answering, refusal = _connected(wanted)
    if not answering:
        raise refusal or ConfigError("nothing answers")
    if len(answering) == 1:
        return answering[0]
    places = [connection.place for connection in answering]
    for connection in answering:
        connection.close()
    how = "choose one with rank=..." if len({one.rank for one in wanted}) > 1 else "attach to one of these places"
    raise ConfigError(f"{len(places)} engines answer, {', '.join(places[:8])}: {how}")


def listed(place: str) -> list[str]:
    """Return one line for each engine that answers at a place: how to attach to it, and its description."""
    answering, _ = _connected(endpoints(place))
    return [_line(connection.place, header) for connection, header in _headers(answering)]


def answering_places(place: str) -> list[str]:
    """Return the text to attach to each engine that answers at a place, by rank. ConfigError if none does."""
    answering, refusal = _connected(endpoints(place))
    if not answering:
        raise refusal or ConfigError(f"nothing answers at {place}")
    for connection in answering:
        connection.close()
    return [connection.place for connection in answering]


def _connected(wanted: Iterable[Endpoint]) -> tuple[list[Connection], ConfigError | None]:
    answering, refusal = [], None
    for one in wanted:
        try:
            answering.append(Connection(one))
        except ConfigError as error:  # a killed engine leaves its socket
            refusal = error
    return answering, refusal


def _headers(connections: Sequence[Connection]) -> Iterator[tuple[Connection, StreamHeader]]:
    for connection in connections:
        connection.wait_at_most(SECONDS_TO_CONNECT)
        with suppress(TimeoutError, ConfigError, TraceError, StopIteration):
            document = parsed(next(connection.lines()))
            if isinstance(document, dict):
                yield connection, header_of(document, connection.place)
        connection.close()


def _line(place: str, header: StreamHeader) -> str:
    model = header.model_name
    parts = (f"rank {header.rank}", readable(header.engine), readable(header.scheduler), model, f"process {header.pid}")
    return f"{place}  {' · '.join(parts)}"
