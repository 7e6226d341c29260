"""Documentation: paths, members of classes and links exist, examples run, pictures are what their script draws."""

from __future__ import annotations

import ast
import html
import importlib
import json
import re
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from checkout import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md"))]
HOW_TOS = sorted((ROOT / "docs").glob("add-*.md"))
WITHOUT_PYTHON = {"add-a-driver.md", "add-a-view.md", "add-an-event.md"}
"""How-tos without an example in Python."""
FOLDERS = ("", "labengine", "widgets", "docs")
"""Folders that a path in a page may be relative to."""

TO_COME = ("widgets/browser/views/used/used.ts", "used.css")
"""Files that a reader of a page is to make."""

OF_OTHERS = {"pip.conf", "run.lab", "lesson.html", "run.html", "config.json", "scheduler.py", ".artifacts/", "dist/"}
OF_OTHERS |= {"slides.html", "site/", "site/docs/", "site/lite/", "site/model/", "site/index.html", "site/doctor.html"}
"""Files of readers and of other projects."""

MAX_WORDS_OF_HOW_TO = 260
MAX_WIDTH = 120

_SUFFIX = r"\.(?:py|ts|js|mjs|css|json|jsonc|toml|md|html|svg|png|webp|ipynb|txt|c|h|yaml|gz)"
_PATH = re.compile(rf"[\w.+*-]+(?:/[\w.+*-]*)*(?:{_SUFFIX}|/)")
_MEMBER = re.compile(r"([A-Z]\w*[a-z]\w*)\.(\w+)(?:\(.*)?")
_LAB_MEMBER = re.compile(r"(lab|comparison)\.(\w+)\b.*")


def spans(page: Path) -> list[str]:
    """Return the code spans of a page, without its fenced blocks."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"`([^`\n]+)`", text)


def fenced(page: Path, language: str) -> list[str]:
    """Return the fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@cache
def files() -> list[str]:
    """Return the paths of all files that are committed, or about to be."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [name for name in found if (ROOT / name).exists()]


@cache
def members() -> dict[str, set[str]]:
    """Return the names in each class of both languages, and in its base classes and subclasses."""
    found: dict[str, set[str]] = defaultdict(set)
    bases: dict[str, set[str]] = defaultdict(set)
    for name in files():
        if name.startswith(("labengine/", "widgets/labengine_widgets/")) and name.endswith(".py"):
            for node in ast.walk(ast.parse((ROOT / name).read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    found[node.name] |= set(names_in(node))
                    bases[node.name] |= {ast.unparse(base).split("[")[0] for base in node.bases}
        elif name.startswith("widgets/browser/") and name.endswith(".ts"):
            for kind, body in re.findall(
                r"^(?:export )?class (\w+)(.*?)^}", (ROOT / name).read_text(encoding="utf-8"), re.M | re.S
            ):
                found[kind] |= set(re.findall(r"^  (?:(?:static|get|async) )?(\w+)[(?!:;= ]", body, re.M))
    own = {kind: set(names) for kind, names in found.items()}
    for kind in own:
        for base in ancestors(kind, bases):
            found[kind] |= own.get(base, set())
            found[base] |= own[kind]
    return found


def ancestors(kind: str, bases: dict[str, set[str]]) -> set[str]:
    """Return the base classes, and theirs."""
    return {one for base in bases.get(kind, ()) for one in (base, *ancestors(base, bases))}


def names_in(node: ast.ClassDef) -> set[str]:
    """Return methods, class attributes and attributes of self."""
    names = {statement.name for statement in node.body if isinstance(statement, ast.FunctionDef)}
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id == "self":
            names.add(inner.attr)
        elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            names.add(inner.id)
    return names


def is_true(span: str) -> bool:
    """Return False for a path or a member of a class that does not exist."""
    if _PATH.fullmatch(span):
        return span in (*OF_OTHERS, *TO_COME) or exists(span)
    if match := _MEMBER.fullmatch(span):
        return match[2] in members()[match[1]]
    if match := _LAB_MEMBER.fullmatch(span):
        return match[2] in members()[match[1].title()]
    return True


def exists(path: str) -> bool:
    """Return whether a path leads to a file or folder; a name without a folder, to any file of that name."""
    if "/" not in path:
        return any(Path(name).match(path) for name in files())
    return any(any(ROOT.glob(f"{folder}/{path}".strip("/"))) for folder in FOLDERS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_and_members_in_a_page_exist(page: Path) -> None:
    assert [span for span in spans(page) if not is_true(span)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:)([^)#]*)(#[^)]*)?\)", text)
    pictures = re.findall(r'(?:src|srcset)="([^":]+)"', text)
    for name, anchor in [*links, *((name, "") for name in pictures)]:
        target = page.parent / name if name else page
        assert target.exists(), name
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor[1:] in [re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings], anchor


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_of_prose_fit(page: Path) -> None:
    """Tables, code, pictures and HTML may be wider. A line must not begin with #219: MkDocs makes a heading of it."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    prose = [line for line in text.splitlines() if not re.match(r"    | *(\||!\[|<)", line)]
    assert [line for line in prose if len(line) > MAX_WIDTH or re.match(r"#[^# ]", line)] == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    known, new = set(), {ROOT / "README.md"}
    while new:
        page = new.pop()
        known.add(page)
        text = page.read_text(encoding="utf-8")
        named = {page.parent / name for name in re.findall(r"\]\(([\w./-]+\.md)", text)}
        named |= {ROOT / name for name in re.findall(r"`([\w./-]+\.md)`", text)}
        new |= {name.resolve() for name in named if name.exists()} - known
    assert set(PAGES) <= known


