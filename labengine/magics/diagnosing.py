"""%lab doctor: why requests hit or missed the prefix cache."""

from __future__ import annotations

from labengine.commands import TOKENIZER, TOP, TWICE, argument, command
from labengine.magics.current_lab import CurrentLab
from labengine.magics.words import display
from labengine.vllm.prefix_doctor.doctor import doctor as examined

VARIABLE = "diagnosis"


@command(
    argument("place", nargs="?", metavar="FILE", help="a file, or the folder of LABENGINE_TAP; without it the lab"),
    TOP,
    TOKENIZER,
    TWICE,
)
def doctor(
    current: CurrentLab, place: str | None = None, top: int = 10, tokenizer: str | None = None, twice: bool = False
) -> None:
    """Tell why each request hit or missed the prefix cache, and which prefixes would have saved most."""
    diagnosis = examined(current.recorded if place is None else place, top=top, tokenizer=tokenizer)
    current.store(VARIABLE, diagnosis)
    display(diagnosis)
    if twice:
        display(diagnosis.with_pools())
