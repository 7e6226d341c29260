"""A recording that is saved and opened again is the same: every event, every state, every step."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from driving import difference
from grounds import ALL_GROUNDS, Ground
from labengine.events import (
    EVENT_KINDS,
    BlocksLoaded,
    BlocksSaved,
    EngineStarted,
    Event,
    RequestAdded,
    StepRolledBack,
    StepStarted,
)
from labengine.record.files import recorded_timeline, segments
from labengine.record.files.codec import KINDS, dumps, rows
from labengine.record.files.file import open_file, save
from labengine.record.files.parsing import TraceError
from labengine.record.files.recorded_timeline import RecordedTimeline, rows_between
from labengine.record.timeline import Timeline
from recordings import FACTS, recording, saved, timeline_of, word

LABENGINE = Ground("labengine")


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a small recording has many pieces, and some of them a keyframe."""
    monkeypatch.setattr(segments, "EVENTS_PER_SEGMENT", 20)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.lab"


@pytest.mark.parametrize("ground", ALL_GROUNDS, ids=str)
def test_every_event_and_state_is_the_same_after_a_round_trip(ground: Ground, path: Path) -> None:
    met: Counter[type[Event]] = Counter()
    for seed in range(3):
        timeline, rng = recording(ground, seed), Random(seed)
        opened = saved(timeline, path).timeline
        events = list(timeline.events())
        met.update(map(type, events))
        assert (opened.num_dropped, opened.end, list(opened.events())) == (0, timeline.end, events)
        for moment in (0, timeline.end, *(rng.randint(0, timeline.end) for _ in range(25))):
            assert difference(opened.state(moment).snapshot(), timeline.state(moment).snapshot()) is None
    assert met[StepRolledBack] > 2
    assert ground.tier == "none" or met[BlocksSaved]


def test_every_single_state_is_the_same(path: Path) -> None:
    timeline = recording(LABENGINE, 4)
    opened = saved(timeline, path).timeline
    assert len(opened.segments) > 5
    for moment in range(timeline.end + 1):
        assert difference(opened.state(moment).snapshot(), timeline.state(moment).snapshot()) is None, moment


def test_the_oldest_events_may_have_been_dropped(path: Path) -> None:
    timeline = recording(LABENGINE, 4, max_events=80)
    assert timeline.num_dropped
    opened = saved(timeline, path).timeline
    assert opened.num_dropped == timeline.num_dropped
    assert list(opened.events()) == list(timeline.events())
    for moment in range(timeline.num_dropped, timeline.end + 1):
        assert difference(opened.state(moment).snapshot(), timeline.state(moment).snapshot()) is None, moment
    for moment in (timeline.num_dropped - 1, timeline.end + 1):
        with pytest.raises(IndexError, match="no moment"):
            opened.state(moment)


def test_steps_and_stretches_are_the_same(path: Path) -> None:
    timeline, rng = recording(LABENGINE, 5), Random(5)
    opened = saved(timeline, path).timeline
    for step in range(1, timeline.state().step + 1):
        assert opened.step_moments(step) == timeline.step_moments(step)
    with pytest.raises(KeyError, match="is not in the recording"):
        opened.step_moments(0)
    stretches = [(None, None), (3, None), (None, 3), (0, 0), (9, 4), (0, 10**6), (-5, 7), (10**6, None)]
    stretches += [tuple(rng.randint(0, timeline.end) for _ in "ab") for _ in range(40)]  # type: ignore[misc]
    for start, stop in stretches:
        if stop is None or stop >= 0:
            assert list(opened.events(start, stop)) == list(timeline.events(start, stop)), (start, stop)
            assert dumps(rows_between(opened, start, stop)) == dumps(rows_between(timeline, start, stop))
    for kind in (*EVENT_KINDS, Event, (BlocksSaved, RequestAdded)):
        assert opened.of_kind(kind) == timeline.of_kind(kind)
        assert opened.of_kind(kind, 30, 200) == timeline.of_kind(kind, 30, 200)
    assert timeline.of_kind((StepStarted, RequestAdded), 30, 200) == [
        event for event in timeline.events(30, 200) if isinstance(event, (StepStarted, RequestAdded))
    ]


