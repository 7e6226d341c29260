"""Each broken copy of vllm_upstream_broken as a file that changes vLLM where it is executed."""

from __future__ import annotations

from pathlib import Path


def patch_of(name: str) -> str:
    """Return the text; it needs vLLM alone."""
    text = Path(__file__).with_name("vllm_upstream_broken.py").read_text()
    return f"{text}\n\nfor owner, method, changed in BROKEN[{name!r}]:\n    setattr(owner, method, changed)\n"
