"""%load_ext labengine: the magics %lab and %%prompt, their completion, and how a step's report reads in a notebook."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class

from labengine.magics_commands import PROMPT, add_text
from labengine.magics_desk import Desk, told_plainly
from labengine.magics_table import command_named, completions, listing, words
from labengine.magics_words import report_line

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_GUIDE = """Step a real LLM engine in this notebook and watch every KV block move.

    %lab start --model smollm2 --blocks 32 --block-size 16     a real model and a pool of 32 blocks, shown below the cell
    %lab add Once upon a time --copies 2 --max-tokens 8        two equal requests wait in line
    %lab step                                                  both compute the same KV, and the copies merge: watch
    %lab run                                                   go on in the background; %lab pause stops it
    %lab back 2                                                look at the state two steps ago

The lab is also the variable `lab` (lab.step(), lab.kv(0, layer=3), lab? ...); a labengine.Lab that you make yourself and
call `lab` is used just as well. A longer prompt goes into a cell of its own, below %%prompt --max-tokens 32 --copies 2.

"""


@magics_class
class LabMagics(Magics):  # type: ignore[misc]
    """%lab and %%prompt for one shell."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._desk = Desk(shell)

    @line_magic  # type: ignore[untyped-decorator]
    def lab(self, line: str) -> object:
        name, *rest = words(line) or [""]
        if not name:
            print(listing())
            return None
        command = command_named(name)
        with told_plainly(f"%lab {name}"):
            return command.run(self._desk, **command.reader.read(rest))

    lab.__doc__ = _GUIDE + listing()

    @cell_magic  # type: ignore[untyped-decorator]
    def prompt(self, line: str, cell: str) -> None:
        options = PROMPT.read(words(line))
        text = cell.strip("\n")
        if not text.strip():
            raise UsageError("the prompt is empty: write it below the %%prompt line")
        with told_plainly("%%prompt"):
            add_text(self._desk, text, **options)

    prompt.__doc__ = f"Add the text below this line to the lab as a request.\n\n{PROMPT.call}"


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Bring the magics in; twice is harmless."""
    if _is_loaded(shell):
        return
    shell.register_magics(LabMagics(shell))
    for magic in ("%lab", "%%prompt"):
        shell.set_hook("complete_command", _complete, str_key=magic)
    _plain_text(shell).for_type_by_name("labengine.engine.engine", "StepReport", _print_report)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Take the magics and what came with them away. The lab stays, as the variable `lab`."""
    if not _is_loaded(shell):
        return
    manager = shell.magics_manager
    del manager.magics["line"]["lab"], manager.magics["cell"]["prompt"], manager.registry[LabMagics.__name__]
    for magic in ("%lab", "%%prompt"):
        shell.strdispatchers["complete_command"].strs.pop(magic, None)
    _plain_text(shell).pop("labengine.engine.engine.StepReport", None)


def _is_loaded(shell: InteractiveShell) -> bool:
    return LabMagics.__name__ in shell.magics_manager.registry


def _complete(shell: InteractiveShell, event: SimpleNamespace) -> list[str]:
    return completions(event.text_until_cursor, {"%%prompt": PROMPT})


def _plain_text(shell: InteractiveShell) -> Any:
    return shell.display_formatter.formatters["text/plain"]


def _print_report(report: Any, printer: Any, cycle: bool) -> None:
    printer.text(report_line(report))
