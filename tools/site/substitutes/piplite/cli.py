"""The replacement of `%pip install` in a cell."""

from piplite import REFUSAL


async def get_transformed_code(words: list[str]) -> str:
    """Return the code that replaces the line, which refuses."""
    return f"raise RuntimeError({REFUSAL!r})"
