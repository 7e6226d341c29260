"""labengine.doctor: why each request hit or missed the prefix cache."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike

from labengine.config import checked_int
from labengine.lab import Lab
from labengine.record.files.file_access import MAX_BYTES, Limits
from labengine.record.wording import readable
from labengine.session.saved.viewed_recording import ViewedRecording
from labengine.session.settings import refuse_unknown
from labengine.vllm.prefix_doctor.alike import groups_of
from labengine.vllm.prefix_doctor.diagnosis import Diagnosis
from labengine.vllm.prefix_doctor.examine import Examination, examine
from labengine.vllm.prefix_doctor.prefixes import LostPrefix, lost_prefixes, merged
from labengine.vllm.prefix_doctor.recorded_engine import RecordedEngine
from labengine.vllm.prefix_doctor.scheduling_notes import notes_of
from labengine.vllm.prefix_doctor.sentences import Sentences
from labengine.vllm.prefix_doctor.sources import recordings_of
from labengine.vllm.prefix_doctor.sums import Sums

MAX_SECONDS = 3600.0
"""Seconds that reading a stream may take by default."""


def doctor(
    place: Lab | ViewedRecording | str | PathLike[str],
    *,
    tokenizer: str | PathLike[str] | None = None,
    top: int = 10,
    max_bytes: int = MAX_BYTES,
    max_seconds: float = MAX_SECONDS,
    **unknown: object,
) -> Diagnosis:
    """Return why each request of a recording hit or missed the prefix cache, and what would have helped most.

    place: a lab, an opened or attached recording, a .lab file, a .labstream file, or the folder of
    LABENGINE_TAP=file:DIR. tokenizer: a model's directory or name, for the text of tokens. top: prefixes that are
    named. max_bytes, max_seconds: what reading may take. Raises ConfigError or, for what is damaged, TraceError.
    """
    refuse_unknown("doctor()", unknown, doctor)
    top = checked_int("top", top, 0)
    recordings = recordings_of(place, tokenizer, Limits(place, max_bytes, max_seconds))
    return diagnosis_of(recordings, top)


def diagnosis_of(recordings: list[RecordedEngine], top: int) -> Diagnosis:
    """Examine recordings, the pieces of one stream, and put the findings together."""
    examinations = [examine(one) for one in recordings]
    examined = [
        (examination, replace(one, sentence=words.sentence(one)))
        for examination, words in ((one, Sentences(one)) for one in examinations)
        for one in examination.look_ups
    ]
    look_ups = tuple(one for _, one in examined)
    return Diagnosis(
        title=recordings[0].title,
        unit=examinations[0].unit,
        look_ups=look_ups,
        groups=groups_of(examined),
        sums=Sums.of(one for one in look_ups if one.is_first),
        sums_again=Sums.of(one for one in look_ups if not one.is_first),
        prefixes=merged((_prefixes(one, top) for one in examinations), top),
        num_waiting=examinations[-1].num_waiting,
        notes=(
            *notes_of(one.events for one in recordings),
            *(note for one in recordings for note in (one.note, _note(one)) if note),
        ),
        recording=recordings[0],
    )


def _prefixes(examination: Examination, top: int) -> list[LostPrefix]:
    words = Sentences(examination)
    return [replace(one, text=words.outline(i, one.num_tokens)) for one, i in lost_prefixes(examination, top)]


def _note(recording: RecordedEngine) -> str:
    if not recording.is_late:
        return ""
    why = readable(recording.why_late or "the engine had run before", 300)
    return f"What was cached and evicted before the recording's first event is not known: {why}."
