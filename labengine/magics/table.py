"""The words after %lab: one table of commands, from which reading, help and completion follow."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from inspect import cleandoc
from itertools import chain
from textwrap import wrap
from typing import Any, NoReturn, TypeVar

from IPython.core.error import UsageError

_WORD = re.compile(r"""(["'])(?P<quoted>.*?)\1(?=\s|$)|(?P<bare>\S+)""", re.DOTALL)


def words(line: str) -> list[str]:
    """Split at white space. Quotes around words make them one; an apostrophe inside a word is only that."""
    return [match["quoted"] if match["bare"] is None else match["bare"] for match in _WORD.finditer(line)]


def asks_for_help(given: Sequence[str]) -> bool:
    """Return True if the first or the last word is --help or -h."""
    return bool(given) and not {given[0], given[-1]}.isdisjoint(("--help", "-h"))


def nearest(word: str, known: Iterable[str]) -> str:
    """What to say after 'there is no ...': the nearest match, or all there are."""
    known = list(known)
    near = [name for name in known if name.startswith(word)] or get_close_matches(word, known, n=1)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"there are {', '.join(known)}" if known else "it takes no options"


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument as argparse wants it, and the values that completion offers for it."""

    name: str
    settings: dict[str, Any]
    offers: Sequence[str] = ()


def argument(name: str, *, offers: Sequence[str] = (), **settings: Any) -> Argument:
    """Return an option ('--copies') or a positional ('num_steps'); settings as for ArgumentParser.add_argument."""
    return Argument(name, settings, tuple(offers))


class LineReader(argparse.ArgumentParser):
    """Reads the words after a magic into keyword arguments, only those that were given. Errors are UsageErrors."""

    def __init__(self, call: str, arguments: Sequence[Argument]) -> None:
        super().__init__(prog="", add_help=False, allow_abbrev=False)
        self.options = tuple(argument.name for argument in arguments if argument.name.startswith("-"))
        self._offers = {argument.name: argument.offers for argument in arguments}
        self._actions_by_name = {a.name: self.add_argument(a.name, **a.settings) for a in arguments}
        self.call = f"{call} {' '.join(self.format_usage().removeprefix('usage:').split())}".strip()

    def read(self, given: Sequence[str]) -> dict[str, Any]:
        """Return keyword arguments from words; options may stand anywhere."""
        known, unknown = self.parse_known_intermixed_args(given)
        if unknown and unknown[0].startswith("-"):
            self.error(f"there is no option {unknown[0]}; {nearest(unknown[0], self.options)}")
        if unknown:
            self.error(f"{unknown[0]!r} is one word too many")
        return {name: value for name, value in vars(known).items() if value is not None}

    def explanation(self, width: int = 110) -> str:
        """Return the usage, and a line on each argument: what it is, and the values there are."""
        lines = wrap(self.call, width, subsequent_indent=" " * 12, break_on_hyphens=False)
        for name, action in self._actions_by_name.items():
            value = f" {action.metavar}" if name.startswith("-") and action.metavar else ""
            offers = ", ".join(self._offers[name])
            told = " ".join(filter(None, [action.help, f"({offers})" if offers else ""]))
            called = name if name.startswith("-") else str(action.metavar)
            lines += wrap(f"  {called + value:<34}{told}", width, subsequent_indent=" " * 36, break_on_hyphens=False)
        return "\n".join(lines)

    def completions(self, given: Sequence[str]) -> list[str]:
        """What may come after these words: values of the option before it, else the options not given yet.

        First of all, what an argument without a name may be.
        """
        if given and given[-1] in self.options and self._actions_by_name[given[-1]].nargs != 0:
            return list(self._offers[given[-1]])
        offered = [option for option in self.options if option not in given]
        unnamed = [offers for name, offers in self._offers.items() if not name.startswith("-")]
        return offered if given else [*chain(*unnamed), *offered]

    def error(self, message: str) -> NoReturn:
        """To the user, with the usage."""
        raise UsageError(f"{message}\nusage: {self.call}")


@dataclass(frozen=True, slots=True)
class Command:
    """One word after %lab: how its line is read, and what it does with the current lab and the keyword arguments."""

    name: str
    run: Callable[..., object]
    reader: LineReader
    completes: Callable[[Sequence[str]], Sequence[str]] | None = None
    """What may follow words that were given without an option, besides what the reader offers."""

    @property
    def summary(self) -> str:
        """One line on what it does."""
        return (self.run.__doc__ or "").splitlines()[0]

    @property
    def explanation(self) -> str:
        """What it does, how it is called, and what its arguments are."""
        return f"{cleandoc(self.run.__doc__ or '')}\n\n{self.reader.explanation()}"

    def completions(self, given: Sequence[str]) -> list[str]:
        """What may come after these words."""
        offered = self.reader.completions(given)
        if self.completes is None or not given or given[-1].startswith("-"):
            return offered
        return [*self.completes(given), *offered]


COMMANDS: dict[str, Command] = {}
"""All commands, in the order in which they are told."""


Run = TypeVar("Run", bound=Callable[..., object])


def command(
    *arguments: Argument, name: str = "", completes: Callable[[Sequence[str]], Sequence[str]] | None = None
) -> Callable[[Run], Run]:
    """Put a function into the table, under its own name or another one."""

    def register(run: Run) -> Run:
        told = name or run.__name__
        COMMANDS[told] = Command(told, run, LineReader(f"%lab {told}", arguments), completes)
        return run

    return register


def put_in_order(*names: str) -> None:
    """Have the commands told in this order. ValueError unless these are all there are."""
    if set(names) != set(COMMANDS):
        raise ValueError(f"commands in the table and in the order differ: {set(names) ^ set(COMMANDS)}")
    for name in names:
        COMMANDS[name] = COMMANDS.pop(name)


def command_named(name: str) -> Command:
    """Return the command of that name. UsageError for an unknown one, with the nearest match."""
    if name not in COMMANDS:
        raise UsageError(f"%lab has no {name!r}; {nearest(name, COMMANDS)}")
    return COMMANDS[name]


def completions(line: str, cell_readers: dict[str, LineReader]) -> list[str]:
    """What may stand at the end of a line that begins with %lab or with one of the cell magics; else nothing."""
    given = words(line)
    if not line[-1:].isspace():
        del given[-1:]
    match given:
        case ["%lab"]:
            return list(COMMANDS)
        case ["%lab", name, *rest] if name in COMMANDS:
            return COMMANDS[name].completions(rest)
        case [magic, *rest] if magic in cell_readers:
            return cell_readers[magic].completions(rest)
    return []


def listing(width: int = 110) -> str:
    """Return every command with its usage and its summary."""
    lines = []
    for known in COMMANDS.values():
        lines += wrap(known.reader.call, width, subsequent_indent=" " * 12, break_on_hyphens=False)
        lines.append(f"        {known.summary}")
    return "\n".join(lines)
