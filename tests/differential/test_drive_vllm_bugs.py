"""Live: bugs of the list on vLLM's own releases, from `drive` to a script that fails. And what such scripts have said.

LABENGINE_VLLM_PYTHON=... LABENGINE_VLLM_030_PYTHON=... LABENGINE_VLLM_031_PYTHON=... \\
    pytest tests/differential/test_drive_vllm_bugs.py
"""

from __future__ import annotations

import pytest

import labengine
from differential.drive_bugs import BUGS, GOLDEN, Bug, compared, missing, output_of

pytestmark = pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.id)


@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("ignore::labengine.session.violation_warnings.ViolationWarning")
def test_a_bug_of_the_list_ends_in_a_script_that_fails(bug: Bug) -> None:
    if names := missing(bug):
        pytest.skip(f"set {' and '.join(names)} to interpreters with these releases; what scripts said was compared")
    with compared(bug) as comparison:
        faulty = bug.faulty(comparison)
        (right,) = {comparison.left, comparison.right} - {faulty}
        assert {one.rule for one in faulty.violations} == {*bug.rules} and not right.violations
        script = comparison.to_test(bug.asserting)
        assert output_of(script, faulty) == (GOLDEN / f"{bug.id}.txt").read_text()


def test_what_a_script_said_is_the_symptom_of_a_bug_of_the_list(bug: Bug) -> None:
    assert bug.id in {one.id for one in labengine.bugs()}
    said = (GOLDEN / f"{bug.id}.txt").read_text().splitlines()[-1]
    assert said.startswith("SYMPTOM: ") and bug.symptom in said
