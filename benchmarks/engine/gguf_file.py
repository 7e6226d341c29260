"""The 4-bit file that a known model's weights come from: llama.cpp reads no other."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from labengine.engine.sources import KNOWN_MODELS
from labengine.engine.sources.build import fetch_gguf
from labengine.engine.sources.cache import cache_root


def gguf_of(name: str) -> Path:
    """Fetched on first use (98 MB for smollm2), and kept in the cache."""
    if name not in KNOWN_MODELS:
        raise SystemExit(f"llama.cpp is measured on one of {', '.join(KNOWN_MODELS)}: only they come as a GGUF")
    model = KNOWN_MODELS[name]
    target = cache_root() / "gguf" / f"{name}-{model.sha256[:12]}.gguf"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=target.parent) as work:
            fetch_gguf(model, Path(work), lambda _: None).replace(target)
    return target
