"""Text for readers: requests A, B, C; blocks #0, #1; counts, lists, and text that is safe to show."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from labengine.record.hidden_text import with_signs
from labengine.record.snapshot import GroupState

HASH_DIGITS = 8
"""Hexadecimal digits shown of a hash."""


def request_name(request_id: int) -> str:
    """Return a request's name: A to Z, then AA, AB ..."""
    name, number = "", request_id + 1
    while number:
        number, digit = divmod(number - 1, 26)
        name = chr(ord("A") + digit) + name
    return name


def block_name(block_id: int) -> str:
    """Return a block's name: #7."""
    return f"#{block_id}"


def block_names(block_ids: Iterable[int]) -> str:
    """Return blocks' names as a list, each once: '#0, #1 and #2'."""
    return listed(map(block_name, dict.fromkeys(block_ids)))


def node_name(node_id: int) -> str:
    """Return the name of a node of the prefix tree."""
    return f"node {node_id}" if node_id else "the root"


def node_names(node_ids: Sequence[int]) -> str:
    """Return nodes as a list: "nodes 4, 2 and 1"."""
    return f"node{'s' * (len(node_ids) > 1)} {listed(map(str, node_ids))}"


def entry_name(request_id: int, group: int, index: int) -> str:
    """Return the name of a block table's entry, counted from 0: "A's table[2]", "A's table[2] of group 1"."""
    return f"{request_name(request_id)}{entry_suffix(group, index)}"


def entry_suffix(group: int, index: int) -> str:
    """Return the name of an entry as it follows its request's name: "'s table[2] of group 1"."""
    return f"'s table[{index}]{group_suffix(group)}"


def group_suffix(group: int) -> str:
    """Return ' of group 1'; empty for group 0, most models' only one."""
    return f" of group {group}" if group else ""


def hash_name(block_hash: bytes) -> str:
    """Return the first digits of a hash."""
    return block_hash.hex()[:HASH_DIGITS] + "…"


def group_name(groups: Sequence[GroupState], group: int) -> str:
    """Return 'full group' or 'window group', numbered from 1 if there are several groups of the kind."""
    kind = groups[group].kind
    alike = [i for i, other in enumerate(groups) if other.kind == kind]
    number = f" {alike.index(group) + 1}" if len(alike) > 1 else ""
    return f"{'window' if kind == 'sliding_window' else kind} group{number}"


def readable(text: str, limit: int = 160) -> str:
    """Return text of unknown origin as one visible line: line ends as signs, other hidden characters as dots."""
    return with_signs(text) if len(text) <= limit else with_signs(text[: limit - 1]) + "…"


def visible(text: str) -> str:
    """Return text of unknown origin with its line ends and tabs, and signs or dots for other hidden characters."""
    return with_signs(text, kept="\n\t")


def joined(tokens: Sequence[str]) -> str:
    """Return tokens as running text. The simulated model's tokens are numbers, which need a space between them."""
    return " ".join(tokens) if all(token.isdigit() for token in tokens) else spelled(tokens)


def spelled(tokens: Iterable[str]) -> str:
    r"""Return the text of tokens, joining characters whose bytes are spread over several tokens.

    Such tokens read as \xf0\x9f and \x98\x80. Bytes that do not form a character stay unchanged.
    """
    parts: list[bytes | str] = []
    for token in tokens:
        for number, part in enumerate(_BYTES.split(token) if "\\x" in token else [token]):
            if number % 2 and parts and isinstance(parts[-1], bytes):
                parts[-1] += bytes.fromhex(part.replace("\\x", ""))
            elif part:
                parts.append(bytes.fromhex(part.replace("\\x", "")) if number % 2 else part)
    return "".join(part if isinstance(part, str) else part.decode("utf-8", "backslashreplace") for part in parts)


_BYTES = re.compile(r"((?:\\x[89a-f][0-9a-f])+)")
"""Escaped bytes of a character that a token has only in part."""


def listed(words: Iterable[str], limit: int = 6) -> str:
    """Return words as a list, '#0, #1 and #2'; beyond `limit` words, only the first two and the last."""
    return "".join(separated(words, limit))


def separated(words: Iterable[str], limit: int = 6) -> list[str]:
    """Return the words and separators of such a list: ['#0', ', ', '#1', ' and ', '#2']."""
    words = list(words)
    if len(words) > limit:
        return [words[0], ", ", words[1], " … ", words[-1]]
    between = [", "] * (len(words) - 2) + [" and "] * (len(words) > 1) + [""]
    return [part for pair in zip(words, between, strict=True) for part in pair] if words else ["nothing"]


def counted(number: int, noun: str) -> str:
    """Return a number and its noun: '1 block', '3 blocks', '1,024 table entries'."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """Return a noun's plural: 'blocks', 'hashes', 'entries'."""
    if re.search("[^aeiou]y$", noun):
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "sh", "ch", "x")) else f"{noun}s"
