"""Replaces JupyterLite's piplite, which asks PyPI: this site has only the packages it needs."""

REFUSAL = "this page cannot install packages; it has those that its notebooks need. On your machine, `make lab` can"


async def install(*names: object, **options: object) -> None:
    """Refuse. The kernel calls this for required packages that have not been loaded."""
    raise RuntimeError(f"{names}: {REFUSAL}")
