from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from differential import kv_events
from kv_batches import CLEARED, payload, prefixes_of, removed, stored
from labengine.vllm.cache_events.attach import kv_events as attached
from labengine.vllm.cache_events.prefixes import CachedPrefixes
from labengine.vllm.cache_events.stream import EventStream, Message

EVIL = "</span><script>alert('\u202e')</script>"


class Tags(HTMLParser):
    """Collects tags and text, and checks that all that opens is closed."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def evil() -> CachedPrefixes:
    events = [
        stored([1], range(4), medium=EVIL, lora_name=EVIL, kv_cache_spec_kind=EVIL, locality=EVIL, ownership=EVIL),
        stored([2], range(4), group_idx=1, kv_cache_spec_kind=EVIL),
        {"type": EVIL},
    ]
    prefixes = prefixes_of(payload(*events))
    prefixes._text_of = lambda token_ids: EVIL
    return prefixes


def test_text_from_engines_and_prompts_is_never_markup(tmp_path: Path) -> None:
    prefixes = evil()
    prefixes.export_html(tmp_path / "page.html")
    for markup in (prefixes.html(), (tmp_path / "page.html").read_text()):
        found = Tags(markup)
        assert found.open == [] and "script" not in found.tags and found.text.count("<script>") >= 5
        assert "\u202e" not in markup
    assert "\u202e" not in str(prefixes) and "\n\n\n" not in str(prefixes)


def test_a_page_runs_and_fetches_nothing(tmp_path: Path) -> None:
    prefixes_of(payload(stored([1], range(4)))).export_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "default-src 'none'; style-src 'unsafe-inline'" in page
    assert not {"script", "img", "link", "iframe", "a"} & set(Tags(page).tags) and "url(" not in page


def test_rows_say_where_when_and_how_often_and_what_is_unknown() -> None:
    text = str(
        prefixes_of(
            payload(stored([1, 2], range(8)), at=3600.0),
            payload(stored([3], [50, 51, 52, 53], parent=1, medium="GPU"), at=3660.0),
            payload(removed([2]), at=3720.0),
        )
    )
    assert "rank 0 · GPU: 2 blocks cached (8 tokens), 0 unknown, 1 gone" in text
    rows = [line for line in text.splitlines() if line.lstrip()[:2] in ("+ ", "- ", "? ")]
    assert rows == [
        "+ 0 1 2 3  (4 tokens, 1 block; rank 0 GPU; stored 01:00:00; hits ≥ 1 of ≥ 2 uses: ≥ 50%)",
        "  + … 50 51 52 53  (4 tokens, 1 block; rank 0 GPU; stored 01:01:00; hits ≥ 0)",
        "  - … 4 5 6 7  (4 tokens, 1 block; rank 0 GPU gone; stored 01:00:00; removed 01:02:00; hits ≥ 0)",
    ]
    for subject in ("requests", "blocks", "hits", "why"):
        assert f"unknown: {subject}: " in text


@pytest.mark.parametrize("seed", kv_events.RECORDED_SEEDS)
def test_the_document_is_json_and_every_block_is_in_one_chain(seed: int) -> None:
    prefixes = attached(kv_events.recording(seed))
    document = json.loads(json.dumps(prefixes.to_dict()))
    assert document["num_chains"] == len(document["chains"]) == len(prefixes.chains())
    assert sum(chain["num_blocks"] for chain in document["chains"]) == len(list(prefixes.cache.contents))
    assert Tags(prefixes.html(max_chains=3)).tags.count("tr") == 2 + 3 + len(document["places"])
    assert len(prefixes.chains(3)) == 3 and f"and {document['num_chains'] - 3:,} more" in prefixes.html(max_chains=3)


def test_a_rank_a_tier_and_a_time_that_are_left_out_are_unknown() -> None:
    silent = stored([1], range(4), medium=None, group_idx=None, kv_cache_spec_kind=None)
    text = str(prefixes_of(payload(silent, at=9e11, rank=None)))
    assert "rank unknown · tier unknown: 1 block cached" in text and "stored unknown" in text


def test_ranks_are_named_with_their_publisher_where_two_have_the_same() -> None:
    def text(*ranks: int) -> str:
        stream = EventStream(("tcp://a:1", "tcp://b:1"))
        for source, rank in enumerate(ranks):
            stream.take(Message(source, 0, payload(stored([1], range(4)), rank=rank)))
        return str(CachedPrefixes(stream, str))

    assert "\nrank 0 · GPU: 1 block" in text(0, 1) and "\nrank 1 · GPU: 1 block" in text(0, 1)
    assert "\nrank 0 at tcp://b:1 · GPU: 1 block" in text(0, 0)


def test_a_cleared_cache_has_only_rows_of_what_is_gone() -> None:
    document = prefixes_of(payload(stored([1], range(4))), payload(CLEARED)).to_dict()
    assert [chain["presence"] for chain in document["chains"]] == ["gone"] and document["places"][0]["tokens"] == 0
