"""Needs of a notebook's cells that a page lacks, from their code, or from an earlier cell whose names they use."""

from __future__ import annotations

import re
import symtable
from collections.abc import Mapping, Sequence
from typing import Any

from IPython.core.inputtransformer2 import TransformerManager

OWN_NEEDS = {
    "torch": re.compile(r"\b(torch|transformers|triton|xray)\b"),
    "plotly": re.compile(r"\bplotly\b"),
    "pandas": re.compile(r"\b\w+_frame\("),
    "gemma3-270m": re.compile(r"gemma3-270m"),
}
"""Words in code and the need that each shows; the need hardest to meet comes first."""


def cell_needs(cells: Sequence[dict[str, Any]], told: Mapping[str, str]) -> dict[str, str]:
    """Return the needs of code cells by cell id, without cells that run everywhere.

    told: needs that the code does not show. A cell that uses a name assigned only by such a cell needs the same.
    Imports do not count, because the page executes those of a cell that it does not run.
    """
    needs: dict[str, str] = {}
    missing: dict[str, str] = {}
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        assigned, used = names_of(cell["source"])
        found = [need for need, pattern in OWN_NEEDS.items() if pattern.search(cell["source"])]
        found += [told[cell["id"]]] if cell["id"] in told else []
        found += [missing[name] for name in sorted(used) if name in missing]
        for name in assigned:
            missing.pop(name, None)
        if found:
            order = [*OWN_NEEDS, *found]
            needs[cell["id"]] = min(found, key=order.index)
            missing |= dict.fromkeys(assigned, needs[cell["id"]])
    return needs


def names_of(source: str) -> tuple[set[str], set[str]]:
    """Return the names that a cell assigns, and those that it only uses; imports are neither."""
    table = symtable.symtable(TransformerManager().transform_cell(source), "cell", "exec")
    bound = {one.get_name() for one in table.get_symbols() if one.is_assigned() or one.is_imported()}
    assigned = {one.get_name() for one in table.get_symbols() if one.is_assigned()}
    return assigned, _used(table) - bound


def _used(table: symtable.SymbolTable) -> set[str]:
    is_cell = table.get_type() == "module"
    used = {one.get_name() for one in table.get_symbols() if one.is_referenced() and (is_cell or one.is_global())}
    return used.union(*map(_used, table.get_children()))
