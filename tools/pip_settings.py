"""pip's settings (its files and PIP_ variables) as flags and variables for uv, which does not read them."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

FLAGS = {
    "index-url": "--default-index",
    "extra-index-url": "--extra-index-url",
    "find-links": "--find-links",
    "constraint": "--constraint",
    "trusted-host": "--allow-insecure-host",
    "only-binary": "--only-binary",
    "no-binary": "--no-binary",
}
SWITCHES = {"no-index": "--no-index", "no-cache-dir": "--no-cache", "pre": "--prerelease=allow"}
VARIABLES = {
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
}
SCOPES = ("global", "install", ":env:")  # later ones take precedence in pip


def read() -> dict[str, str]:
    """Return pip's settings for `pip install`, by name without the leading dashes, with values in pip's form."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    return parse(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def parse(listing: str) -> dict[str, str]:
    """Return the settings in the output of `pip config list`: lines like `global.index-url='...'`."""
    found = [line.partition("=") for line in listing.splitlines() if "=" in line]
    scoped = {key: ast.literal_eval(value) for key, _, value in found}
    settings: dict[str, str] = {}
    for scope in SCOPES:
        start = f"{scope}."
        settings |= {key.removeprefix(start): value for key, value in scoped.items() if key.startswith(start)}
    return settings


def flags(settings: dict[str, str]) -> list[str]:
    """Return the equivalent flags of `uv pip install`; a setting with several values gives several flags."""
    values = [
        word
        for name, flag in FLAGS.items()
        for value in settings.get(name, "").split()
        for word in (flag, str(Path(value).expanduser()) if value.startswith("~") else value)
    ]
    switches = [flag for name, flag in SWITCHES.items() if settings.get(name, "").lower() in ("1", "true", "yes", "on")]
    # pip takes the best version of all indexes; uv by default stops at the first index with the package.
    return [*values, *switches, "--index-strategy=unsafe-best-match"]


def variables(settings: dict[str, str]) -> dict[str, str]:
    """Return the environment variables for uv: certificates, proxy, and the time limit in seconds."""
    return {variable: settings[name] for name, variable in VARIABLES.items() if name in settings}
