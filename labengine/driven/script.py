"""A workload as a script that needs only the driven engine: the engine's file, a change, the judging, the workload."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from labengine.driven.driven import Patch
from labengine.driven.process import DRIVER

SYMPTOMS, METHODS = DRIVER.parent / "symptoms.py", DRIVER.parent / "methods.py"

GREEN = "Nothing is wrong here."
"""The last line of a script that finds no error."""

MAIN = f"""
if __name__ == "__main__":
    import signal
    import sys

    signal.alarm(60)  # a workload without an end
    print("engine:", VERSION)
    try:
        play(CORE(SETTINGS, sampling(SETTINGS)), SETTINGS, OPERATIONS, EXPECTED)
    except Symptom as symptom:
        sys.exit(f"SYMPTOM: {{symptom}}")
    print("{GREEN}")
"""


def script_of(heading: str, source: str, change: str, wire: Mapping[str, Any], expected: Sequence[Any]) -> str:
    """Return the script, which exits with 1 and a line SYMPTOM, or with the engine's exception, on an error.

    heading: the finding; source: the engine's file; change: a text executed after it, or empty; wire: the workload;
    expected: the right state after each call, or empty.
    """
    data = "\n".join(
        (
            f"SETTINGS = {dict(wire['settings'])!r}",
            "OPERATIONS = [" + "".join(f"\n    {one!r}," for one in wire["operations"]) + "\n]",
            "EXPECTED = [" + "".join(f"\n    {one!r}," for one in expected) + "\n]",
        )
    )
    changed = f"\n\n# -- the change under test --\n\n{without_head(change)}" if change else ""
    head = '"""' + heading.replace("\\", "/").replace('"""', "'''").strip() + '\n"""\n\n'
    return (
        f"{head}from __future__ import annotations\n\n{without_head(source)}{changed}\n\n"
        f"{without_head(SYMPTOMS.read_text(encoding='utf-8'))}\n\n{data}\n\n{MAIN}"
    )


def change_of(patches: Iterable[Patch]) -> str:
    """Return the text of a change that replaces methods; empty without patches."""
    calls = [f'replace({patch.method!r}, {literal(patch.text)}, "{patch.file}")' for patch in patches]
    return "\n\n".join([METHODS.read_text(encoding="utf-8"), *calls]) if calls else ""


def literal(text: str) -> str:
    """Return a text of several lines as a literal of several lines."""
    escaped = text.rstrip().replace("\\", "\\\\").replace("'''", "\\'\\'\\'")
    return f"'''\\\n{escaped}\n'''"


def without_head(source: str) -> str:
    """Return a module's text without its docstring and its __future__ imports, which a script has only once."""
    lines = source.splitlines()
    body = ast.parse(source).body
    left_out: list[ast.stmt] = [one for one in body if isinstance(one, ast.ImportFrom) and one.module == "__future__"]
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        left_out.append(body[0])
    gone = {number for one in left_out for number in range(one.lineno, (one.end_lineno or one.lineno) + 1)}
    return "\n".join(line for number, line in enumerate(lines, 1) if number not in gone).strip()
