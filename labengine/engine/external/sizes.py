"""Amounts as people read them."""

from __future__ import annotations


def readable_bytes(num_bytes: int) -> str:
    """1536 -> 1.5 KiB."""
    size = float(num_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"


def readable_blocks(num_blocks: int) -> str:
    """1 block, 1,200 blocks."""
    return f"{num_blocks:,} block{'' if num_blocks == 1 else 's'}"