def test_a_step_that_is_open_stays_open(path: Path) -> None:
    timeline = recording(LABENGINE, 1)
    until = timeline.step_moments(timeline.state().step)[1] - 2
    cut = Timeline()
    for event in timeline.events(0, until):
        cut.record(event)
    opened = saved(cut, path).timeline
    assert opened.step_moments(cut.state().step) == cut.step_moments(cut.state().step)
    assert difference(opened.state().snapshot(), cut.state().snapshot()) is None


@pytest.mark.parametrize("events", [[], [EngineStarted(3, (("full", 2, None),), "labengine")]])
def test_hardly_anything_can_be_saved_too(events: list[Event], path: Path) -> None:
    timeline = timeline_of(events)
    opened = saved(timeline, path).timeline
    assert list(opened.events()) == events
    assert difference(opened.state(0).snapshot(), timeline.state(0).snapshot()) is None
    assert difference(opened.state().snapshot(), timeline.state().snapshot()) is None


def test_a_recording_that_began_in_the_middle(path: Path) -> None:
    complete = recording(LABENGINE, 2)
    middle, _ = complete.step_moments(3)
    late = Timeline.starting_at(complete.state(middle))
    for event in complete.events(middle):
        late.record(event)
    opened = saved(late, path).timeline
    for moment in range(0, late.end, 7):
        assert difference(opened.state(moment).snapshot(), complete.state(middle + moment).snapshot()) is None


