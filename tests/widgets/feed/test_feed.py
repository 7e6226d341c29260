"""One thread per lab: what it sends, when, and to which views."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from labengine import Lab
from labengine import events as ev
from labengine.record.fold import Fold
from labengine.record.timeline import Timeline
from labengine_widgets.feed import publisher, worker
from labengine_widgets.feed.feed import Feed, feed_of
from labengine_widgets.feed.payload import MAX_NAME, packed
from labengine_widgets.feed.viewers import BYTES_A_SECOND
from labengine_widgets.feed.worker import PERIOD, Worker
from labengine_widgets.selection import Selection
from waiting import wait_until
from widgets.fake_view_source import FakeViewSource
from widgets.feed.wire import Wire, heard, picture, read
from widgets.story_219 import begin, merging_step


@pytest.fixture
def source() -> FakeViewSource:
    return FakeViewSource(begin())


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def feed(source: FakeViewSource, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> Iterator[Feed]:
    """A feed whose thread does nothing: the tests tick."""
    monkeypatch.setattr(Worker, "take_turn", lambda self, closed: False)
    monkeypatch.setattr(worker, "IDLE", 0.01)
    feed = Feed(source)
    feed.attach(wire)
    feed.tick()
    yield feed
    feed.detach(wire)


def ask(feed: Feed, wire: Wire, **message: object) -> dict[str, object]:
    """Ask as a browser half does; its answer's payload."""
    feed.receive(wire, 0, {"view": "v", "id": "1", **message})
    feed.tick()
    answer = wire.messages[-1]
    assert (answer["view"], answer["side"]) == ("v", 0)
    return answer["payload"]


def arrived(wire: Wire) -> int:
    """The moment up to which events have arrived, which is soon after Feed.sent says so."""
    if not wire.states:
        return 0
    newest = wire.states[-1]["payload"]
    return int(newest["start"]) + len(newest["events"])


def test_a_step_by_hand_is_one_message_with_its_words(source: FakeViewSource, feed: Feed, wire: Wire) -> None:
    before = read(packed(feed.full()))
    source.say(merging_step())
    feed.tick()
    (more,) = wire.states
    payload = more["payload"]
    assert (payload["start"], payload["captioned"], len(payload["events"])) == (3, 3, 30)
    assert len(payload["captions"]) == 19
    assert payload["captions"][-1] == [33, ["Step 1 ends: 5 blocks used. The peak within the step was 8."], None]
    assert picture(heard(before, wire.states).state()) == source.fold().snapshot()


def test_half_a_step_is_shown_when_the_lab_pauses(source: FakeViewSource, wire: Wire) -> None:
    feed = Feed(source)
    feed.attach(wire)
    step = merging_step()
    source.say(step[:9])
    wait_until(lambda: arrived(wire) == 12, "the first half")
    first = [message["payload"] for message in wire.states]
    source.say(step[9:])
    wait_until(lambda: arrived(wire) == 33, "the second half")
    second = [message["payload"] for message in wire.states[len(first) :]]
    assert (first[0]["captioned"], second[0]["captioned"]) == (3, 12)
    assert first[-1]["captions"][-1][2] == "schedule" and second[-1]["captions"][-1][0] == 33
    feed.detach(wire)


def test_a_running_lab_is_followed_and_captioned_when_it_pauses(source: FakeViewSource, feed: Feed, wire: Wire) -> None:
    source.is_running = True
    source.say([*merging_step(), ev.StepStarted(2), ev.RequestScheduled(0, 14, 1, False, "running"), ev.StepEnded(2)])
    feed.tick()
    (more,) = wire.states
    assert more["payload"]["captioned"] is None and more["payload"]["captions"] == [] and more["status"]["running"]
    source.is_running = False
    feed.tick()
    feed.tick()
    (arrived,) = wire.of_type("captions")
    assert arrived["payload"]["start"] == 33 and len(arrived["payload"]["captions"]) == 3
    assert arrived["payload"]["opening"] == [36, ["After step 2: 5 blocks used."]]
    assert wire.num_updates == 2, "once at the beginning, once after the run"


