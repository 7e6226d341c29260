"""Set-up of a kernel in the site's notebooks, before its first cell (notebook_start.py)."""

from __future__ import annotations

import json
from typing import Any

from IPython.core.getipython import get_ipython

from labengine.live_page.model_offer import offer_model
from labengine.live_page.recorded_cells import RecordedCells


def begin() -> None:
    """Offer the real model, and define %%needs."""
    shell: Any = get_ipython()
    offer = offer_model(shell, _model_files)
    cells = RecordedCells(shell, _recorded, offer)
    shell.register_magic_function(cells.needs, "cell", "needs")


def _site() -> str:
    """Return the site's address, derived from the address of the kernel's worker."""
    import js

    return str(js.location.href).partition("lite/extensions/")[0]


async def _model_files() -> Any:
    """Return the JavaScript half: widgets/live_page/notebook.ts."""
    from pyodide.code import run_js

    return await run_js(f"import({json.dumps(_site() + 'notebook.mjs')})")


def _recorded() -> Any:
    from pyodide.http import open_url

    return json.load(open_url(f"{_site()}lite/recorded.json"))