def test_what_is_handed_out_is_a_copy(path: Path) -> None:
    opened = saved(recording(LABENGINE, 2), path).timeline
    before = opened.state(opened.end // 2).snapshot()
    state = opened.state(opened.end // 2)
    state.ref_counts[:] = [99] * len(state.ref_counts)
    state.requests.clear()
    opened.events()[:] = []  # type: ignore[index]
    opened.rows().clear()
    assert opened.state(opened.end // 2).snapshot() == before
    assert len(opened.events()) == len(opened.rows()) == opened.end


def test_a_saved_recording_cannot_grow(path: Path) -> None:
    opened = saved(recording(LABENGINE, 2), path).timeline
    with pytest.raises(RuntimeError, match="cannot grow"):
        opened.record(StepStarted(1))


def test_facts_texts_and_seconds_come_back(path: Path) -> None:
    timeline = recording(LABENGINE, 2)
    run = saved(timeline, path)
    assert run.facts == FACTS
    tokens = {t for event in timeline.of_kind(RequestAdded) for t in event.token_ids}
    assert tokens <= run.texts.keys()
    assert all(text == word(token_id) for token_id, text in run.texts.items())
    assert run.timeline.step_seconds.keys() == timeline.step_seconds.keys() == set(range(1, timeline.state().step + 1))
    assert run.timeline.step_seconds == pytest.approx(timeline.step_seconds, abs=1e-6)


def test_texts_of_tokens_whose_events_were_dropped_are_kept(path: Path) -> None:
    timeline = recording(LABENGINE, 4, max_events=80)
    state = timeline.state(timeline.num_dropped)
    held = {t for r in state.requests.values() for t in r.token_ids}
    assert held and held <= saved(timeline, path).texts.keys()


def test_the_same_recording_gives_the_same_file(path: Path) -> None:
    timeline = recording(LABENGINE, 2)
    first = saved(timeline, path).raw
    assert saved(timeline, path).raw == first == path.read_bytes()


def test_an_opened_recording_can_be_saved(path: Path) -> None:
    timeline = recording(LABENGINE, 2)
    again = saved(saved(timeline, path).timeline, path.with_name("again.lab")).timeline
    assert list(again.events()) == list(timeline.events())


def test_rows_of_other_kinds_are_renumbered(path: Path) -> None:
    """A file of an older version numbers its kinds in another way."""
    timeline = recording(LABENGINE, 2)
    run = saved(timeline, path)
    number = {kind[0]: i for i, kind in enumerate(reversed(KINDS))}
    older = [
        segments.Segment(
            s.start,
            s.end,
            s.first_step,
            s.last_step,
            s.keyframe,
            dumps([[number[KINDS[row[0]][0]], *row[1:]] for row in json.loads(s.rows)]),
        )
        for s in run.timeline.segments
    ]
    opened = RecordedTimeline(older, run.timeline.last_keyframe, [*reversed(KINDS)], {})
    assert list(opened.events()) == list(timeline.events())
    assert json.loads(dumps(opened.rows())) == json.loads(dumps(rows(timeline.events())))
    assert opened.of_kind(RequestAdded) == timeline.of_kind(RequestAdded)


def test_keyframes_are_few_where_states_are_large(path: Path) -> None:
    run = saved(recording(Ground("vllm"), 4), path)
    keyframes = [len(s.keyframe) for s in run.timeline.segments if s.keyframe != segments.NO_KEYFRAME]
    row_bytes = sum(len(s.rows) for s in run.timeline.segments)
    assert 1 < len(keyframes) < len(run.timeline.segments)
    assert sum(keyframes[:-1]) * segments.ROWS_PER_KEYFRAME <= row_bytes


def test_rows_are_read_once_and_states_when_somebody_asks(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(path, recording(LABENGINE, 5), FACTS, word)
    parsed: list[bytes] = []
    parse = recorded_timeline.parsed
    monkeypatch.setattr(recorded_timeline, "parsed", lambda text: parsed.append(text) or parse(text))
    opened = open_file(path).timeline
    assert parsed == [segment.rows for segment in opened.segments]
    opened.state()
    assert parsed[len(opened.segments) :] == [opened.last_keyframe]
    opened.state(opened.end - 1)
    assert len(parsed) == len(opened.segments) + 2


def test_a_kind_that_does_not_occur_is_not_looked_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(path, recording(LABENGINE, 5), FACTS, word)
    opened = open_file(path).timeline
    with monkeypatch.context() as patch:
        patch.setattr(recorded_timeline, "parsed", None)
        assert opened.of_kind((BlocksSaved, BlocksLoaded)) == []
    assert opened.of_kind(StepStarted)


def test_blanks_change_nothing(path: Path) -> None:
    """JSON of other programs may have them."""
    timeline = recording(LABENGINE, 5)
    save(path, timeline, FACTS, word)
    lines = [json.dumps(json.loads(line)).encode() for line in gzip.decompress(path.read_bytes()).split(b"\n")]
    path.write_bytes(gzip.compress(b"\n".join(lines)))
    opened = open_file(path).timeline
    assert opened.of_kind(StepStarted) == timeline.of_kind(StepStarted)
    assert difference(opened.state().snapshot(), timeline.state().snapshot()) is None


def test_lines_are_as_the_format_says(path: Path) -> None:
    save(path, recording(LABENGINE, 5), FACTS, word)
    header, facts, texts, seconds, *pieces, last = map(json.loads, gzip.decompress(path.read_bytes()).split(b"\n"))
    assert (header["format"], header["version"], header["kinds"]) == ("labengine trace", 1, KINDS)
    assert len(pieces) == 2 * len(header["segments"])
    assert facts == FACTS and texts and seconds
    assert last["step"] == header["segments"][-1][3]


class TestWriting:
    """Completely, or not at all."""

    def test_a_failed_save_leaves_the_file_of_before(self, path: Path) -> None:
        save(path, recording(LABENGINE, 1), FACTS, word)
        before = path.read_bytes()
        with pytest.raises(TypeError):
            save(path, recording(LABENGINE, 2), {"title": object()}, word)
        assert path.read_bytes() == before
        assert list(path.parent.iterdir()) == [path]

    def test_a_full_disk_leaves_nothing_behind(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(_: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(TraceError, match="cannot be written: No space left"):
            save(path, recording(LABENGINE, 1), FACTS, word)
        assert list(path.parent.iterdir()) == []

    def test_a_folder_that_is_not_there(self, path: Path) -> None:
        with pytest.raises(TraceError, match="cannot be written: No such file"):
            save(path / "x" / "run.lab", recording(LABENGINE, 1), FACTS, word)

    @pytest.mark.parametrize("name", [5, None, b"x", "a\0b"])
    def test_what_is_no_name(self, name: object) -> None:
        with pytest.raises(TraceError, match="cannot be written"):
            save(name, recording(LABENGINE, 1), FACTS, word)  # type: ignore[arg-type]

    def test_a_link_is_followed(self, path: Path) -> None:
        link = path.with_name("link.lab")
        link.symlink_to(path)
        save(link, recording(LABENGINE, 1), FACTS, word)
        assert link.is_symlink() and path.is_file()

    def test_the_file_can_be_read_by_whom_the_umask_says(self, path: Path) -> None:
        save(path, recording(LABENGINE, 1), FACTS, word)
        plain = path.with_name("plain")
        plain.touch()
        assert path.stat().st_mode == plain.stat().st_mode