def test_the_end_of_a_runs_last_step_is_followed_and_not_played(source: FakeViewSource, feed: Feed, wire: Wire) -> None:
    step = merging_step()
    source.is_running = True
    source.say(step[:9])
    feed.tick()
    source.is_running = False
    source.say(step[9:])
    feed.tick()
    assert [message["payload"]["captioned"] for message in wire.states] == [None, None]
    source.say([ev.RequestAdded(2, (1, 2, 3), 4)])
    feed.tick()
    assert wire.states[-1]["payload"]["captioned"] == 33, "what is done by hand afterwards is told again"


def test_a_request_after_a_run_does_not_keep_its_last_step_from_its_captions(
    source: FakeViewSource, feed: Feed, wire: Wire
) -> None:
    source.is_running = True
    source.say(merging_step())
    feed.tick()
    source.is_running = False
    source.say([ev.RequestAdded(2, (1, 2, 3), 4)])
    feed.tick()
    feed.tick()
    assert [message["payload"]["start"] for message in wire.of_type("captions")] == [3]


def test_of_several_steps_by_hand_the_last_is_captioned(source: FakeViewSource, feed: Feed, wire: Wire) -> None:
    source.say([*merging_step(), ev.StepStarted(2), ev.StepEnded(2)])
    feed.tick()
    (more,) = wire.states
    assert more["payload"]["captioned"] == 33 and len(more["payload"]["captions"]) == 2


def test_who_comes_late_has_the_last_step_in_words(source: FakeViewSource, feed: Feed, wire: Wire) -> None:
    source.say(merging_step())
    feed.tick()
    full = ask(feed, wire, type="resync")
    assert full["captioned"] == [[3, 33]] and len(full["captions"]) == 19
    assert full["opening"] == [33, ["After step 1: 5 blocks used."]]
    assert full["header"]["first_step"] == 1
    assert picture(heard(full, []).state()) == source.fold().snapshot()


def test_nothing_is_sent_when_nothing_happens(feed: Feed, wire: Wire) -> None:
    number = len(wire.messages)
    for _ in range(5):
        feed.tick()
    assert len(wire.messages) == number


def test_token_texts_are_sent_once(source: FakeViewSource, feed: Feed, wire: Wire) -> None:
    ask(feed, wire, type="resync")
    source.say(merging_step())
    feed.tick()
    assert wire.states[-1]["payload"]["texts"] == [[7, " t7"]], "the prompts' texts were in the full state"


def test_texts_are_known_after_a_new_engine(wire: Wire) -> None:
    """A view that starts over has forgotten all texts: words must not become numbers."""
    with Lab("simulated", num_blocks=16, block_size=4) as lab:
        lab.feed.attach(wire)
        lab.add("Once upon a time there was", max_tokens=1)
        lab.step()
        wait_until(lambda: wire.states, "the step")
        lab.reset()
        wait_until(lambda: wire.of_type("full"), "a new beginning")
        lab.add("Once upon a time there was", max_tokens=1)
        arrived: dict[int, str] = {}

        def have_arrived() -> bool:
            last = max(i for i, message in enumerate(wire.messages) if message["type"] == "full")
            for message in wire.messages[last:]:
                arrived.update(map(tuple, message["payload"].get("texts", [])))  # type: ignore[arg-type]
            return " upon" in arrived.values()

        wait_until(have_arrived, "the prompt's words")
        lab.feed.detach(wire)


def test_what_was_sent_before_is_asked_for(wire: Wire) -> None:
    with Lab("simulated", num_blocks=64, block_size=4) as lab:
        for i in range(8):
            lab.add(token_ids=range(i, i + 9), max_tokens=100)
        lab.run()
        feed = lab.feed
        feed.attach(wire)
        feed.receive(wire, 0, {"type": "resync", "view": "v"})
        wait_until(lambda: wire.of_type("full"), "the full state")
        full = wire.of_type("full")[-1]["payload"]
        assert full["start"] > full["header"]["first"] == 0
        feed.receive(wire, 0, {"type": "older", "view": "v", "id": "7", "before": full["start"]})
        wait_until(lambda: wire.of_type("older"), "what was before")
        older = wire.of_type("older")[0]
        assert older["id"] == "7" and older["payload"]["end"] == full["start"]
        recording = heard(older["payload"], [{"type": "more", "payload": full}])
        assert picture(recording.state()) == lab.snapshot()
        start, end = lab.timeline.step_moments(3)
        feed.receive(wire, 0, {"type": "captions", "view": "v", "id": "8", "start": start, "end": end})
        wait_until(lambda: any(m.get("id") == "8" for m in wire.of_type("captions")), "the words")
        captions = next(m for m in wire.of_type("captions") if m.get("id") == "8")["payload"]["captions"]
        assert captions[0][1] == ["Step 3 begins."] and captions[-1][0] == end
        feed.detach(wire)


