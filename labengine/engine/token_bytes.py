"""Tokens that hold a part of a character: how to read them."""

from __future__ import annotations

import re
from functools import cache

_BYTE_FALLBACK = re.compile(r"<0x([0-9A-F]{2})>")


def readable_fragment(token: str) -> str:
    r"""Return a token in its vocabulary's spelling, with whole characters as text and other bytes as \xe2."""
    if fallback := _BYTE_FALLBACK.fullmatch(token):
        return f"\\x{fallback[1].lower()}"
    alphabet = byte_of_character()
    if not all(character in alphabet for character in token):
        return token
    return bytes(alphabet[character] for character in token).decode("utf-8", "backslashreplace")


@cache
def byte_of_character() -> dict[str, int]:
    """Byte-level BPE's alphabet: a printable byte stands for itself, the n-th of the others is chr(256 + n)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}
