"""The tracks of a Perfetto trace, written with Perfetto's own client library (the extra `exports`)."""

from __future__ import annotations

from itertools import count
from typing import Any

from labengine.system.extras import require_extra

SEQUENCE = 1
"""All packets are of one writer: those with equal times stay in the order in which they were written."""


class Tracks:
    """Writes slices, instants and counters on tracks. Times are nanoseconds. Raises ConfigError without the extra."""

    def __init__(self) -> None:
        require_extra("exports", "a Perfetto trace", "perfetto")
        from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackDescriptor, TrackEvent
        from perfetto.trace_builder.proto_builder import TraceProtoBuilder

        self._builder, self._kinds, self._in_order = TraceProtoBuilder(), TrackEvent, TrackDescriptor.EXPLICIT
        self._ids, self._flows = count(1), count(1)

    def new(self, name: str, parent: int | None = None, rank: int = 0, *, is_counter: bool = False) -> int:
        """Return a new track. rank: its place below its parent."""
        found = self._builder.add_packet().track_descriptor
        found.uuid, found.name, found.child_ordering = next(self._ids), name, self._in_order
        found.sibling_order_rank = rank
        if parent is not None:
            found.parent_uuid = parent
        if is_counter:
            found.counter.SetInParent()
        return int(found.uuid)

    def new_flow(self) -> int:
        """Return a new flow: an arrow from the first instant with it to the second."""
        return next(self._flows)

    def begin(self, track: int, at: int, name: str, **facts: int) -> None:
        """Begin a slice inside the one that is open, if any."""
        self._annotate(self._add(track, at, self._kinds.TYPE_SLICE_BEGIN, name), facts)

    def end(self, track: int, at: int, **facts: int) -> None:
        """End the innermost slice."""
        self._annotate(self._add(track, at, self._kinds.TYPE_SLICE_END), facts)

    def instant(self, track: int, at: int, name: str, flow: int | None = None) -> None:
        """Mark a moment."""
        event = self._add(track, at, self._kinds.TYPE_INSTANT, name)
        if flow is not None:
            event.flow_ids.append(flow)

    def count(self, track: int, at: int, value: int) -> None:
        """Set a counter from a moment on."""
        self._add(track, at, self._kinds.TYPE_COUNTER).counter_value = value

    def to_bytes(self) -> bytes:
        """Return the trace."""
        return bytes(self._builder.serialize())

    def _add(self, track: int, at: int, kind: int, name: str = "") -> Any:
        packet = self._builder.add_packet()
        packet.timestamp, packet.trusted_packet_sequence_id = at, SEQUENCE
        packet.track_event.type, packet.track_event.track_uuid = kind, track
        if name:
            packet.track_event.name = name
        return packet.track_event

    def _annotate(self, event: Any, facts: dict[str, int]) -> None:
        for name, value in facts.items():
            event.debug_annotations.add(name=name.replace("_", " "), int_value=value)