def test_a_rolled_back_step_is_described_and_the_next_one_too(source: FakeViewSource, feed: Feed, wire: Wire) -> None:
    source.say([*merging_step()[:12], ev.StepRolledBack(1, "KeyboardInterrupt")])
    feed.tick()
    assert "KeyboardInterrupt" in wire.states[-1]["payload"]["captions"][-1][1][0]
    source.say(merging_step())
    feed.tick()
    assert wire.states[-1]["payload"]["captions"][-1][1][0].startswith("Step 1 ends")


def test_a_restarted_engine_starts_from_nothing(source: FakeViewSource, feed: Feed, wire: Wire) -> None:
    source.say([*merging_step(), ev.StepStarted(2), ev.StepEnded(2)])
    feed.tick()
    source.say(begin())
    feed.tick()
    full = wire.states[-1]
    assert (full["type"], full["view"]) == ("full", None)
    assert full["payload"]["start"] == 0 and full["payload"]["header"]["generation"] == 2
    source.say([ev.RequestAdded(2, (1, 2, 3), 4)])
    feed.tick()
    assert wire.states[-1]["payload"]["captioned"] == 3, "where the step before the restart began means nothing now"
    source.say(merging_step())
    feed.tick()
    assert wire.states[-1]["generation"] == 2
    assert "joins the prefix map" in str(wire.states[-1]["payload"]["captions"][10][1])


def test_the_number_of_messages_is_bounded_and_none_is_missing() -> None:
    wire = Wire()
    with Lab("simulated", num_blocks=64, block_size=4) as lab:
        feed = lab.feed
        feed.attach(wire)
        feed.receive(wire, 0, {"type": "resync", "view": "v"})
        wait_until(lambda: wire.of_type("full"))

        def pace(lab: Lab) -> None:
            time.sleep(0.004)
            if lab.snapshot().step == 100:
                wait_until(lambda: len(wire.states) > 1, "the first steps")

        started = time.monotonic()
        lab.add(token_ids=[1, 2, 3], max_tokens=200)
        lab.run(until=pace)
        wait_until(lambda: arrived(wire) == lab.timeline.end, "the last step")
        seconds = time.monotonic() - started
        full, *states = wire.states
        assert 2 <= len(states) <= seconds / PERIOD + 3
        assert picture(heard(full["payload"], states).state()) == lab.snapshot()
        assert not feed.failures
        feed.detach(wire)


def heard_since_full(wire: Wire) -> Timeline:
    at = wire.states.index(wire.of_type("full")[0])
    return heard(wire.states[at]["payload"], wire.states[at + 1 :])


def test_a_view_opened_beside_a_running_lab_catches_up() -> None:
    with Lab("simulated", num_blocks=256, block_size=4) as lab:
        for _ in range(8):
            lab.add(token_ids=[1, 2, 3], max_tokens=100)
        lab.start()
        wires = [Wire() for _ in range(3)]
        for wire in wires:
            lab.feed.attach(wire)
            lab.feed.receive(wire, 0, {"type": "resync", "view": "v"})
        wait_until(lambda: not lab.is_running and lab.feed.sent == lab.timeline.end, "the end of the run")
        snapshot = lab.snapshot()
        for wire in wires:
            wait_until(lambda wire=wire: wire.of_type("full"))
            wait_until(lambda wire=wire: heard_since_full(wire).end == lab.timeline.end)
            assert picture(heard_since_full(wire).state()) == snapshot
            lab.feed.detach(wire)