def test_a_file_of_the_architecture_page_has_what_the_page_finds_there() -> None:
    """`NAME` in `path`: the doors of its tables."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    doors = re.findall(r"`([\w.]+)` in `([\w/.-]+\.(?:py|ts|css))`", text)
    assert len(doors) > 20
    for name, path in doors:
        named = [ROOT / file for file in files() if f"/{file}".endswith(f"/{path}")]
        word = re.compile(rf"\b{name.rpartition('.')[2]}\b")
        assert any(word.search(file.read_text(encoding="utf-8")) for file in named), f"{name} in {path}"


@pytest.mark.parametrize("page", HOW_TOS, ids=lambda page: page.name)
def test_a_how_to_is_one_page(page: Path) -> None:
    """Code and tables are not counted."""
    text = re.sub(r"^```.*?^```$|^\|.*?$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert len(text.split()) < MAX_WORDS_OF_HOW_TO


@pytest.mark.parametrize("page", HOW_TOS, ids=lambda page: page.name)
def test_the_examples_of_a_how_to_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = fenced(page, "python")
    assert bool(blocks) is (page.name not in WITHOUT_PYTHON)
    for text in fenced(page, "toml"):
        (tmp_path / "example.toml").write_text(text, encoding="utf-8")
    for block in blocks:
        example = ModuleType("example")
        example.__file__ = str(tmp_path / "example.py")
        monkeypatch.setitem(sys.modules, "example", example)
        exec(compile(block, str(page), "exec"), vars(example))


def test_the_backend_of_the_how_to_attends_as_torch_does() -> None:
    import torch

    from labengine.engine.attention import AttentionBackend, AttentionSetting
    from labengine.engine.attention.torch_gather import TorchGather
    from labengine.engine.kv_tensors import LayerKV
    from labengine.engine.step_tensors import GroupTensors, StepTensors

    example: dict[str, type[AttentionBackend]] = {}
    exec(fenced(ROOT / "docs" / "add-a-backend.md", "python")[0], example)

    def ints(*values: int) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int32)

    tables = torch.tensor([[3, 1], [0, 2]], dtype=torch.int32)
    group = GroupTensors(4, 3, ints(4, 5, 9), tables)
    step = StepTensors(ints(1, 2, 3), ints(4, 5, 5), (2, 1), (6, 6), ints(0, 2, 3), ints(6, 6), ints(1, 2), (group,))
    torch.manual_seed(0)
    queries, keys, values = torch.randn(3, 4, 8), torch.randn(3, 2, 8), torch.randn(3, 2, 8)
    pool = torch.randn(2, 4, 4, 2, 8)
    setting = AttentionSetting(torch.device("cpu"), torch.float32, 4, 2, 8, (4,))
    results = []
    for backend in (TorchGather, example["LoopAttention"]):
        cache = LayerKV(pool[0].clone(), pool[1].clone())
        assert backend.refusal(setting) is None
        attention = backend(setting).prepare(step, group)
        attention.write(keys, values, cache)
        results.append((attention.attend(queries, cache, 0.3), cache.keys))
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def test_the_drawings_are_what_the_script_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    pictures = importlib.import_module("architecture_pictures").PICTURES
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for name, draw in pictures.items():
        assert draw() == (ROOT / "docs" / name).read_text(encoding="utf-8"), "python docs/architecture_pictures.py"
        assert f"]({name})" in text
        for kind, member in re.findall(r">([A-Z][a-z]\w*)\.(\w+)<", draw()):
            assert member in members()[kind]


def test_notebook_09_quotes_the_recorded_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    script = importlib.import_module("course_pictures")
    said = re.sub(r"<[^>]+>", "", html.unescape(script.recorded_verdict())).partition(" At that token")[0]
    notebook = json.loads((ROOT / "notebooks" / "09_corruption_or_rounding.ipynb").read_text(encoding="utf-8"))
    texts = ["".join(cell["source"]).replace("**", "") for cell in notebook["cells"]]
    assert any(said in text for text in texts), "the verdict that notebook 09 quotes is the recorded one"
