"""A model directory without a tokenizer: everything works by token ids, and text is the ids."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import labengine
from labengine.config import ConfigError
from labengine.lab import Lab

PROMPT = [3, 4, 5, 6, 7]


@pytest.fixture
def lab(tiny_llama: Path) -> Iterator[Lab]:
    with Lab(tiny_llama, num_blocks=32, block_size=4) as lab:
        yield lab


def text_of(token_ids: tuple[int, ...]) -> str:
    return "".join(f" {token_id}" for token_id in token_ids)


def test_text_is_the_ids(lab: Lab) -> None:
    output = lab.generate(PROMPT, max_tokens=5, ignore_eos=True)[0]
    assert len(output.token_ids) == 5 and output.text == text_of(output.token_ids)
    request_id = lab.add(token_ids=PROMPT, max_tokens=5, ignore_eos=True)
    assert list(lab.stream(request_id)) == [text_of((token_id,)) for token_id in output.token_ids]
    assert lab.output(request_id).text == output.text
    assert lab.token_text(7) == " 7"


def test_text_is_refused_before_anything_changes(lab: Lab) -> None:
    before = lab.snapshot()
    uses = (lambda: lab.add("Once"), lambda: lab.chat([{"role": "user", "content": "x"}]), lambda: lab.encode("x"))
    for use in (*uses, lambda: lab.generate("Once")):
        with pytest.raises(ConfigError, match=r"has no tokenizer \(tokenizer.json, .*add\(token_ids=\[\.\.\.\]\)"):
            use()
    assert lab.snapshot() == before


def test_it_is_shown_kept_and_written_down(lab: Lab, tmp_path: Path) -> None:
    lab.generate([PROMPT, PROMPT], max_tokens=5)
    assert "# " in lab.to_code() and "token_ids=[3, 4, 5, 6, 7]" in lab.to_code()
    compile(lab.to_code(), "session", "exec")
    assert str(lab) and lab.show() is not None
    lab.export_html(tmp_path / "lab.html")
    lab.save(tmp_path / "run.lab")
    trace = labengine.open(tmp_path / "run.lab")
    assert trace.snapshot() == lab.snapshot() and trace.token_text(3) == " 3"
    trace.export_html(tmp_path / "trace.html")
    assert all((tmp_path / name).stat().st_size > 10_000 for name in ("lab.html", "trace.html"))


def test_a_fork_and_an_attention_speak_ids_too(lab: Lab) -> None:
    request_id = lab.add(token_ids=PROMPT, max_tokens=3, ignore_eos=True)
    lab.run()
    with lab.fork() as other:
        assert other.output(request_id) == lab.output(request_id)
    assert lab.why(block=0)


def test_through_time_and_beside_another_edition(lab: Lab) -> None:
    request_id = lab.add(token_ids=PROMPT, max_tokens=4, ignore_eos=True)
    lab.run()
    before = lab.output(request_id)
    lab.goto(2)
    lab.rewind(1)
    lab.run()
    assert lab.output(request_id) == before
    with labengine.compare(lab, lab.fork(edition="vllm")) as both:
        number = both.add(token_ids=PROMPT, max_tokens=4, ignore_eos=True)
        both.run()
        assert [side.output(number).text for side in (both.left, both.right)] == [before.text] * 2
        assert both.show() is not None
