"""The table of families, by model_type in config.json."""

from __future__ import annotations

from labengine.engine.families import bamba, gemma3, granite, lfm2, llama, mixtral, phi3, qwen3, qwen3_next
from labengine.engine.layers import Family

FAMILIES: dict[str, Family] = {
    **llama.FAMILIES,
    **mixtral.FAMILIES,
    **qwen3.FAMILIES,
    **gemma3.FAMILIES,
    **phi3.FAMILIES,
    **lfm2.FAMILIES,
    **bamba.FAMILIES,
    **granite.FAMILIES,
    **qwen3_next.FAMILIES,
}
