"""Put a known model with random weights into labengine's cache, for tests on a machine that cannot fetch the real one.

    LABENGINE_CACHE=FOLDER python known_models.py NAME FILES      (FILES: a folder with its config.json and tokenizer)

Norms differ from each other, so that a wrong one is noticed. The last norm makes the largest logit about as large as
the real model's, so that the tests' tolerances mean the same.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from labengine.engine.sources.cache import cached_dir
from labengine.engine.sources.catalogue import KNOWN_MODELS

LARGEST_LOGIT = 30.0
"""About SmolLM2's largest logit."""
SPREAD = 0.3
"""Norms' weights are 1, plus or minus this."""


def put_into_cache(name: str, files: Path) -> Path:
    """Return the model's directory; make it from config and tokenizer unless the cache has it. Raises KeyError."""
    target = cached_dir(KNOWN_MODELS[name])
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".making-{name}-", dir=target.parent) as work:
            made = Path(work) / "model"
            save_random(files, made)
            os.rename(made, target)
    return target


def save_random(files: Path, directory: Path) -> None:
    """Save random bfloat16 weights for the config in `files`, with all of `files` beside them."""
    import transformers

    config = transformers.AutoConfig.from_pretrained(files)
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        scale_logits(model)
    model.save_pretrained(directory, max_shard_size="20GB")
    for file in files.iterdir():
        shutil.copy(file, directory / file.name)


@torch.no_grad()
def scale_logits(model: Any) -> None:
    """Give the norms random weights, and scale the last one so that the largest logit of a text is LARGEST_LOGIT."""
    norms = [parameter for name, parameter in model.named_parameters() if "norm" in name]
    one = 1 - norms[0].float().mean().item()  # Gemma's norms multiply by 1 + weight, and start at 0
    for norm in norms:
        norm.add_(torch.empty_like(norm).uniform_(-SPREAD, SPREAD))
    last = model.model.norm.weight
    largest = model(torch.arange(5, 69).unsqueeze(0)).logits.abs().max().item()
    last.copy_((last + one) * (LARGEST_LOGIT / largest) - one)


def main() -> None:
    name, files = sys.argv[1], Path(sys.argv[2])
    print(put_into_cache(name, files))


if __name__ == "__main__":
    main()
