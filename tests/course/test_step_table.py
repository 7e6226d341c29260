"""The table of who computes what."""

from __future__ import annotations

import labengine
from labengine.course.step_table import cells, draw


def test_a_row_for_each_request_and_a_column_for_each_step() -> None:
    with labengine.Lab("simulated", num_blocks=16, block_size=4, max_num_seqs=1) as lab:
        lab.add("One two three", max_tokens=2, ignore_eos=True)
        lab.add("Four five", max_tokens=1, ignore_eos=True)
        lab.run()
        assert cells(lab) == {
            0: {0: ("waits", ""), 1: ("prompt", 3), 2: ("answer", 1)},
            1: {0: ("waits", ""), 3: ("prompt", 2)},
        }
        table = draw(lab)
    assert table.rows == (("", "1", "2", "3"), ("A", "3", "1", ""), ("B", "·", "·", "2"), ("sum", "3", "1", "2"))
    assert repr(table).splitlines()[1] == "   A   3   1    "
    assert table._repr_html_().count("<tr ") == 4 and "script" not in table._repr_html_()
