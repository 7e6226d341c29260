"""In the place of JupyterLite's piplite, which asks PyPI: this site has the packages that it needs, and no others."""

REFUSAL = "this page installs no packages: it has those that its notebooks need. On your machine, `make lab` can"


async def install(*names: object, **options: object) -> None:
    """Refuse. The kernel calls this for packages that it needs and that were not loaded."""
    raise RuntimeError(f"{names}: {REFUSAL}")
