"""A kernel of the site's notebooks, without a browser: the offer of the real model, and cells that do not run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import RichOutput, capture_output
from traitlets.config import Config

from labengine import Lab
from labengine.engine import loaded_model
from labengine.engine.wasm.runner import Floats
from labengine.live_page import model_offer
from labengine.live_page.model_offer import ABSENT, HERE, ModelOffer, offer_model
from labengine.live_page.recorded_cells import RecordedCells, code_digest
from labengine.magics import current_lab


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    """An IPython of this process, and no model provided to it but by the test."""
    InteractiveShell.clear_instance()
    yield InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
    InteractiveShell.clear_instance()


@pytest.fixture(autouse=True)
def provided(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The models that are provided while a test lasts."""
    models: dict[str, Any] = {}
    monkeypatch.setattr(loaded_model, "_PROVIDED", models)
    return models


class Files:
    """The JavaScript half of a site. is_kept: whether the browser has its files from before."""

    def __init__(self, *, is_kept: bool = False, trouble: str = "", reason: str = "") -> None:
        self.is_kept, self.trouble, self.reason = is_kept, trouble, reason
        self.words: list[str] = []
        self.num_fetched = 0

    async def imported(self) -> Files:
        return self

    def refusal(self) -> str:
        return self.reason

    async def listed(self) -> Any:
        return SimpleNamespace(name="smollm2", digest="d")

    async def areKept(self, listed: Any) -> bool:
        return self.is_kept

    async def fetched(self, listed: Any, tell: Any) -> Any:
        self.num_fetched += 1
        for arrived in (1e6, 98e6):
            tell(arrived, 98e6)
        if self.trouble:
            raise RuntimeError(self.trouble)
        return SimpleNamespace(kernels=None, at=1, total=98_000_000)


def offered(shell: Any, files: Files, monkeypatch: pytest.MonkeyPatch) -> ModelOffer:
    """The offer in a shell; a model that is loaded there is a simulated one whose name tells."""
    monkeypatch.setattr(model_offer, "load_in_page", lambda *_: loaded_model.provide_model("smollm2", "loaded"))  # type: ignore[arg-type]
    return offer_model(shell, files.imported)


def run(shell: InteractiveShell, source: str) -> list[Any]:
    """Run a cell; return what it displays."""
    with capture_output() as captured:
        shell.run_cell(source, store_history=True).raise_error()
    return list(captured.outputs)


def widgets(outputs: list[RichOutput]) -> int:
    return sum("application/vnd.jupyter.widget-view+json" in output.data for output in outputs)


START = 'from labengine import Lab\nlab = Lab("smollm2", num_blocks=8, block_size=4, attention="torch", device="cpu")'


def test_without_weights_a_lab_is_simulated_and_one_sentence_a_cell_says_so(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered(shell, Files(), monkeypatch)
    outputs = run(shell, f'{START}\nother = Lab("smollm2", num_blocks=8, block_size=4)')
    assert outputs[0].data["text/markdown"] == ABSENT and widgets(outputs) == 1
    lab: Lab = shell.user_ns["lab"]
    assert lab.add("two words", max_tokens=1) == 0 and lab.status()["model"].startswith("simulated")
    assert widgets(run(shell, START)) == 1, "the next cell says it too"


def test_lab_start_can_be_run_again(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    offered(shell, Files(), monkeypatch)
    monkeypatch.setattr(current_lab, "model_path", lambda name: pytest.fail(f"{name} is looked for on a disk"))
    run(shell, "%load_ext labengine")
    run(shell, "%lab start --model smollm2 --blocks 8 --block-size 4")
    first = shell.user_ns["lab"]
    run(shell, "%lab start --model smollm2 --blocks 8 --block-size 4")
    assert shell.user_ns["lab"] is not first


def test_kept_weights_are_loaded_before_the_first_cell_that_names_them(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch, provided: dict[str, Any]
) -> None:
    files = Files(is_kept=True)
    offer = offered(shell, files, monkeypatch)
    run(shell, "1 + 1")
    assert files.num_fetched == 0
    run(shell, 'name = "smollm2"')
    assert offer.is_loaded and provided["smollm2"] == "loaded"
    run(shell, 'name = "smollm2"')
    assert files.num_fetched == 1


def test_the_button_tells_how_far_it_is_and_why_it_failed(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Files(trouble="part1 did not arrive intact")
    offer = offered(shell, files, monkeypatch)
    heard: list[str] = []
    offer._words.observe(lambda change: heard.append(change.new), "value")
    asyncio.run(offer.fetch())
    assert heard == [
        "Loading SmolLM2: 1 of 98 MB …",
        "Unpacking SmolLM2 …",
        "SmolLM2 could not be loaded, so labs stay simulated: part1 did not arrive intact.",
    ]
    assert not offer._button.disabled and not offer.is_loaded
    files.reason = "this browser has no WebAssembly SIMD"
    asyncio.run(offer.fetch())
    assert heard[-1].endswith("stay simulated: this browser has no WebAssembly SIMD.") and files.num_fetched == 1
    files.reason = files.trouble = ""
    asyncio.run(offer.fetch())
    assert heard[-1] == HERE and offer.is_loaded


CELL = "import json, torch_of_another_world\nfrom math import tau\nprint(torch_of_another_world.ones(2))"
RECORDED = [
    {"output_type": "stream", "name": "stdout", "text": "ones\n"},
    {"output_type": "display_data", "data": {"text/html": "<b>1</b>"}, "metadata": {}},
]


def test_a_cell_shows_its_recorded_outputs_with_one_sentence_and_does_the_imports_that_it_can(
    shell: InteractiveShell,
) -> None:
    code = f"{CELL}\nfrom math import tau as turn"
    recorded = {code_digest(code): RECORDED, code_digest("x = 1"): []}
    cells = RecordedCells(shell, lambda: recorded, ModelOffer(shell, Files().imported))
    shell.register_magic_function(cells.needs, "cell", "needs")
    with capture_output() as captured:
        shell.run_cell(f"%%needs torch\n{code}\n").raise_error()
    sentence, html = captured.outputs
    assert sentence.data["text/markdown"].startswith("*This cell needs torch")
    assert captured.stdout == "ones\n" and html.data == {"text/html": "<b>1</b>"}
    assert shell.user_ns["turn"] > 6 and "torch_of_another_world" not in shell.user_ns
    [silent] = run(shell, "%%needs torch\nx = 1")
    assert "torch" in silent.data["text/markdown"] and "x" not in shell.user_ns
    [changed] = run(shell, "%%needs torch\nx = 2")
    assert changed.data["text/markdown"] not in (silent.data["text/markdown"], sentence.data["text/markdown"])


def test_a_cell_that_needs_the_model_has_the_button_and_runs_once_the_model_is_here(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer = offered(shell, Files(), monkeypatch)
    shell.register_magic_function(RecordedCells(shell, dict, offer).needs, "cell", "needs")
    first, second = (f"%%needs smollm2\nnumber = {number}" for number in (7, 8))
    assert [widgets(run(shell, cell)) for cell in (first, second, first)] == [1, 0, 1], "one cell has it, run again too"
    assert "number" not in shell.user_ns
    asyncio.run(offer.fetch())
    assert run(shell, first) == [] and shell.user_ns["number"] == 7


def test_floats_have_the_size_of_a_number() -> None:
    assert Floats(bytes(8), (2,)).element_size() == 4
