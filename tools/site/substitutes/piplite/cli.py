"""What becomes of `%pip install` in a cell."""

from piplite import REFUSAL


async def get_transformed_code(words: list[str]) -> str:
    """Return the code that takes the place of the line: it refuses."""
    return f"raise RuntimeError({REFUSAL!r})"
