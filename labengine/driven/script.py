"""A workload as a script that needs only the driven engine: the engine's file, a change, the judging, the workload."""

from __future__ import annotations

import ast
import os.path
from collections.abc import Mapping, Sequence
from typing import Any

from labengine.driven.drivable import is_driver_file
from labengine.driven.driven import Driven
from labengine.driven.process import DRIVER

SYMPTOMS, METHODS = DRIVER.parent / "symptoms.py", DRIVER.parent / "methods.py"

STARTED, GREEN = "engine:", "Nothing is wrong here."
"""How the first line of a script begins, before which nothing is the engine's fault, and the last one without an error.
"""

MAIN = f"""
if __name__ == "__main__":
    import signal
    import sys

    print("{STARTED}", VERSION, flush=True)
    engine = CORE(SETTINGS, sampling(SETTINGS))
    signal.alarm(60)  # a workload without an end
    try:
        play(engine, SETTINGS, OPERATIONS, EXPECTED)
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


def change_of(driven: Driven) -> str:
    """Return the text of a change that replaces methods; empty without patches.

    What replaces them has a module of its own: the engine's file may use the same names.
    """
    if not driven.patches:
        return ""
    lines = [
        '_methods = __import__("types").ModuleType("methods")',
        f"exec({literal(METHODS.read_text(encoding='utf-8'))}, vars(_methods))",
    ]
    if is_driver_file(driven.name):
        lines.append('_methods.PACKAGES = (__name__, *globals().get("PACKAGES", ()))')
    calls = [f'_methods.replace({one.method!r}, {literal(one.text)}, "{one.file}")' for one in driven.patches]
    return "\n\n".join(["\n".join(lines), *calls])


def importable(source: str, engine: str, folder: str | None) -> str:
    """Return the text of an engine's file; a driver file's imports what is in its folders from anywhere."""
    if not is_driver_file(engine):
        return source
    folders = [os.path.abspath(one) for one in (folder, os.path.dirname(engine)) if one is not None]
    return f"import sys\n\nsys.path[:0] = {folders!r}\n\n{without_head(source)}"


def literal(text: str) -> str:
    """Return a text of several lines as a literal of several lines."""
    escaped = text.rstrip().replace("\\", "\\\\").replace("'''", "\\'\\'\\'")
    return f"'''\\\n{escaped}\n'''"


def without_head(source: str) -> str:
    """Return a module's text without its docstring and its __future__ imports, which a script has only once.

    What it does when it is executed itself is left out as well.
    """
    lines = source.splitlines()
    body = ast.parse(source).body
    left_out: list[ast.stmt] = [one for one in body if isinstance(one, ast.ImportFrom) and one.module == "__future__"]
    left_out += [one for one in body if isinstance(one, ast.If) and ast.unparse(one.test) == "__name__ == '__main__'"]
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        left_out.append(body[0])
    gone = {number for one in left_out for number in range(one.lineno, (one.end_lineno or one.lineno) + 1)}
    return "\n".join(line for number, line in enumerate(lines, 1) if number not in gone).strip()
