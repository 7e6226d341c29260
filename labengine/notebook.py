"""%load_ext labengine: the magics %lab and %%prompt, their completion, and how a step's report reads in a notebook."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher
from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_cell_magic, magics_class

from labengine.commands import LAB
from labengine.glossary import glossary, meaning
from labengine.magics import commands as _commands  # noqa: F401  (the import fills the table of commands)
from labengine.magics.arguments import PROMPT
from labengine.magics.current_lab import CurrentLab
from labengine.magics.stepping import add
from labengine.magics.table import (
    OF_CELLS,
    asks_for_help,
    command_named,
    completions,
    explanation,
    listing,
    reader_of,
    words,
)
from labengine.magics.words import errors_in_plain_words
from labengine.session.step_text import played_line, report_line

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_GUIDE = """Step a real LLM engine in this notebook and watch every KV block move.

    %lab start --model smollm2 --blocks 32 --block-size 4    a real model and a pool of 32 blocks, shown below the cell
    %lab add Once upon a time --copies 2 --max-tokens 8      two identical requests join the waiting queue
    %lab step                                                watch both compute the same KV, and the copies merge
    %lab run                                                 continue in the background; %lab pause stops it
    %lab back 2                                              look at the state two steps ago; %lab forward returns
    %lab why block 0                                         ask the recording which events led to its state, and why
    %lab rewind 1                                            take the engine itself back to its state after step 1
    %lab break BlockEvicted                                  stop at the next event of this kind
    %lab run --wait                                          continue, and stop there
    %lab save run.lab                                        save the recording; %lab open run.lab shows it anywhere
    %lab bug nano-vllm-219                                   a reproduced bug report: broken and fixed side by side
    %lab seam touch                                          a method of the core in a cell: edit and run it

The lab is the variable `lab`: lab.step(), lab.kv(0, layer=3), lab.fork(1). A labengine.Lab that you make and call `lab`
works too. Put a longer prompt into a cell below %%prompt --max-tokens 32 --copies 2.

%lab bug and %%lab patch do not change `lab`: their engines are called `comparison` (with --column, `bug_lab`), and the
commands act on them until %lab close. A lab that is closed, by %lab close or by another %lab start, keeps its
recording: its pictures stay, and show(), view(), goto() and why() still work, but it cannot take steps.
If one of your parts breaks a rule, %lab step and %lab run report it (%lab start --check stop ends runs there). If it
raises, the step is rolled back, and %lab goto crash shows the moment before. %lab why event N names the method that
decided.
%lab view pool tables --at 2 is a fixed picture of the end of step 2; --at 2:5 shows event 5 of that step.
%lab start --help explains each option; every command has such a --help.

"""


@magics_class
class LabMagics(Magics):
    """%lab and %%prompt for one shell."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self.current = CurrentLab(shell)

    @line_cell_magic
    def lab(self, line: str, cell: str | None = None) -> object:
        name, *others = words(line) or [""]
        if not name or name in ("--help", "-h", "help"):
            print(_help(" ".join(others)))
            return None
        command = command_named(name)
        if asks_for_help(others):
            print(explanation(name))
            return None
        if cell is not None and name not in OF_CELLS:
            raise UsageError(f"text below %%lab is only for {' and '.join(OF_CELLS)}: put %lab {name} on its own line")
        below = {} if cell is None else {"cell": cell}
        with errors_in_plain_words(command.call, command.as_typed):
            return command.run(self.current, **reader_of(name).read(others), **below)

    lab.__doc__ = f"{_GUIDE}{listing()}\n\nThe words of the screen (%lab help TERM prints one):\n\n{glossary()}"

    @cell_magic
    def prompt(self, line: str, cell: str) -> None:
        if asks_for_help(words(line)):
            return print(PROMPT.explanation())
        options = PROMPT.read(words(line))
        text = cell.strip("\n")
        if not text.strip():
            raise UsageError("the prompt is empty: write it below the %%prompt line")
        with errors_in_plain_words("%%prompt"):
            add(self.current, [text], **options)

    prompt.__doc__ = f"Add the text below this line to the lab as a request.\n\n{PROMPT.explanation()}"


def _help(subject: str) -> str:
    """Return the help on a command or a glossary term; without a subject, the list of commands."""
    if not subject:
        return listing()
    text = None if subject in LAB else meaning(subject)
    return text or explanation(subject)


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register %lab and %%prompt with the shell; a second call has no effect."""
    if _is_loaded(shell):
        return
    magics = LabMagics(shell)
    shell.register_magics(magics)
    _completer(shell).custom_matchers.append(complete)
    _plain_text(shell).for_type_by_name(*_STEP_REPORT, partial(_print_report, magics.current))


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Remove the magics, their completion and their printer. The lab stays, as the variable `lab`."""
    if not _is_loaded(shell):
        return
    manager = shell.magics_manager
    del manager.magics["line"]["lab"], manager.magics["cell"]["lab"], manager.magics["cell"]["prompt"]
    del manager.registry[LabMagics.__name__]
    _completer(shell).custom_matchers.remove(complete)
    _plain_text(shell).pop(".".join(_STEP_REPORT), None)


@context_matcher(identifier="labengine")  # type: ignore[untyped-decorator]
def complete(context: CompletionContext) -> SimpleMatcherResult:
    """Return completions after %lab and %%prompt: commands, options and values, and nothing else."""
    offered = completions(context.text_until_cursor, {"%%prompt": PROMPT})
    matching = [SimpleCompletion(text, type="magic") for text in offered if text.startswith(context.token)]
    return SimpleMatcherResult(completions=matching, ordered=True, suppress=bool(matching))


def _is_loaded(shell: InteractiveShell) -> bool:
    return LabMagics.__name__ in shell.magics_manager.registry


def _completer(shell: InteractiveShell) -> Any:
    return shell.Completer


def _plain_text(shell: Any) -> Any:
    return shell.display_formatter.formatters["text/plain"]


_STEP_REPORT = ("labengine.engine.step_report", "StepReport")


def _print_report(current: CurrentLab, report: Any, printer: Any, cycle: bool) -> None:
    """Print a step in one line, without the details that a dashboard is still playing."""
    printer.text(played_line(report) if current.is_played(report) else report_line(report))
