"""The first two layers of SmolLM2, with its embedding and its tokenizer: every size but one is that of the whole."""

from __future__ import annotations

import json
import re
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file

from labengine import model_path


def write_first_layers(folder: Path) -> Path:
    """Write them as a model directory into an empty folder; returns the folder."""
    complete = model_path("smollm2")
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        (folder / name).write_bytes((complete / name).read_bytes())
    settings = json.loads((complete / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(settings | {"num_hidden_layers": 2}), encoding="utf-8")
    with safe_open(complete / "model.safetensors", "pt") as tensors:
        kept = [name for name in tensors.keys() if re.match(r"model\.(layers\.[01]|embed_tokens|norm)\.", name)]  # noqa: SIM118
        save_file({name: tensors.get_tensor(name) for name in kept}, folder / "model.safetensors")
    return folder
