"""Text of unknown origin stays plain text wherever a lab is shown."""

from __future__ import annotations

import pytest

from labengine.lab import Lab

NASTY = (
    "<script>alert(1)</script> <img src=x onerror=alert(2)> </text></svg> ]]> &amp; \"quoted' "
    "<b>bold</b> \x1b[31mred\x1b[0m \u202eright to left"
)


@pytest.mark.parametrize("model", ["simulated", "smollm2"])
def test_a_prompt_of_html_and_script_stays_plain_text(model: str, request: pytest.FixtureRequest) -> None:
    is_real = model == "smollm2"
    lab: Lab = request.getfixturevalue("smollm2") if is_real else Lab("simulated", num_blocks=64, block_size=4)
    request_id = lab.add(NASTY, max_tokens=2)
    ids = lab.snapshot().requests[request_id].token_ids
    assert "<script>alert(1)</script>" in "".join(map(lab.token_text, ids))
    lab.run(until=lambda lab: lab.snapshot().step == 1)
    assert_harmless(lab)
    lab.run()
    assert lab.check() == []
    if not is_real:
        lab.close()


def assert_harmless(lab: Lab) -> None:
    """Every output of a lab that a browser or a terminal shows."""
    from xml.etree import ElementTree

    bundle = lab._repr_mimebundle_()[0]
    svg = bundle["image/svg+xml"]
    elements = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(svg).iter()}
    assert not elements & {"script", "img", "b", "foreignObject"} and "alert" in svg
    for text in (bundle["text/plain"], repr(lab), svg):
        assert "<script" not in text and "<img" not in text
        assert "\x1b" not in text and "\u202e" not in text
    assert not any(name.startswith(("text/html", "application/javascript")) for name in bundle)
