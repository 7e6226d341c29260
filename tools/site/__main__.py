"""Write the site: python -m tools.site [FOLDER] [--without-model].

With --without-model the page has only the simulated model; neither weights nor a compiler for the kernels are fetched.
"""

import sys
from pathlib import Path

from tools.site import docs, lite, live_page, real_model
from tools.site.links import wrong_in

folders = [argument for argument in sys.argv[1:] if argument != "--without-model"]
write_model = real_model.write if folders == sys.argv[1:] else None
front = live_page.build(Path(*folders or ["site"]), write_model=write_model)
print(f"site: {docs.build(front.parent)}: course, how-tos, bugs, reference")
print(f"site: {lite.build(front.parent)}: the notebooks, to run")
if wrong := wrong_in(front.parent):
    raise SystemExit("\n".join(["site: these links are wrong:", *wrong]))
size = sum(file.stat().st_size for file in front.parent.rglob("*") if file.is_file())
print(f"site: {front}, {size / 1e6:.0f} MB in all. To look at it: python -m http.server -d {front.parent}")
