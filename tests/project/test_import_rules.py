"""Which modules may import which, parsed from this table and held against every import in both packages.

    package     may import, besides itself
    ----------  -------------------------------------------------
    config      nothing
    events      nothing
    system      config
    record      config, events, system
    core        foundation
    engine      foundation, core
    check       foundation, core
    isolation   foundation, engine
    widgets     foundation
    scenarios   everything but widgets, notebook
    course      everything but notebook
    top         everything, lazily

The foundation is config, events, system and record. The top is every other module or folder at the top of labengine
(lab, session, magics, notebook ...); *lazily* means that importing it leads to torch or transformers on no path: what
needs them is imported inside functions. Imports inside functions and under TYPE_CHECKING obey the table too. The
foundation and core use the standard library alone, and no imports form a circle.

Inside the widgets:

    package     may import, besides itself
    ----------  -------------------------------------------------
    base        nothing
    words       base
    why         base, words
    pictures    base, words
    feed        base, words, why
    view        base, words, feed, pictures
    compare     base, words, why, feed, pictures, view
    vary        base, feed, view, compare
    pages       base, words, why, feed, pictures, compare

The base is browser, selection and view_source.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from import_graph import Import, SourceTree, cycles, imports_of, path_to, rules_of

FOUNDATION = ("config", "events", "system", "record")
PACKAGES = (*FOUNDATION, "core", "engine", "check", "isolation", "widgets", "scenarios", "course", "notebook", "top")
HEAVY = {"torch", "transformers"}
KEPT_OUT = {*HEAVY, "labengine_widgets", "pandas", "plotly", "tqdm"}
"""What is imported where it is needed, so that `import labengine` and %load_ext are quick and need no extras."""
ENTRIES = ("labengine", "labengine.terminal", "labengine.scenarios", "labengine.compat.nanovllm")
MAY_BE_HEAVY = ("engine", "scenarios")
STANDARD_LIBRARY_ONLY = (*FOUNDATION, "core")


def package_of(module: str) -> str:
    """The package a module of ours lives in: labengine.core.block -> core, labengine.lab -> top."""
    package, *inner = module.split(".")
    if package == "labengine_widgets":
        return "widgets"
    first = inner[0] if inner else ""
    return first if first in PACKAGES else "top"


def widget_package_of(module: str) -> str:
    """Return the package of a module of labengine_widgets: labengine_widgets.feed.wake_flag -> feed."""
    first = f"{module}.".split(".")[1]
    return first if first in WIDGETS_TABLE else "base"


def parse_table(text: str, number: int = 0) -> dict[str, frozenset[str]]:
    """The rows of one table as package -> packages it may import; a package may always import itself."""
    return {package: frozenset((package, *_packages_named(rule))) for package, rule in rules_of(text, number).items()}


def _packages_named(rule: str) -> set[str]:
    if rule.startswith("everything"):
        return set(PACKAGES) - set(rule.removeprefix("everything but").replace(" ", "").split(","))
    return {
        package
        for word in rule.split(", ")
        for package in (FOUNDATION if word == "foundation" else (word,))
        if word != "nothing"
    }


TABLE = parse_table(__doc__)
TABLE["notebook"] = TABLE["top"]
WIDGETS_TABLE = parse_table(__doc__, 1)


def is_allowed(imported: Import) -> bool:
    """Return whether the table allows this import of one of our modules."""
    return package_of(imported.target) in TABLE[package_of(imported.source)]


def is_entry(imported: Import) -> bool:
    """Whether a module resolves names, or runs commands, for which it imports only what each needs."""
    return imported.source in ENTRIES


def is_heavy(module: str, tree: SourceTree) -> bool:
    """Return whether importing a module leads to an excluded one."""
    return module.partition(".")[0] in KEPT_OUT or bool(path_to(KEPT_OUT, module, tree.imports()))


@pytest.fixture(scope="module")
def tree(project_root: Path) -> SourceTree:
    return SourceTree({"labengine": project_root, "labengine_widgets": project_root / "widgets"})


def test_every_import_of_ours_is_in_the_table(tree: SourceTree) -> None:
    assert [str(imported) for imported in tree.imports() if imported.is_ours and not is_allowed(imported)] == []


def test_the_packages_of_the_widgets_import_only_packages_below_them(tree: SourceTree) -> None:
    inner = [
        imported
        for imported in tree.imports()
        if imported.source.startswith("labengine_widgets.") and imported.target.startswith("labengine_widgets.")
    ]
    assert {widget_package_of(imported.source) for imported in inner} == set(WIDGETS_TABLE) - {"base"}
    wrong = [i for i in inner if widget_package_of(i.target) not in WIDGETS_TABLE[widget_package_of(i.source)]]
    assert [str(imported) for imported in wrong] == []


def test_the_foundation_and_core_use_the_standard_library_alone(tree: SourceTree) -> None:
    guarded = [imported for imported in tree.imports() if package_of(imported.source) in STANDARD_LIBRARY_ONLY]
    assert guarded, "no imports were found: is the tree where it should be?"
    assert [str(imported) for imported in guarded if imported.is_third_party] == []


def is_program(module: str) -> bool:
    """Return True for what only another engine's interpreter executes, with that engine's packages."""
    return module.startswith("labengine.driven.inside.") and module.endswith("_scheduler")


def test_only_the_engine_leads_to_torch_on_import(tree: SourceTree) -> None:
    light = [module for module in tree.modules if package_of(module) not in MAY_BE_HEAVY and not is_program(module)]
    paths = [path_to(HEAVY, module, tree.imports()) for module in light]
    assert [" -> ".join(path) for path in paths if path] == []


def test_imports_form_no_circle(tree: SourceTree) -> None:
    assert cycles(tree.imports()) == []


def test_the_top_imports_late_only_what_is_heavy(tree: SourceTree) -> None:
    """Other imports are at the top of the file. Exempt: public names and commands, which load what they need."""
    late = [imported for imported in tree.imports() if imported.is_lazy and imported.is_ours and not is_entry(imported)]
    top = [imported for imported in late if package_of(imported.source) in ("top", "notebook")]
    assert top, "no late imports were found: is the tree where it should be?"
    assert [str(imported) for imported in top if not is_heavy(imported.target, tree)] == []


def test_every_package_of_the_table_was_read(tree: SourceTree) -> None:
    read = {package_of(module) for module in tree.modules}
    assert read >= {*FOUNDATION, "core", "engine", "check", "widgets", "course", "top"}


# The rules themselves, tried on modules that do not exist.

MODULES = {
    "labengine.core.block",
    "labengine.core",
    "labengine.events",
    "labengine.lab",
    "labengine.engine.engine",
    "labengine.record.files.codec",
    "labengine_widgets.pool",
}


def verdicts(source: str, code: str) -> list[bool]:
    return [is_allowed(imported) for imported in imports_of(source, code, MODULES) if imported.is_ours]


@pytest.mark.parametrize(
    ("source", "code", "allowed"),
    [
        ("labengine.core.pool", "from labengine.events import BlockFreed", True),
        ("labengine.core.pool", "from . import block", True),
        ("labengine.core.pool", "from labengine.engine import engine", False),
        ("labengine.core.pool", "from ..engine.engine import Engine", False),
        ("labengine.core.pool", "def f():\n    import labengine.engine.engine", False),
        ("labengine.core.pool", "if TYPE_CHECKING:\n    from labengine.lab import Lab", False),
        ("labengine.events", "import labengine.config", False),
        ("labengine.record.timeline", "import labengine.record.snapshot", True),
        ("labengine.check.oracle", "from labengine import engine", False),
        ("labengine.record.files.file", "from labengine.record.timeline import Timeline", True),
        ("labengine.record.files.file", "from labengine.core.parts import Parts", False),
        ("labengine_widgets.feed", "from labengine.record.files.codec import rows", True),
        ("labengine_widgets.pool", "from labengine import Lab", False),
        ("labengine_widgets.pool", "from labengine.record.fold import fold", True),
        ("labengine.engine.engine", "import labengine_widgets.pool", False),
        ("labengine.scenarios.bug", "from labengine.engine import engine\nfrom labengine.lab import Lab", True),
        ("labengine.scenarios.bug", "import labengine.notebook", False),
        ("labengine.course.predict_exercise", "def f():\n    import labengine_widgets.pictures.svg", True),
        ("labengine.course.predict_exercise", "import labengine.notebook", False),
        ("labengine.core.pool", "import labengine.course.exercise", False),
        ("labengine.lab", "def f():\n    import labengine.engine.engine", True),
        ("labengine.notebook", "if typing.TYPE_CHECKING:\n    import labengine_widgets.pool", True),
    ],
)
def test_the_rules_separate_right_from_wrong(source: str, code: str, allowed: bool) -> None:
    found = verdicts(source, code)
    assert found and all(found) is allowed


def test_a_third_party_import_is_recognised() -> None:
    imports = imports_of("labengine.core.pool", "import numpy as np\nimport array\nfrom os import path", MODULES)
    assert [imported.target for imported in imports if imported.is_third_party] == ["numpy"]


def test_the_way_to_torch_is_found_and_a_lazy_one_is_none() -> None:
    lab = imports_of("labengine.lab", "from labengine.engine import engine", {"labengine.engine.engine"})
    engine = imports_of("labengine.engine.engine", "import torch.nn", set())
    late = imports_of("labengine.engine.engine", "def f():\n    import torch.nn", set())
    assert path_to(HEAVY, "labengine.lab", lab + engine) == ["labengine.lab", "labengine.engine.engine", "torch.nn"]
    assert path_to(HEAVY, "labengine.lab", lab + late) == []


def test_a_circle_is_found_and_a_late_import_closes_one_too() -> None:
    there = imports_of("labengine.core.a", "import labengine.core.b", {"labengine.core.b"})
    back = imports_of("labengine.core.b", "from .a import A", {"labengine.core.a"})
    late = imports_of("labengine.core.b", "def f():\n    from .a import A", {"labengine.core.a"})
    assert cycles(there + back) == [["labengine.core.a", "labengine.core.b"]]
    only_types = imports_of("labengine.core.b", "if TYPE_CHECKING:\n    from .a import A", {"labengine.core.a"})
    onwards = imports_of("labengine.core.b", "import labengine.core.c", set())
    assert cycles(there + late) == cycles(there + only_types) == [["labengine.core.a", "labengine.core.b"]]
    assert cycles(there + onwards) == []
