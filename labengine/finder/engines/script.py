"""A finding as a script that needs the engine alone: its file, the workload, and what is wrong in the end."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from labengine.finder.engines.process import DRIVER

SYMPTOMS = DRIVER.parent / "symptoms.py"

MAIN = """
if __name__ == "__main__":
    import signal
    import sys

    signal.alarm(60)  # a workload without an end
    print("engine:", VERSION)
    try:
        play(CORE(SETTINGS, TOKENS), SETTINGS, OPERATIONS, EXPECTED)
    except Symptom as symptom:
        sys.exit(f"SYMPTOM: {symptom}")
    print("Nothing is wrong here.")
"""


def script_of(heading: str, source: str, patch: str, wire: Mapping[str, Any], expected: Sequence[Any]) -> str:
    """Return the script. It exits with 1 and a line SYMPTOM, or with the engine's exception, if it is wrong.

    heading: what was found; source: the engine's file; patch: the text that is executed before, or nothing; wire: the
    workload; expected: the design's state after each call, or nothing.
    """
    data = "\n".join(
        (
            f"SETTINGS = {dict(wire['settings'])!r}",
            f"TOKENS = {wire['tokens']!r}",
            "OPERATIONS = [" + "".join(f"\n    {one!r}," for one in wire["operations"]) + "\n]",
            "EXPECTED = [" + "".join(f"\n    {one!r}," for one in expected) + "\n]",
        )
    )
    patched = f"\n\n# -- the change under test --\n\n{without_head(patch)}" if patch else ""
    head = '"""' + heading.replace("\\", "/").replace('"""', "'''").strip() + '\n"""\n\n'
    return (
        f"{head}from __future__ import annotations\n\n{without_head(source)}{patched}\n\n"
        f"{without_head(SYMPTOMS.read_text(encoding='utf-8'))}\n\n{data}\n\n{MAIN}"
    )


def without_head(source: str) -> str:
    """Return a module's text without its docstring and its __future__ imports, which a script has once."""
    lines = source.splitlines()
    body = ast.parse(source).body
    left_out: list[ast.stmt] = [one for one in body if isinstance(one, ast.ImportFrom) and one.module == "__future__"]
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        left_out.append(body[0])
    gone = {number for one in left_out for number in range(one.lineno, (one.end_lineno or one.lineno) + 1)}
    return "\n".join(line for number, line in enumerate(lines, 1) if number not in gone).strip()
