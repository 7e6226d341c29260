"""The real model in a notebook of the site: a button fetches it; until then labs run on the simulated one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

from IPython.display import Markdown, display

from labengine.config import EngineConfig
from labengine.engine.loaded_model import LoadedModel, ModelOptions, load_model, provide_model
from labengine.engine.sources.catalogue import KNOWN_MODELS
from labengine.engine.wasm.model import load_in_page
from labengine.record.wording import readable

NAME = "smollm2"
TITLE = "SmolLM2"
MEGABYTES = round(KNOWN_MODELS[NAME].num_bytes / 1e6)
ABSENT = (
    f"*{TITLE}'s weights are not in this page yet, so this lab runs on the simulated model, where each word is a token "
    "and answers are numbers.*"
)
COMING = f"Loading {TITLE}: {{arrived:.0f}} of {{total:.0f}} MB …"
UNPACKED = f"Unpacking {TITLE} …"
HERE = f"{TITLE} is now in this page: run the notebook again from the top."
FAILED = f"{TITLE} could not be loaded, so labs stay simulated: {{reason}}."
MAX_REASON = 400
"""Most characters of a reason."""

Tell = Callable[[float, float], None]
"""tell(bytes arrived, bytes in all)"""


class ModelOffer:
    """The model's weights: absent, or in this page; and the button that fetches them.

    files: the JavaScript half (widgets/live_page/notebook.ts), imported when a cell first asks for the model.
    """

    def __init__(self, shell: Any, files: Callable[[], Any]) -> None:
        self._shell, self._files = shell, files
        self.is_loaded = self._was_looked_up = False
        self._said_in: int | None = None
        """Number of the last cell with the notice; one cell may make many labs."""
        self._recorded_cell: str | None = None
        """The recorded cell with the button below it; "" if it is below a lab's cell."""

    def stand_in(self, config: EngineConfig, options: ModelOptions) -> LoadedModel:
        """Return a simulated model with these settings, and print a notice once below the cell."""
        if self._said_in != self._shell.execution_count:
            self._said_in, self._recorded_cell = self._shell.execution_count, ""
            display(Markdown(ABSENT))  # type: ignore[no-untyped-call]
            self._show()
        return load_model("simulated", config, replace(options, attention=None))

    def show_below(self, cell: str) -> None:
        """Show the button below a recorded cell, unless it is below another cell."""
        if self._recorded_cell in (None, cell):
            self._recorded_cell = cell
            self._show()

    def _show(self) -> None:
        display(self._box)  # type: ignore[no-untyped-call]

    def awaiting(self, lines: list[str]) -> list[str]:
        """Make the first cell that names the model wait for weights kept by the browser."""
        if self._was_looked_up or not any(NAME in line for line in lines):
            return lines
        return ["await get_ipython().run_line_magic('kept_weights', '')\n", *lines]

    async def take_kept(self) -> None:
        """Load the weights if the browser has kept them, without asking or fetching."""
        self._was_looked_up = True
        try:
            files = await self._files()
            if not files.refusal() and await files.areKept(await files.listed()):
                await self._load(files, lambda *_: None)
        except Exception as error:  # report any error of the site's files beside the button
            self._say_failed(error)

    async def fetch(self) -> None:
        """Fetch and load the weights, and show the progress."""
        self._button.disabled = True
        try:
            files = await self._files()
            if reason := files.refusal():
                raise RuntimeError(reason)
            await self._load(files, self._tell)
        except Exception as error:
            self._say_failed(error)
        else:
            self._button.layout.display = "none"
            self._words.value = HERE
        finally:
            self._button.disabled = False

    async def _load(self, files: Any, tell: Tell) -> None:
        listed = await files.listed()
        got = await files.fetched(listed, tell)
        load_in_page(got.kernels, got.at, got.total, listed.name, listed.digest)
        self.is_loaded = self._was_looked_up = True

    def _tell(self, arrived: float, total: float) -> None:
        words = COMING if arrived < total else UNPACKED
        self._words.value = words.format(arrived=arrived / 1e6, total=total / 1e6)

    def _say_failed(self, error: Exception) -> None:
        message = str(getattr(error, "message", error))
        self._words.value = FAILED.format(reason=readable(message, MAX_REASON))

    @cached_property
    def _words(self) -> Any:
        from ipywidgets import Label

        return Label()

    @cached_property
    def _button(self) -> Any:
        from ipywidgets import Button, Layout

        button = Button(description=f"Download {TITLE} ({MEGABYTES} MB, once)", layout=Layout(width="auto"))
        button.on_click(lambda _: asyncio.ensure_future(self.fetch()))
        return button

    @cached_property
    def _box(self) -> Any:
        from ipywidgets import HBox, Layout

        return HBox([self._button, self._words], layout=Layout(flex_flow="row wrap"))


def offer_model(shell: Any, files: Callable[[], Any]) -> ModelOffer:
    """Let a kernel's labs run on the real model once its weights are loaded, and until then on the simulated one."""
    offer = ModelOffer(shell, files)
    provide_model(NAME, offer.stand_in)
    shell.register_magic_function(lambda _: offer.take_kept(), "line", "kept_weights")
    shell.input_transformers_post.append(offer.awaiting)
    return offer