@pytest.mark.parametrize("is_running", [False, True])
def test_a_lab_that_records_nothing_is_recorded_from_the_first_look_on(is_running: bool) -> None:
    wire = Wire()
    with Lab("simulated", num_blocks=256, block_size=4, record=False) as lab:
        lab.add(token_ids=range(9), max_tokens=400)
        for _ in range(5):
            lab.step()
        if is_running:
            lab.start()
        lab.feed.attach(wire)
        lab.pause()
        for _ in range(5):
            lab.step()
        lab.feed.receive(wire, 0, {"type": "resync", "view": "v"})
        answers = lambda: [message for message in wire.of_type("full") if message["view"] == "v"]  # noqa: E731
        wait_until(answers, "the answer, which all that is sent to every view may come before")
        full = answers()[-1]["payload"]
        assert not full["header"]["is_recorded"] and full["header"]["first_step"] > 1
        assert picture(heard(full, []).state()) == lab.snapshot()
        lab.feed.detach(wire)


def test_a_view_that_asks_before_there_is_a_recording_waits_for_another_tick(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, state = FakeViewSource(begin()), FakeViewSource(begin()).fold()
    source.timeline, is_stepping, num_looks = None, True, 0

    def fold() -> Fold:
        if is_stepping:
            source.hooks.emit(ev.ForwardRan(1, 1))  # no instant between two events at which the state can be taken
        return state

    def answer(self: Feed, *asked: Any) -> None:
        nonlocal num_looks, is_stepping
        num_looks += 1
        if num_looks > 50:
            raise AssertionError("one tick looks on and on")
        answered(self, *asked)

    source.fold = fold  # type: ignore[method-assign]
    monkeypatch.setattr(Worker, "take_turn", lambda self, closed: False)
    answered = Feed._answer_resync
    monkeypatch.setattr(Feed, "_answer_resync", answer)
    feed = Feed(source)
    feed.attach(wire)
    feed.receive(wire, 0, {"type": "resync", "view": "v"})
    for tick in (1, 2):
        feed.tick()
        assert num_looks == tick and wire.of_type("full") == []
    is_stepping = False
    source.say(merging_step())
    feed.tick()
    assert wire.of_type("full")[-1]["view"] == "v"
    feed.detach(wire)


def test_an_error_of_the_feed_costs_a_resync_and_not_the_feed(
    source: FakeViewSource, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = Feed(source)
    feed.attach(wire)
    monkeypatch.setattr(source, "token_text", lambda token_id: {}[token_id])
    source.say([ev.RequestAdded(0, (1, 2), 1)])
    wait_until(lambda: feed.failures, "the failure")
    monkeypatch.undo()
    source.say([*begin(), *merging_step()])
    wait_until(lambda: wire.states and heard(wire.of_type("full")[-1]["payload"], []).end >= 3, "the picture")
    assert isinstance(feed.failures[0], KeyError)
    assert not source.hooks.failures
    feed.detach(wire)


def test_an_error_of_a_callback_is_said_beside_the_widget(source: FakeViewSource, feed: Feed, wire: Wire) -> None:
    feed.on_select = lambda selection: 1 / 0
    feed.receive(wire, 0, {"type": "select", "view": "v", "selection": {"kind": "block", "id": 3}})
    feed.tick()
    assert wire.of_type("failure")[-1]["message"] == "ZeroDivisionError: division by zero"


def test_a_dropped_listener_is_reported(source: FakeViewSource, feed: Feed, wire: Wire) -> None:
    source.hooks.subscribe(lambda event: 1 / 0, ev.StepEnded)
    source.say(merging_step())
    feed.tick()
    assert wire.states[-1]["status"]["listener_failures"] == ["ZeroDivisionError: division by zero"]


def test_the_selection_travels_both_ways(source: FakeViewSource, feed: Feed, wire: Wire) -> None:
    selections: list[Selection | None] = []
    feed.on_select = selections.append
    feed.receive(wire, 0, {"type": "select", "view": "v", "selection": {"kind": "hash", "id": "0:ab"}})
    feed.tick()
    assert feed.selection == Selection("hash", "0:ab") == selections[-1]
    assert wire.of_type("select")[-1]["from"] == "v"
    feed.select(Selection("block", 3))
    feed.tick()
    assert wire.of_type("select")[-1]["selection"] == {"kind": "block", "id": 3}
    assert ask(feed, wire, type="resync")["selection"] == {"kind": "block", "id": 3}
    feed.receive(wire, 0, {"type": "select", "view": "v", "selection": {"kind": "planet", "id": 3}})
    feed.tick()
    assert feed.selection == Selection("block", 3), "nonsense changes nothing"
    feed.receive(wire, 0, {"type": "select", "view": "v", "selection": None})
    feed.tick()
    assert feed.selection is None


def test_the_shown_moment_travels_both_ways(source: FakeViewSource, feed: Feed, wire: Wire) -> None:
    source.say(merging_step())
    feed.tick()
    feed.receive(wire, 0, {"type": "at", "view": "v", "moment": 12})
    feed.tick()
    assert feed.moment == 12
    feed.show_moment(7)
    feed.tick()
    assert wire.of_type("show")[-1]["moment"] == 7 == feed.moment
    assert ask(feed, wire, type="resync")["shown"] == 7
    source.say([ev.StepStarted(2), ev.StepEnded(2)])
    feed.tick()
    assert feed.moment is None, "the lab moved on, and the views with it"


def test_events_of_before_a_shown_moment_are_sent_before_it(source: FakeViewSource, feed: Feed, wire: Wire) -> None:
    """The feed reads half of a step; the step ends at a breakpoint, whose moment is shown."""
    step = merging_step()
    source.is_running = True
    source.say(step[:9])
    feed.post(lambda: source.say(step[9:]))
    feed.show_moment(7)
    feed.tick()
    assert [message["type"] for message in wire.messages if message["type"] in ("more", "show")] == [
        "more",
        "more",
        "show",
    ]
    assert feed.sent == 33


JSON = [None, True, False, 0, -1, 1.0, 10**30, "", "at", "x" * 10_000, [], ["at"], {}, {"type": "at"}, [[None]]]
"""One value of each kind that a message may carry where another one was meant."""


@pytest.mark.parametrize("kind", ["at", "select", "older", "captions", "why", "resync", *JSON])
def test_an_impossible_message_changes_nothing(source: FakeViewSource, feed: Feed, wire: Wire, kind: object) -> None:
    source.say(merging_step())
    feed.tick()
    feed.select(Selection("block", 3))
    feed.show_moment(7)
    feed.tick()
    for value in JSON:
        names = ["moment", "selection", "before", "start", "end", "subject", "view", "id"]
        feed.receive(wire, 0, {"type": kind, **dict.fromkeys(names, value)})
        feed.tick()
        if (kind, value) in [("at", None), ("at", 0), ("select", None)]:
            feed.select(Selection("block", 3))  # these are possible
            feed.show_moment(7)
        assert (feed.moment, feed.selection) == (7, Selection("block", 3)), value
    assert feed.is_sending and ask(feed, wire, type="resync")["shown"] == 7


def test_one_feed_serves_all_views_of_a_lab(source: FakeViewSource) -> None:
    listeners, threads = {kind: len(s) for kind, s in source.hooks.items()}, set(threading.enumerate())
    first, second = Wire(), Wire()
    feed = feed_of(source)
    assert feed_of(source) is feed
    feed.attach(first, 0)
    feed.attach(second, 1)
    assert len(set(threading.enumerate()) - threads) == 1
    source.say(merging_step())
    wait_until(lambda: first.states and second.states)
    assert first.states[0]["payload"] == second.states[0]["payload"]
    assert (first.states[0]["side"], second.states[0]["side"]) == (0, 1)
    feed.detach(first)
    feed.detach(second)
    feed.detach(second)
    assert {kind: len(s) for kind, s in source.hooks.items()} == listeners
    wait_until(lambda: set(threading.enumerate()) <= threads, "the end of the thread")


@pytest.mark.parametrize(
    "arrived", [None, [], {}, {"kind": "block"}, {"kind": "block", "id": "3"}, {"kind": 3, "id": 3}]
)
def test_a_selection_that_is_none(arrived: object) -> None:
    from labengine_widgets.selection import selection_of

    assert selection_of(arrived) is None


def test_a_selection_says_what_it_wants() -> None:
    with pytest.raises(ValueError, match="a block, a request, a hash, a node or an event"):
        Selection("planet", 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must be an int"):
        Selection("block", "3")


@pytest.mark.usefixtures("has_no_threads")
def test_where_there_are_no_threads_the_event_loop_does_the_work(source: FakeViewSource, wire: Wire) -> None:
    async def watch() -> None:
        feed = Feed(source)
        feed.attach(wire)
        source.say(merging_step())
        await asyncio.sleep(0)
        assert heard(read(packed(feed.full())), []).state().snapshot() == source.fold().snapshot()
        assert [message["payload"]["start"] for message in wire.states] == [3]
        feed.receive(wire, 0, {"view": "v", "id": "1", "type": "resync"})
        await asyncio.sleep(0)
        assert wire.messages[-1]["type"] == "full" or wire.messages[-2]["type"] == "full"
        feed.detach(wire)
        assert not feed.is_sending and feed.failures == deque()

    asyncio.run(watch())


@pytest.mark.usefixtures("has_no_threads")
def test_on_the_event_loop_views_go_on_after_a_runs_last_step(source: FakeViewSource, wire: Wire) -> None:
    async def watch() -> None:
        feed = Feed(source)
        feed.attach(wire)
        source.is_running = True
        source.say(merging_step())
        source.is_running = False
        for _ in range(3):
            await asyncio.sleep(0)
        assert len(wire.of_type("captions")) == wire.num_updates == 1
        source.say([ev.StepStarted(2), ev.StepEnded(2)])
        await asyncio.sleep(0)
        assert wire.states[-1]["payload"]["start"] == 33
        feed.detach(wire)

    asyncio.run(watch())


@pytest.mark.usefixtures("has_no_threads")
def test_on_the_event_loop_a_view_that_is_opened_again_is_served(source: FakeViewSource, wire: Wire) -> None:
    async def watch() -> None:
        feed = Feed(source)
        feed.attach(wire)
        feed.detach(wire)
        feed.attach(wire)
        source.say(merging_step())
        await asyncio.sleep(0)
        assert len(wire.states) == 1
        feed.detach(wire)

    asyncio.run(watch())


def test_the_engines_own_ids_of_requests_are_sent_once(source: FakeViewSource, feed: Feed, wire: Wire) -> None:
    source.names = {0: "cmpl-0", 1: "", 7: "cmpl-7" * 100}
    assert ask(feed, wire, type="resync")["names"] == [[0, "cmpl-0"]], "only of requests that have one"
    source.say([ev.RequestAdded(7, (1, 2), 4)])
    feed.tick()
    payload = wire.states[-1]["payload"]
    assert payload["names"] == [[7, ("cmpl-7" * 100)[:MAX_NAME]]]
    source.say([ev.RequestFinished(7, "abort")])
    feed.tick()
    assert wire.states[-1]["payload"]["names"] == []
    older = ask(feed, wire, type="older", before=source.timeline.end)
    assert [number for number, _ in older["names"]] == [0, 7]


# -- many events, and slow ways ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bytes_an_event", "kind"), [(8, "more"), (10**9, "full")])
def test_views_that_are_far_behind_begin_anew_where_that_takes_fewer_bytes(
    bytes_an_event: int,
    kind: str,
    source: FakeViewSource,
    feed: Feed,
    wire: Wire,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publisher, "MAX_BEHIND", 20)
    monkeypatch.setattr(publisher, "BYTES_AN_EVENT", bytes_an_event)
    ask(feed, wire, type="resync")
    source.say(merging_step())
    feed.tick()
    assert wire.messages[-1]["type"] == kind and feed.sent == 33


def test_the_slowest_way_to_a_browser_sets_the_rate(feed: Feed) -> None:
    assert feed._viewers.bytes_a_second == BYTES_A_SECOND
    slow, quick = Wire(), Wire()
    feed.attach(slow, 0, 1000)
    feed.attach(quick, 0, 10**7)
    assert feed._viewers.bytes_a_second == 1000
    feed.detach(slow)
    assert feed._viewers.bytes_a_second == BYTES_A_SECOND
