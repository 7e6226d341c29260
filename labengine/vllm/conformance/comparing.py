"""Both sides of a conformance in the compare view: the recording, and the edition's own events."""

from __future__ import annotations

from typing import Any

from labengine.record.files.file import packed, run_of
from labengine.record.files.file_access import Limits
from labengine.record.timeline import Timeline
from labengine.record.wording import readable
from labengine.session.compare.comparison import Comparison
from labengine.session.reasons import seams_of
from labengine.session.saved.trace import Trace
from labengine.vllm.conformance.recorded import Recorded
from labengine.vllm.conformance.settings import edition_for
from labengine.vllm.stream.description import STEPS_ARE_OF_VLLM
from labengine.vllm.stream.methods import code_of

RIGHT_NOTE = "This is what the edition does with the recorded inputs: there is no engine here to step."


def comparison_of(recorded: Recorded, expected: Timeline, ends: tuple[int, int] | None) -> Comparison:
    """Return recording and edition side by side. ends: the last moments that are shown; None for all."""
    header, timeline = recorded.header, recorded.piece.timeline
    if ends is not None:
        timeline, expected = timeline.until(ends[0]), expected.until(ends[1])
    code = code_of(header.methods, header.engine)
    parts = edition_for(header)
    left = _trace(recorded, timeline, recorded.name, STEPS_ARE_OF_VLLM, code)
    right = _trace(recorded, expected, f"edition {parts.name}", RIGHT_NOTE, seams_of(parts, None))
    return Comparison(left, right, names=(recorded.name, f"edition {parts.name}"), title=recorded.title)


def _trace(recorded: Recorded, timeline: Timeline, title: str, note: str, code: dict[str, Any]) -> Trace:
    names = {str(i): readable(name) for i, name in recorded.names.items() if i in timeline.state().requests}
    facts = {"title": title, "edition": title, "note": note, "stream": {}, "request_names": names, "code": code}
    return Trace(run_of(packed(timeline, facts, lambda token_id: f"<#{token_id}>"), Limits(title)))
