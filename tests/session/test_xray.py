"""The attention X-ray on the real model, and its figure."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from labengine import Lab
from labengine.config import ConfigError
from labengine.engine.xray import BlockAttention
from labengine.session.xray import attention_of, xray

PROMPT = "The library had nine floors, and on each of them somebody was looking for the same book. The book was"


@pytest.fixture(scope="module")
def expected() -> Iterator[list[np.ndarray]]:
    """The attention of the prompt in transformers' plain implementation: per layer [heads, queries, keys]."""
    from transformers import AutoModelForCausalLM

    from labengine import model_path
    from labengine.engine.tokenizer import HuggingFaceTokenizer

    directory = model_path("smollm2")
    model = AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, local_files_only=True, attn_implementation="eager"
    ).eval()
    ids = HuggingFaceTokenizer(directory).encode(PROMPT)
    with torch.inference_mode():
        output = model(torch.tensor([ids]), output_attentions=True, use_cache=False)
    yield [weights[0].numpy() for weights in output.attentions]


def test_it_shows_what_transformers_attends_to(smollm2: Lab, expected: list[np.ndarray]) -> None:
    first = smollm2.add(PROMPT, max_tokens=4)
    second = smollm2.add(PROMPT, max_tokens=4)
    smollm2.step()
    num_prompt = expected[0].shape[1]
    for request in (first, second):
        for position in (3, 4, num_prompt - 1):
            found, token_ids = attention_of(smollm2.session, request, position)
            rows = np.stack([layer[:, position, : position + 1] for layer in expected])
            by_block = np.add.reduceat(rows, range(0, position + 1, 4), axis=2)
            assert found.source == "pool" and len(token_ids) == num_prompt + 1
            np.testing.assert_allclose(found.mass, by_block, atol=1e-4)
            np.testing.assert_allclose(found.mass.sum(2), 1, atol=1e-5)
    tables = smollm2.snapshot().requests
    assert found.block_ids[0] == tables[second].block_tables[0][: len(found.block_ids[0])]
    smollm2.run()
    anew, _ = attention_of(smollm2.session, second, num_prompt - 1)
    assert anew.source == "recomputed"
    np.testing.assert_allclose(anew.mass, by_block, atol=1e-4)


def test_the_figure_has_every_head_and_chooses_blocks(smollm2: Lab) -> None:
    request = smollm2.add(PROMPT, max_tokens=4)
    smollm2.step()
    figure = xray(smollm2.session, print, request=request)
    steps = figure.layout.sliders[0].steps
    assert [step.label for step in steps] == ["mean", *map(str, range(9))]
    attention, token_ids = attention_of(smollm2.session, request)
    assert attention.position == len(token_ids) - 1, "the newest token, whose K and V no slot holds yet"
    heat = np.array(figure.data[1].z, dtype=float)
    np.testing.assert_allclose(heat, attention.mass.mean(1), atol=1e-3)
    np.testing.assert_allclose(np.array(steps[3].args[0]["z"][0], dtype=float), attention.mass[:, 2], atol=1e-3)
    assert figure.words().startswith("What “") and "#" in figure.words()
    selected: list[int] = []
    figure._select = selected.append
    figure._select_clicked(figure.data[1], type("Points", (), {"point_inds": [(4, 2)]}), None)
    figure._select_clicked(figure.data[0], type("Points", (), {"point_inds": [1]}), None)
    assert selected == [attention.block_ids[0][2], attention.block_ids[0][1]]
    figure.close()


def test_what_cannot_be_shown_is_refused(smollm2: Lab) -> None:
    request = smollm2.add("Hello", max_tokens=2)
    with pytest.raises(KeyError, match="no request 7"):
        xray(smollm2.session, print, request=7)
    with pytest.raises(IndexError, match="positions 0 to"):
        xray(smollm2.session, print, request=request, position=99)
    with Lab("simulated", num_blocks=8) as lab, pytest.raises(ConfigError, match="smollm2"):
        xray(lab.session, print)


def made_up() -> BlockAttention:
    """Layers 1 and 4 of a model, the second with a window of 4 tokens; blocks of 2, the token at position 6 looks."""
    mass = np.zeros((2, 2, 4), dtype=np.float32)
    mass[0], mass[1] = [[0.7, 0.1, 0.1, 0.1], [0.1, 0.1, 0.7, 0.1]], [[0, 0.2, 0.3, 0.5]] * 2
    return BlockAttention(6, 2, mass, (1, 4), ((5, 1, 0, 3), (-1, 4, 7, 2)), (0, 1), (None, 4), "pool")


def test_windows_leave_gaps_and_groups_are_named_by_position() -> None:
    from labengine_widgets.pictures.xray import drawn, figure_text  # not above: plotly takes each worker a second

    texts = [" once", " upon", " a", " <b>time</b>", " in", " a", " village"]
    figure = drawn(made_up(), texts, "title")
    heat = figure.data[1]
    assert heat.z[1][0] is None and heat.z[0][0] == pytest.approx(0.4)
    assert figure.layout.xaxis2.ticktext[1].startswith("2–3<br>")
    assert figure.layout.yaxis2.ticktext == ("1", "4")
    assert heat.text[1][2].startswith("layer 4 · #7, positions 4 to 5")
    assert heat.text[1][0].startswith("layer 4 · positions 0 to 1")
    spoken = [note for row in heat.text for note in row]
    assert not any("<b>" in text for text in (*spoken, *figure.data[0].customdata, *figure.layout.xaxis2.ticktext))
    assert figure_text(made_up(), texts, "title").splitlines()[0] == "title"
