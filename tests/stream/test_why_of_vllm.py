"""Why? on a stream of vLLM names vLLM's methods, with the file and line of that version, and none of labengine's."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

import labengine
from differential import vllm_streams
from labengine import events as ev
from labengine_widgets.why import answers_along, why
from recorded_files import written

SEEDS = (2, 5)
METHOD = re.compile(r"\b[A-Z]\w+\.[a-z_]\w*")
PLACE = re.compile(r"vllm/v1/core/[\w/]+\.py, line \d+, vllm 0\.32\.0")


@pytest.mark.parametrize("seed", SEEDS)
def test_every_answer_names_vllms_own_methods_and_their_lines(seed: int, tmp_path: Path) -> None:
    _, items = list(vllm_streams.read())[seed]
    methods = next(item["header"] for item in items if "header" in item)["methods"]
    places = {
        f"{one['class']}.{one['method']}": f"{one['module'].replace('.', '/')}.py, line {one['line']}, vllm 0.32.0"
        for one in methods.values()
    }
    with labengine.attach(written(items, tmp_path)) as trace:
        source, named = trace.view_source(), Counter[str]()
        for carried in answers_along(trace.timeline, source.seams(), source.engine_id):
            answer = carried["answer"]
            texts = (answer["question"], answer["answer"], *(link["sentence"] for link in answer["links"]))
            assert {name for text in texts for name in METHOD.findall(text)} <= set(places), answer
            for link in answer["links"]:
                if link["seam"] is not None:
                    assert places[link["seam"]] == link["place"]
                    named[link["seam"]] += 1
        assert len(named) >= 10 and set(named) <= set(places)


def test_an_event_without_a_method_of_vllms_names_none(tmp_path: Path) -> None:
    """Slots that are written follow from the tables: no method of vLLM's decides them."""
    _, items = next(iter(vllm_streams.read()))
    with labengine.attach(written(items, tmp_path)) as trace:
        source, timeline = trace.view_source(), trace.timeline
        number = next(i for i, event in enumerate(timeline.events()) if isinstance(event, ev.SlotsWritten))
        answer = why(timeline, {"event": number}, seams=source.seams())
        assert all(link.seam is None or link.place for link in answer.links)
        assert "SlotsWritten" not in source.seams()


def test_the_text_and_the_html_have_file_and_line(tmp_path: Path) -> None:
    _, items = next(iter(vllm_streams.read()))
    with labengine.attach(written(items, tmp_path)) as trace:
        events = enumerate(trace.timeline.events())
        number, request_id = next((i, one.request_id) for i, one in events if isinstance(one, ev.BlockAllocated))
        answer, name = trace.why(event=number), trace.request_names[request_id]
        for text in (" ".join(str(answer).split()), answer._repr_html_()):
            assert "BlockPool.get_new_blocks" in text and PLACE.search(text) and f"= {name}" in text


def test_drafts_are_explained_by_the_step_that_computed_them_not_by_the_one_scheduled_meanwhile(tmp_path: Path) -> None:
    runs = vllm_streams.read(vllm_streams.KINDS_PATH)
    items = next(items for workload, items in runs if workload["async"] and workload.get("speculation"))
    num_found = 0
    with labengine.attach(written(items, tmp_path)) as trace:
        assert "AsyncScheduler, speculative decoding" in trace.title
        events = [*trace.timeline.events()]
        for number, event in enumerate(events):
            if not isinstance(event, ev.DraftsJudged):
                continue
            end = next(i for i in range(number, len(events)) if isinstance(events[i], ev.StepEnded)) + 1
            answer = why(trace.timeline, {"request": event.request_id, "about": "drafts"}, moment=end)
            causes = [events[link.moment - 1] for link in answer.links]
            position = next(one.position for one in events[number:] if _is_token_of(one, event.request_id))
            for cause in causes:
                if isinstance(cause, ev.RequestScheduled):
                    num_found += 1
                    num_judged = event.num_accepted + event.num_rejected
                    assert cause.start + cause.num_tokens == position + num_judged, answer
    assert num_found > 10


def _is_token_of(event: ev.Event, request_id: int) -> bool:
    return isinstance(event, ev.TokenSampled) and event.request_id == request_id
