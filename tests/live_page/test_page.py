"""The page's Python half, without a browser: sessions opened, stepped, and opened again by their links."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from labengine import Lab
from labengine.config import ConfigError
from labengine.core.proposer import NGram
from labengine.live_page.page import MAX_REFUSAL, LivePage
from labengine.live_page.permalink import permalink_of
from labengine.live_page.session import WHOLE_PROMPT, _budget, acts_of
from labengine.record.snapshot import Snapshot
from labengine.record.wording import readable
from waiting import PATIENCE

pytestmark = pytest.mark.usefixtures("has_no_threads")

TWO = "edition=nano-vllm%2B243&prompt=Two+people+ask+the+very+same+question+at+the+very+same+moment.+The&copies=2"


class Posted:
    """A page, and what it has posted."""

    def __init__(self) -> None:
        self.all: list[tuple[str, dict[str, Any]]] = []
        self.page = LivePage(lambda kind, content, buffers: self.all.append((kind, json.loads(content))))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [content for posted, content in self.all if posted == kind]

    def answers(self, kind: str) -> list[dict[str, Any]]:
        return [content for content in self.of("message") if content["type"] == kind]

    def open(self, query: str) -> str:
        """Open a session; return the link that the page gives it, or why it was refused."""
        self.all.clear()
        self.page.receive(json.dumps({"type": "open", "query": query}))
        ((kind, content),) = [one for one in self.all if one[0] in ("opened", "refused")]
        return str(content["query" if kind == "opened" else "message"])

    async def command(self, action: str, **arguments: Any) -> None:
        done = len(self.answers("answer"))
        self.page.receive(json.dumps({"type": "command", "view": "v", "side": 0, "action": action, **arguments}))
        async with asyncio.timeout(PATIENCE):
            while len(self.answers("answer")) == done:
                await asyncio.sleep(0)
        assert self.answers("answer")[-1]["error"] is None

    def link(self) -> str:
        self.page.receive('{"type": "permalink"}')
        return str(self.of("permalink")[-1]["query"])

    @property
    def state(self) -> Snapshot:
        assert self.page._session is not None
        return self.page._session.lab.snapshot()


async def stepped() -> Posted:
    """Return a page with two prompts added, one stepped, one more added and one aborted."""
    posted = Posted()
    assert posted.open(TWO) == TWO
    await posted.command("step")
    alone = {"copies": 1, "n": 1, "beams": 1, "priority": 0}
    await posted.command("add", prompt="And <another>, with & signs", max_tokens=3, **alone)
    await posted.command("step")
    assert posted.page._session is not None
    posted.page._session.lab.abort(1)
    await posted.command("step")
    return posted


def test_a_link_leads_to_the_same_state() -> None:
    async def scenario() -> None:
        posted = await stepped()
        link, other = posted.link(), Posted()
        assert link == f"{TWO}&step=1&prompt=And+%3Canother%3E%2C+with+%26+signs&max_tokens=3&step=1&abort=1&step=1"
        assert other.open(link) == link and other.state == posted.state
        assert other.state.requests[1].status == "finished" and other.state.step == 3
        posted.page.close()
        other.page.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("query", "num_requests"),
    [
        ("edition=labengine&prompt=a+b+c+d+e&copies=2&n=3&step=4", 6),
        ("edition=labengine&prompt=a+b+c+d+e&beams=3&step=5&prompt=f&step=1", 4),
        ("edition=labengine&drafts=4&prompt=a+b+a+b+a&step=3", 1),
        ("edition=labengine&policy=priority&prompt=a&priority=2&prompt=b&priority=-1&step=1", 2),
        ("edition=labengine&states=8&prompt=a+b+c+d+e+f+g+h+i&step=3", 1),
        ("compare=labengine%2Cvllm&policy=priority&prompt=a+b&n=2&priority=-3&step=2", 2),
    ],
)
def test_forks_beams_drafts_priorities_and_states_are_in_the_link(query: str, num_requests: int) -> None:
    async def scenario() -> None:
        posted, other = Posted(), Posted()
        assert posted.open(query) == query
        assert len(posted.state.requests) == num_requests
        await posted.command("step")
        assert other.open(posted.link()) == posted.link() and other.state == posted.state
        posted.page.close()
        other.page.close()

    asyncio.run(scenario())


def test_what_a_link_of_one_of_them_shows() -> None:
    posted = Posted()
    posted.open("edition=labengine&drafts=2&policy=priority&prompt=a+b+c&priority=3&step=1")
    assert posted.page._session is not None
    lab = posted.page._session.lab
    assert lab.settings.speculation == NGram(2) and lab.settings.policy == "priority"
    assert posted.state.requests[0].priority == 3
    posted.open("edition=labengine&states=8&prompt=a+b+c&step=1")
    assert [group.kind for group in posted.state.groups] == ["full", "state"]
    posted.page.close()


@pytest.mark.parametrize(
    "act",
    [
        lambda lab: lab.add("a", temperature=0.5),
        lambda lab: lab.add("a", cache_salt="x"),
        lambda lab: (lab.abort(0), lab.reset_prefix_cache()),
        lambda lab: lab.branch(0),
    ],
)
def test_a_session_that_no_link_repeats_gets_none(act: Callable[[Lab], object]) -> None:
    lab = Lab("simulated", num_blocks=24, block_size=4)
    lab.add("a b c")
    lab.step()
    act(lab)
    with pytest.raises(ConfigError, match="save the lab"):
        list(acts_of(lab, lab.inputs, 0, 1))
    lab.close()


def test_a_run_in_the_background_is_in_the_link() -> None:
    async def scenario() -> None:
        posted, other = Posted(), Posted()
        posted.open(TWO)
        await posted.command("start")
        async with asyncio.timeout(PATIENCE):
            while any(request.status != "finished" for request in posted.state.requests.values()):
                await asyncio.sleep(0)
        other.open(posted.link())
        assert other.state == posted.state and posted.link().endswith("&copies=2&step=16")
        posted.page.close()
        other.page.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("query", ["bug=nano-vllm-219", "compare=nano-vllm%2Cnano-vllm%2B243&prompt=a+b+c&step=1"])
def test_a_comparison_has_a_link_too(query: str) -> None:
    async def scenario() -> None:
        posted, other = Posted(), Posted()
        assert posted.open(query) == query
        assert posted.of("opened")[0]["arrangement"]["kind"] == "compare"
        if query.startswith("bug"):
            await posted.command("follow_up")
        await posted.command("step")
        assert other.open(posted.link()) == posted.link() and other.state == posted.state
        assert "follow_up=1&step=1" in posted.link() or posted.link().endswith("step=2")
        posted.page.close()
        other.page.close()

    asyncio.run(scenario())


def test_a_view_gets_the_recording_and_an_answer() -> None:
    async def scenario() -> None:
        posted = Posted()
        posted.open(TWO + "&step=1")
        posted.page.receive('{"type": "resync", "view": "v", "side": 0}')
        why = {"type": "why", "view": "v", "side": 0, "id": "1", "subject": {"kind": "block", "id": 0}}
        posted.page.receive(json.dumps(why))
        async with asyncio.timeout(PATIENCE):
            while not (posted.answers("full") and posted.answers("why")):
                await asyncio.sleep(0)
        posted.page.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("edition=vlm", "vllm"),
        ("bug=nano-vllm-218", "nano-vllm-"),
        ("bug=nano-vllm-190", "pip install -e '"),
        ("blocks=2&prompt=a+b+c+d+e+f+g+h+i+j+k+l", "blocks"),
        ("prompt=a&abort=7", "7"),
        ("step=x", "step"),
        ("model=smollm2&prompt=a", "'Use a real model'"),
    ],
)
def test_a_refusal_leaves_the_session_open(query: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "190" in query:
        monkeypatch.setattr("labengine.system.extras.find_spec", lambda name: None)

    async def scenario() -> None:
        posted = await stepped()
        before, link = posted.state, posted.link()
        assert message in posted.open(query)
        assert posted.state == before and posted.link() == link
        await posted.command("step")
        posted.page.close()

    asyncio.run(scenario())


def test_an_edition_that_cuts_no_prompt_gets_a_budget_for_whole_ones_with_weights() -> None:
    whole = {"max_num_batched_tokens": WHOLE_PROMPT}
    assert _budget(permalink_of("model=smollm2&edition=nano-vllm-2025-07")) == whole
    assert _budget(permalink_of("model=smollm2&compare=vllm,nano-vllm-2025-07")) == whole
    assert (
        _budget(permalink_of("model=smollm2&edition=vllm")) == _budget(permalink_of("edition=nano-vllm-2025-07")) == {}
    )


@pytest.mark.parametrize(
    "name", ["bug", "model", "edition", "compare", "blocks", "block_size", "copies", "step", "abort"]
)
def test_what_an_address_says_is_echoed_in_part_and_visibly(name: str) -> None:
    async def scenario() -> None:
        posted = await stepped()
        for value in ("x" * 30_000, "9" * 30_000, "a,b,c" * 9_000, "%1b[2K%E2%80%AEx" * 2_000):
            said = posted.open(f"prompt=a&{name}={value}")
            assert 0 < len(said) <= MAX_REFUSAL and said.count("x" * 200) == said.count("9" * 200) == 0
            assert readable(said, MAX_REFUSAL) == said
        posted.page.close()

    asyncio.run(scenario())


class TestSliders:
    def varied(self, posted: Posted) -> dict[str, Any]:
        return posted.answers("varied")[-1]

    def opened(self, posted: Posted) -> Any:
        return posted.of("opened")[-1]["arrangement"]["varied"]

    def slide(self, posted: Posted, **changes: int) -> dict[str, Any]:
        posted.page.receive(json.dumps({"type": "vary", "view": "v", "changes": changes}))
        return self.varied(posted)

    def test_another_session_takes_the_place_and_has_its_link(self) -> None:
        posted = Posted()
        posted.open(f"{TWO}&step=1")
        first = posted.state
        assert [one["value"] for one in self.opened(posted)["figures"]] == [24, 4, 2], "before the picture is there"
        found = self.slide(posted, block_size=8, copies=3)
        assert found["error"] == ""
        assert found["varied"]["outcome"][0]["figures"]["steps"] == first.step == 1
        assert [one["type"] for one in posted.of("message")][-2:] == ["full", "varied"]
        query = posted.of("permalink")[-1]["query"]
        assert "block_size=8" in query
        assert "copies=3" in query
        varied = posted.state
        posted.open(query)
        assert posted.state == varied

    def test_the_workload_stays_the_recorded_one_until_something_is_added(self) -> None:
        posted = Posted()
        posted.open(f"{TWO}&step=1")
        self.slide(posted, copies=8)
        found = self.slide(posted, copies=1)
        assert [one["most"] for one in found["varied"]["figures"]] == [48, 16, 16], "of the session that was opened"
        posted.link()
        assert [one["most"] for one in self.varied(posted)["varied"]["figures"]] == [48, 16, 16]
        asyncio.run(posted.command("step"))
        posted.link()
        assert self.varied(posted)["varied"]["outcome"][0]["figures"]["steps"] == 2

    def test_an_impossible_figure_changes_nothing(self) -> None:
        posted = Posted()
        posted.open(f"{TWO}&step=1")
        before = posted.state
        assert "needs" in self.slide(posted, num_blocks=1)["error"]
        assert self.slide(posted, num_blocks="1")["error"] == "the sliders must send integers"  # type: ignore[arg-type]
        assert posted.state == before

    def test_a_scenario_is_named_with_its_figures(self) -> None:
        posted = Posted()
        posted.open("bug=nano-vllm-219")
        assert self.slide(posted, num_blocks=20, block_size=2)["error"] == ""
        query = posted.of("permalink")[-1]["query"]
        assert query == "bug=nano-vllm-219&blocks=20&block_size=2&copies=1"
        varied = posted.state
        assert (posted.open(query), posted.state) == (query, varied)

    def test_without_a_workload_there_are_none(self) -> None:
        posted = Posted()
        for query in ("edition=labengine", "bug=vllm-44409"):
            posted.open(query)
            assert self.opened(posted) is None
        posted.page.receive(json.dumps({"type": "vary", "view": "v", "changes": {"copies": 2}}))
        assert posted.answers("varied") == [], "nothing is said"
