"""Install labengine, editable, with the pins of constraints.txt, by uv with pip's settings. Arguments go to uv."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from tools import pip_settings

CUDA_NOTICE = """\
setup: this fetches the CUDA build of torch (2.8 GB with all the rest, 5.4 GB on disk), but no NVIDIA card was found.
       For the CPU build (0.6 GB with all the rest, 2.2 GB on disk): Ctrl-C, then make setup TORCH=cpu
"""


def install(arguments: list[str]) -> int:
    """Print a notice about the plan if necessary, then carry it out. Return uv's exit status."""
    command, environment = _uv_install("--editable", ".[models,lab,events,exports,test,dev,site]", *arguments)
    plan = subprocess.run([*command, "--dry-run"], env=environment, capture_output=True, text=True)
    print(notice(plan.stderr, has_nvidia_card()), end="", flush=True)
    return subprocess.run(command, env=environment).returncode


def install_extra(name: str, folder: Path) -> None:
    """Install the packages of an extra, with the pins of constraints.txt, into a separate folder."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    packages = project["optional-dependencies"][name]
    command, environment = _uv_install("--quiet", "--target", str(folder), *packages)
    subprocess.run(command, env=environment, check=True)


def _uv_install(*arguments: str) -> tuple[list[str], dict[str, str]]:
    settings = pip_settings.read()
    command = [sys.executable, "-m", "uv", "pip", "install", "--python", sys.executable, *pip_settings.flags(settings)]
    return [*command, "--constraint", "constraints.txt", *arguments], os.environ | pip_settings.variables(settings)


def notice(plan: str, has_card: bool) -> str:
    """Return a notice on `plan`, the output of a dry run, or "". torch's CUDA build brings nvidia- packages."""
    return CUDA_NOTICE if " + nvidia-" in plan and not has_card else ""


def has_nvidia_card() -> bool:
    """Return True if the NVIDIA driver lists at least one GPU."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return False
    listing = subprocess.run([command, "--list-gpus"], capture_output=True, text=True)
    return listing.returncode == 0 and "GPU 0" in listing.stdout


if __name__ == "__main__":
    sys.exit(install(sys.argv[1:]))
