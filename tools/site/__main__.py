"""Write the site: python -m tools.site [FOLDER]."""

import sys
from pathlib import Path

from tools.site import docs, lite, live_page, real_model
from tools.site.links import wrong_in

front = live_page.build(Path(*sys.argv[1:2] or ["site"]), write_model=real_model.write)
print(f"site: {docs.build(front.parent)}: course, how-tos, bugs, reference")
print(f"site: {lite.build(front.parent)}: the notebooks, to run")
if wrong := wrong_in(front.parent):
    raise SystemExit("\n".join(["site: these links are wrong:", *wrong]))
size = sum(file.stat().st_size for file in front.parent.rglob("*") if file.is_file())
print(f"site: {front}, {size / 1e6:.0f} MB in all. To look at it: python -m http.server -d {front.parent}")
