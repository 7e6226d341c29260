"""Running a script of to_code(): the lab that it makes."""

from __future__ import annotations

import linecache
from contextlib import redirect_stdout
from io import StringIO
from itertools import count
from typing import Any

_numbers = count(1)


def run_script(text: str, title: str) -> Any:  # a Lab, a class of a higher package
    """Execute a script, and return its variable `lab`. The script's errors are raised, with its lines.

    Its source is kept, so that Why? shows the classes that it defines.
    """
    name = f"<script {next(_numbers)} of {title}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space: dict[str, Any] = {"__name__": "__main__"}
    with redirect_stdout(StringIO()):  # it ends by printing the lab
        exec(compile(text, name, "exec"), space)
    return space["lab"]
