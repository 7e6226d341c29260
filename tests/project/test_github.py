"""What stands in .github: workflows and forms that parse, and that call what there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from labengine.__main__ import main

WORKFLOWS, FORMS = ("ci", "nightly", "release"), ("bug", "engine_bug", "idea")


def parsed(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def commands_of(workflow: Any) -> list[str]:
    return [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_calls_what_there_is(name: str, project_root: Path) -> None:
    makefile = (project_root / "Makefile").read_text(encoding="utf-8")
    commands = commands_of(parsed(project_root / ".github" / "workflows" / f"{name}.yml"))
    assert commands
    for command in commands:
        program, *arguments = command.split()
        if program == "make":
            assert all(re.search(rf"^{target}\b.*:", makefile, re.MULTILINE) for target in arguments), command
        elif program == ".ci/run":
            assert (project_root / program).is_file()
        elif command.startswith("python -m labengine "):
            assert main(command.split()[3:]) == 0


def test_all_pythons_are_tested(project_root: Path) -> None:
    project = (project_root / "pyproject.toml").read_text(encoding="utf-8")
    named = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project)
    jobs = parsed(project_root / ".github" / "workflows" / "ci.yml")["jobs"]
    [gate] = [step["with"] for step in jobs["gate"]["steps"] if "setup-python" in step.get("uses", "")]
    assert {gate["python-version"], *jobs["cheap"]["strategy"]["matrix"]["python"]} == {*named}
    assert {named[0], named[-1]} == {*jobs["light"]["strategy"]["matrix"]["python"]}


@pytest.mark.parametrize("name", FORMS)
def test_a_form_asks_something(name: str, project_root: Path) -> None:
    form = parsed(project_root / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml")
    assert form["name"] and form["description"]
    ids = [field["id"] for field in form["body"]]
    assert len(ids) == len({*ids}) and any(field.get("validations", {}).get("required") for field in form["body"])
