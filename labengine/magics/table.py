"""Parsing, help and completion of %lab lines, from the table of commands (labengine.commands)."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import cache
from itertools import chain
from textwrap import wrap
from typing import Any, NoReturn

from IPython.core.error import UsageError

from labengine.commands import LAB, Argument, Command

_WORD = re.compile(r"""(["'])(?P<quoted>.*?)\1(?=\s|$)|(?P<bare>\S+)""", re.DOTALL)


_WIDTH = 110
"""Line length of an explanation."""
_MOST_PRINTED = 30
"""Most values of an argument printed in its help; completion offers all."""


def words(line: str) -> list[str]:
    """Split at white space. Quotes group words; an apostrophe inside a word is an ordinary character."""
    return [match["quoted"] if match["bare"] is None else match["bare"] for match in _WORD.finditer(line)]


def asks_for_help(entered: Sequence[str]) -> bool:
    """Return True if the first or the last word is --help or -h."""
    return bool(entered) and not {entered[0], entered[-1]}.isdisjoint(("--help", "-h"))


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the clause to follow 'no ...': the nearest match, or all known words."""
    known = list(known)
    near = [name for name in known if name.startswith(word)] or get_close_matches(word, known, n=1)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"choose from {', '.join(known)}" if known else "it takes no options"


class LineReader(argparse.ArgumentParser):
    """Parser of the words after a magic; it returns only given arguments. Raises UsageError for wrong ones."""

    def __init__(self, call: str, arguments: Sequence[Argument]) -> None:
        super().__init__(prog="", add_help=False, allow_abbrev=False)
        self.options = tuple(argument.name for argument in arguments if argument.name.startswith("-"))
        self._offers = {argument.name: argument.offers for argument in arguments}
        self._actions_by_name = {a.name: self.add_argument(*a.short, a.name, **a.settings) for a in arguments}
        self.called = call
        self.call = f"{call} {' '.join(self.format_usage().removeprefix('usage:').split())}".strip()

    def read(self, entered: Sequence[str]) -> dict[str, Any]:
        """Convert words to keyword arguments; options may be anywhere."""
        known, unknown = self.parse_known_intermixed_args(entered)
        if unknown and unknown[0].startswith("-"):
            self.error(f"no option {unknown[0]}; {nearest(unknown[0], self.options)}")
        if unknown:
            self.error(f"unexpected word {unknown[0]!r}")
        return {name: value for name, value in vars(known).items() if value is not None}

    def explanation(self) -> str:
        """Return the usage, and a line per argument: its help and its values."""
        lines = wrap(self.call, _WIDTH, subsequent_indent=" " * 12, break_on_hyphens=False)
        for name, action in self._actions_by_name.items():
            value = f" {action.metavar}" if name.startswith("-") and action.metavar else ""
            offers = ", ".join(self._offers[name]) if len(self._offers[name]) <= _MOST_PRINTED else ""
            text = " ".join(filter(None, [action.help, f"({offers})" if offers else ""]))
            called = name if name.startswith("-") else str(action.metavar)
            lines += wrap(f"  {called + value:<34}{text}", _WIDTH, subsequent_indent=" " * 36, break_on_hyphens=False)
        return "\n".join(lines)

    def completions(self, entered: Sequence[str]) -> list[str]:
        """Return possible next words: values of the preceding option, else the options not given yet.

        While there are no words yet, values of positional arguments come first.
        """
        if entered and entered[-1] in self.options and self._actions_by_name[entered[-1]].nargs != 0:
            return list(self._offers[entered[-1]])
        offered = [option for option in self.options if option not in entered]
        unnamed = [offers for name, offers in self._offers.items() if not name.startswith("-")]
        return offered if entered else [*chain(*unnamed), *offered]

    def error(self, message: str) -> NoReturn:
        """Raise UsageError with the message and the usage."""
        raise UsageError(f"{message}\nusage: {self.call}")


OF_CELLS = ("patch",)
"""Commands that take the text below their line as the keyword `cell`: %%lab patch."""


@cache
def reader_of(name: str) -> LineReader:
    """Return the parser of a command's line."""
    return LineReader(LAB[name].call, LAB[name].arguments)


def explanation(name: str) -> str:
    """Return a command's help with usage and arguments. Raises UsageError, naming the nearest match."""
    return f"{command_named(name).help}\n\n{reader_of(name).explanation()}"


def _completions_of(name: str, entered: Sequence[str]) -> list[str]:
    """Return completions for the next word of a command."""
    offered, completes = reader_of(name).completions(entered), LAB[name].completes
    if completes is None or not entered or entered[-1].startswith("-"):
        return offered
    return [*completes(entered), *offered]


def put_in_order(*names: str) -> None:
    """Sort the commands in the order of `names`. Raises ValueError unless these are all commands."""
    if set(names) != set(LAB):
        raise ValueError(f"the table and the order list different commands: {set(names) ^ set(LAB)}")
    for name in names:
        LAB[name] = LAB.pop(name)


def command_named(name: str) -> Command:
    """Return the command called `name`. Raises UsageError, naming the nearest match."""
    if name not in LAB:
        raise UsageError(f"%lab has no {name!r}; {nearest(name, LAB)}")
    return LAB[name]


def completions(line: str, cell_readers: dict[str, LineReader]) -> list[str]:
    """Return completions at the end of a line that begins with %lab or a cell magic; else an empty list."""
    entered = words(line)
    if not line[-1:].isspace():
        del entered[-1:]
    match entered:
        case ["%lab"]:
            return list(LAB)
        case ["%lab", name, *others] if name in LAB:
            return _completions_of(name, others)
        case ["%%lab"]:
            return list(OF_CELLS)
        case ["%%lab", name, *others] if name in OF_CELLS:
            return _completions_of(name, others)
        case [magic, *others] if magic in cell_readers:
            return cell_readers[magic].completions(others)
    return []


def listing(width: int = 110) -> str:
    """List every command with its usage and summary."""
    lines = []
    for known in LAB.values():
        lines += wrap(reader_of(known.name).call, width, subsequent_indent=" " * 12, break_on_hyphens=False)
        lines.append(f"        {known.summary}")
    return "\n".join(lines)
