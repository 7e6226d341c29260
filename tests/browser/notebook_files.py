"""Notebook documents on disk: written from code cells, and exported by nbconvert."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path


def write_notebook(path: Path, sources: Sequence[str]) -> None:
    """Write a notebook of code cells. As plain JSON: importing nbformat takes each worker seconds."""
    python3 = {"name": "python3", "display_name": "Python 3", "language": "python"}
    cells = [
        {"id": f"c{i}", "cell_type": "code", "source": source, "metadata": {}, "execution_count": None, "outputs": []}
        for i, source in enumerate(sources)
    ]
    document = {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": python3}, "cells": cells}
    path.write_text(json.dumps(document), encoding="utf-8")


def exported_by_nbconvert(path: Path) -> str:
    """Return the HTML that nbconvert makes of a notebook file."""
    import nbformat
    from nbconvert import HTMLExporter

    html, _ = HTMLExporter().from_notebook_node(nbformat.read(path, as_version=4))
    return str(html)
