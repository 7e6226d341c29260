"""pip's settings, translated for uv: compared with pip's own reading of them, and tried with a wheel of our own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from install.wheels import write_wheel
from tools import pip_settings

CONFIG = """
[global]
index-url = https://example.org/simple
extra-index-url =
    https://example.org/one
    https://example.org/two
find-links = /first ./second
trusted-host = example.org
timeout = 7
[install]
index-url = https://example.org/install
pre = yes
[freeze]
index-url = https://example.org/freeze
"""

PIPS_OWN = """
import json
from pip._internal.commands import create_command
options, _ = create_command("install").parse_args([])
print(json.dumps({name: getattr(options, name) for name in (
    "index_url", "extra_index_urls", "find_links", "trusted_hosts", "timeout", "cert", "pre", "no_index")}))
"""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """CONFIG in a file, and variables that outdo it."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    (tmp_path / "pip.conf").write_text(CONFIG)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("PIP_FIND_LINKS", "/third ./fourth")
    monkeypatch.setenv("PIP_CERT", str(tmp_path / "roots.pem"))
    return pip_settings.read()


def output(*command: str) -> str:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def values(flags: list[str], flag: str) -> list[str]:
    return [value for name, value in pairwise(flags) if name == flag]


def test_uv_gets_what_pip_would_have_read(settings: dict[str, str]) -> None:
    pips = json.loads(output("-c", PIPS_OWN))
    assert pips["index_url"] == "https://example.org/install" and len(pips["find_links"]) == 2, "pip read the settings"
    flags, variables = pip_settings.flags(settings), pip_settings.variables(settings)
    assert values(flags, "--default-index") == [pips["index_url"]]
    assert values(flags, "--extra-index-url") == pips["extra_index_urls"]
    assert values(flags, "--find-links") == pips["find_links"]
    assert values(flags, "--allow-insecure-host") == pips["trusted_hosts"]
    assert ("--prerelease=allow" in flags) == pips["pre"] and ("--no-index" in flags) == pips["no_index"]
    assert variables["SSL_CERT_FILE"] == pips["cert"] and float(variables["UV_HTTP_TIMEOUT"]) == pips["timeout"]


def test_a_setting_that_is_switched_off_is_off() -> None:
    assert "--no-index" in pip_settings.flags(pip_settings.parse("global.no-index='true'"))
    assert "--no-index" not in pip_settings.flags(pip_settings.parse("global.no-index='true'\n:env:.no-index='0'"))


def test_uv_takes_the_newest_wheel_from_where_pip_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_wheel(tmp_path, "labengine-stand-in", "1.0", [])
    write_wheel(tmp_path, "labengine-stand-in", "1.0+cpu", [])
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    flags = pip_settings.flags(pip_settings.read())
    plan = output("-m", "uv", "pip", "install", "--dry-run", *flags, "labengine-stand-in==1.0")
    assert " + labengine-stand-in==1.0+cpu" in plan
