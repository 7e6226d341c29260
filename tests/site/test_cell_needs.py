"""What cells need: by their own code, and by names that only a cell which does not run has assigned."""

from __future__ import annotations

from tools.site.cell_needs import cell_needs, names_of


def needs(*sources: str, told: dict[str, str] | None = None) -> dict[str, str]:
    cells = [{"cell_type": "code", "id": f"cell {number}", "source": one} for number, one in enumerate(sources)]
    return cell_needs([{"cell_type": "markdown", "id": "text", "source": "import torch"}, *cells], told or {})


def test_a_name_of_a_cell_that_does_not_run_carries_its_need_until_it_is_assigned_anew() -> None:
    found = needs("import math\nimport torch\nx = torch.ones(2)", "y = x + 1", "math.pi", "x = 1", "z = x", "print(y)")
    assert found == {"cell 0": "torch", "cell 1": "torch", "cell 5": "torch"}


def test_a_name_used_inside_a_function_counts_and_one_of_its_own_does_not() -> None:
    assert needs("import plotly\nrow = plotly.x", "def f():\n    return row") == {
        "cell 0": "plotly",
        "cell 1": "plotly",
    }
    assert needs("import plotly\nrow = plotly.x", "def f(row):\n    return [row for row in row]") == {
        "cell 0": "plotly"
    }


def test_the_need_that_can_least_be_met_is_the_one_that_is_told() -> None:
    found = needs("k = lab.kv(0, 0)", "torch.stack(k)", "len(k)", told={"cell 0": "smollm2"})
    assert found == {"cell 0": "smollm2", "cell 1": "torch", "cell 2": "smollm2"}


def test_magics_are_read_as_code() -> None:
    assert names_of("%lab step\nreport = lab.step()") == ({"report"}, {"get_ipython", "lab"})
