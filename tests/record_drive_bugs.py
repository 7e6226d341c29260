"""Records what the scripts of differential/drive_bugs.py say on the side that has the bug.

LABENGINE_VLLM_PYTHON=... LABENGINE_VLLM_030_PYTHON=... LABENGINE_VLLM_031_PYTHON=... python tests/record_drive_bugs.py
"""

from __future__ import annotations

from differential.drive_bugs import BUGS, GOLDEN, compared, output_of


def main() -> None:
    """Write a file per bug."""
    GOLDEN.mkdir(exist_ok=True)
    for bug in BUGS:
        with compared(bug) as comparison:
            said = output_of(comparison.to_test(bug.asserting), bug.faulty(comparison))
        (GOLDEN / f"{bug.id}.txt").write_text(said)
        print(bug.id, said.splitlines()[-1])


if __name__ == "__main__":
    main()
